// The program's version.
#pragma once

#include <string_view>

namespace bucketwise {

std::string_view program_version();

}  // namespace bucketwise
