#include "cli/shell/version.h"

namespace bucketwise {

std::string_view program_version() {
    return BUCKETWISE_VERSION;
}

}  // namespace bucketwise
