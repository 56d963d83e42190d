#include "sim/text/system_reason.h"

#include <cerrno>
#include <system_error>

namespace bucketwise {

std::string system_reason(int error) {
    std::string reason = std::generic_category().message(error);
    if (error == ENOSPC) {
        reason += ", or no room for another file (df and df -i tell which)";
    }
    return reason;
}

}  // namespace bucketwise
