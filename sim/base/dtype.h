// Element types of tensors, by PyTorch's names.
#pragma once

#include <array>
#include <cstdint>

#include "sim/base/names.h"
#include "sim/base/units.h"

namespace bucketwise {

enum class DType : std::uint8_t { float32, float16, bfloat16, float64 };

template <>
inline constexpr auto names_of<DType> = names("float32", "float16", "bfloat16", "float64");

constexpr Bytes element_size(DType dtype) {
    constexpr std::array<Bytes, every<DType>.size()> sizes{{{4}, {2}, {2}, {8}}};
    return sizes[static_cast<std::size_t>(dtype)];
}

}  // namespace bucketwise
