// Misuse for which the real libraries have no error code, or report one only later.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace bucketwise::emulated {

[[noreturn]] inline void fatal(const std::string& what) {
    std::fprintf(stderr, "emulated GPU: %s\n", what.c_str());
    std::abort();
}

}  // namespace bucketwise::emulated
