// Names of element types, as other tools write them.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "import/source/plain_text.h"
#include "sim/base/dtype.h"

namespace bucketwise {

// Knows the names of c10d ("Float"), of C++ and NCCL ("float", "c10::Half") and of Python
// ("float32"). An empty name is float32. Nothing for types that gradients cannot have.
inline std::optional<DType> dtype_named(std::string_view name) {
    std::string plain(name.substr(name.starts_with("c10::") ? 5 : 0));
    std::ranges::transform(plain, plain.begin(), lower_letter);
    for (const DType dtype : every<DType>) {
        if (is_called(dtype, plain)) {
            return dtype;
        }
    }
    return plain.empty() ? std::optional(DType::float32) : std::nullopt;
}

}  // namespace bucketwise
