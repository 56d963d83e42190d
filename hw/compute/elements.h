// Element-wise passes over gradients and buckets on the CPU, for every dtype.
//
// float16 and bfloat16 are computed in float32 and rounded to nearest even at the end, as a
// framework's kernels do. float32 holds more than twice as many bits as either of them, so rounding
// twice gives what rounding once would (Figueroa 1995, "When is double rounding innocuous?").
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/base/dtype.h"

namespace bucketwise {

// to[i] = factor * from[i], i < count. `to` may be `from`; otherwise they do not overlap.
void copy_scaled(void* to, const void* from, std::int64_t count, DType dtype, double factor);

// The same between two dtypes: what a compression hook does before and after its all-reduce.
void cast_scaled(void* to, DType to_dtype, const void* from, DType from_dtype, std::int64_t count,
                 double factor);

// A tensor and its place in a bucket, or its other companion.
struct TensorPlace {
    std::byte* tensor = nullptr;
    std::byte* place = nullptr;
    std::int64_t numel = 0;
    std::int64_t tensor_index = 0;
};

enum class PackDirection { into_place, out_of_place };

// Copies tensors into their places, or back, cast and times `factor`.
void pack_all(const std::vector<TensorPlace>& tensors, PackDirection direction, DType to_dtype,
              DType from_dtype, double factor);

// to[i] += from[i], in the wider of the two and rounded at the end.
void add_cast(void* to, DType to_dtype, const void* from, DType from_dtype, std::int64_t count);

// to[i] = factor * pattern[i], or += where `accumulate`.
void store_scaled(void* to, DType dtype, const float* pattern, std::int64_t count, float factor,
                  bool accumulate);

inline std::byte* element(std::byte* data, std::int64_t index, DType dtype) {
    return data + index * element_size(dtype).count;
}

// One element as a double.
double element_at(const void* data, DType dtype, std::int64_t index);

// Bits of the significand, with the one that is not stored.
int significant_bits(DType dtype);

// The arithmetic of an all-reduce: sum[i] += addend[i] for i < elements, rounded after each
// addition as a device that sums in the tensor's own dtype does. The buffers do not overlap and are
// aligned for the dtype.
using ElementSum = void (*)(void* sum, const void* addend, std::int64_t elements);

ElementSum element_sum(DType dtype);

}  // namespace bucketwise
