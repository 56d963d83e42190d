#include "cli/command.h"

int main(int argc, char** argv) {
    return bucketwise::run_command_line({argv + (argc > 0 ? 1 : 0), argv + argc});
}
