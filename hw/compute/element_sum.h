// The arithmetic of an all-reduce: element-wise sums of two buffers of one dtype.
//
// 16-bit types are added as float32 and rounded to the nearest even value of their type after each
// addition, as a device that sums in the tensor's own dtype does. float32 holds more than twice as
// many bits as either of them, so rounding twice gives what rounding once would (Figueroa 1995,
// "When is double rounding innocuous?").
#pragma once

#include <cstdint>

#include "sim/base/dtype.h"

namespace bucketwise {

// sum[i] += addend[i] for i < elements. The buffers do not overlap and are aligned for the dtype.
using ElementSum = void (*)(void* sum, const void* addend, std::int64_t elements);

ElementSum element_sum(DType dtype);

}  // namespace bucketwise
