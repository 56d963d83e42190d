// Names of element types, as other tools write them.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "import/source/plain_text.h"
#include "sim/base/dtype.h"

namespace bucketwise {

// Knows the names of c10d ("Float"), of C++ and NCCL ("float", "c10::Half") and of Python
// ("float32"). An empty name is float32. Nothing for types that gradients cannot have.
inline std::optional<DType> dtype_named(std::string_view name) {
    constexpr std::array<std::pair<std::string_view, DType>, 8> dtypes{
        {{"", DType::float32},
         {"float", DType::float32},
         {"float32", DType::float32},
         {"half", DType::float16},
         {"float16", DType::float16},
         {"bfloat16", DType::bfloat16},
         {"double", DType::float64},
         {"float64", DType::float64}}};
    std::string plain(name.substr(name.starts_with("c10::") ? 5 : 0));
    for (char& c : plain) {
        c = lower_letter(c);
    }
    for (const auto& [known, dtype] : dtypes) {
        if (plain == known) {
            return dtype;
        }
    }
    return std::nullopt;
}

}  // namespace bucketwise
