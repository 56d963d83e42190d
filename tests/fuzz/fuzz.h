// Shared by all fuzzers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

#include "import/source/byte_source.h"
#include "sim/base/error.h"

namespace bucketwise {

// libFuzzer's own abort would not say which.
inline void require(bool holds) {
    if (!holds) {
        std::abort();
    }
}

// Where a fuzzed input names one.
inline std::string no_file(const std::string& path) {
    throw InputError(path, "", "no file", "one");
}

// The text must outlive it.
inline ByteSource source_of(std::string_view text, std::size_t block) {
    return [text, block](char* buffer, std::size_t size) mutable {
        const std::size_t count = std::min({text.size(), size, block});
        std::copy_n(text.data(), count, buffer);
        text.remove_prefix(count);
        return count;
    };
}

}  // namespace bucketwise
