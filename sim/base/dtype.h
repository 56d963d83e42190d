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

// As PyTorch's other names, configurations and people have it.
template <>
inline constexpr std::array other_names_of<DType>{
    OtherName<DType>{"fp32", DType::float32},  OtherName<DType>{"float", DType::float32},
    OtherName<DType>{"fp16", DType::float16},  OtherName<DType>{"half", DType::float16},
    OtherName<DType>{"bf16", DType::bfloat16}, OtherName<DType>{"fp64", DType::float64},
    OtherName<DType>{"double", DType::float64}};

constexpr Bytes element_size(DType dtype) {
    constexpr std::array<Bytes, every<DType>.size()> sizes{{{4}, {2}, {2}, {8}}};
    return sizes[static_cast<std::size_t>(dtype)];
}

}  // namespace bucketwise
