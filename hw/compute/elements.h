// Element-wise passes over gradients and buckets on the CPU, for every dtype.
//
// float16 and bfloat16 are computed in float32 and rounded to nearest even at the end, as a
// framework's kernels do.
#pragma once

#include <cstdint>

#include "sim/base/dtype.h"

namespace bucketwise {

// to[i] = factor * from[i], i < count. `to` may be `from`; otherwise they do not overlap.
void copy_scaled(void* to, const void* from, std::int64_t count, DType dtype, double factor);

// The same between two dtypes: what a compression hook does before and after its all-reduce.
void cast_scaled(void* to, DType to_dtype, const void* from, DType from_dtype, std::int64_t count,
                 double factor);

// to[i] = from[i], or += where `accumulate`; from is float32.
void store(void* to, DType dtype, const float* from, std::int64_t count, bool accumulate);

// to[i] = factor * pattern[i], or += where `accumulate`.
void store_scaled(void* to, DType dtype, const float* pattern, std::int64_t count, float factor,
                  bool accumulate);

// One element as a double.
double element_at(const void* data, DType dtype, std::int64_t index);

}  // namespace bucketwise
