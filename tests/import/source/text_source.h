// Bytes of a string, a few at a time, so that nothing rests on where blocks end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "import/source/byte_source.h"

namespace bucketwise {

inline ByteSource text_source(std::string text, std::size_t block = 7) {
    return [text = std::move(text), block, at = std::size_t{0}](char* buffer,
                                                                std::size_t size) mutable {
        const std::size_t count = std::min({block, size, text.size() - at});
        std::copy_n(text.data() + at, count, buffer);
        at += count;
        return count;
    };
}

}  // namespace bucketwise
