#include <fcntl.h>
#include <unistd.h>

#include "cli/commands.h"

namespace {

// The next file to be opened would take the number of a stream that the caller has closed, and what
// is printed would go there.
void occupy_standard_streams() {
    int descriptor = -1;
    do {
        descriptor = ::open("/dev/null", O_RDWR);
    } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
    ::close(descriptor);
}

}  // namespace

int main(int argc, char** argv) {
    occupy_standard_streams();
    return bucketwise::run_command_line({argv + (argc > 0 ? 1 : 0), argv + argc});
}
