// Element types of tensors, by PyTorch's names.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/base/names.h"
#include "sim/base/units.h"

namespace bucketwise {

enum class DType : std::uint8_t { float32, float16, bfloat16, float64 };

template <>
inline constexpr auto names_of<DType> = names("float32", "float16", "bfloat16", "float64");

constexpr Bytes element_size(DType dtype) {
    switch (dtype) {
        case DType::float16:
        case DType::bfloat16:
            return {2};
        case DType::float32:
            return {4};
        case DType::float64:
            return {8};
    }
    return {0};
}

}  // namespace bucketwise
