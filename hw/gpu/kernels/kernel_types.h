// From a dtype known at run time to a type known at compile time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "sim/base/dtype.h"

namespace bucketwise {

// Calls function(T{}), T the type of one element.
template <typename Function>
void with_element_type(DType dtype, const Function& function) {
    switch (dtype) {
        case DType::float16:
            return function(__half{});
        case DType::bfloat16:
            return function(__nv_bfloat16{});
        case DType::float64:
            return function(double{});
        case DType::float32:
            break;
    }
    return function(float{});
}

}  // namespace bucketwise
