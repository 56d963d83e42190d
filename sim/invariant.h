// Broken invariants stop the program in every build type: a wrong simulation is worse than none.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <source_location>

namespace bucketwise {

inline void invariant(bool holds, const char* what,
                      std::source_location where = std::source_location::current()) {
    if (!holds) [[unlikely]] {
        std::fprintf(stderr, "bucketwise: internal error: %s (%s:%u)\n", what, where.file_name(),
                     static_cast<unsigned>(where.line()));
        std::abort();
    }
}

}  // namespace bucketwise
