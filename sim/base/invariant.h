// Broken invariants stop the program in every build type: a wrong simulation is worse than none.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace bucketwise {

// The defaults are the caller's place. std::source_location would say the same, but clang 14 does
// not have it with Debian 12's standard library.
constexpr void invariant(bool holds, const char* what, const char* file = __builtin_FILE(),
                         int line = __builtin_LINE()) {
    if (!holds) [[unlikely]] {
        std::fprintf(stderr, "bucketwise: internal error: %s (%s:%d)\n", what, file, line);
        std::abort();
    }
}

}  // namespace bucketwise
