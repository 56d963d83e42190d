// Values of parameters that every rank knows without asking the others: the terms of known
// messages, another one for each parameter, so that a part that lies in another's place shows, and
// others from step to step, so that what an earlier step gathered does.
#pragma once

#include <cstdint>

#include "hw/compute/gradient_pattern.h"
#include "sim/base/dtype.h"

namespace bucketwise {

struct KnownParameter {
    std::int32_t parameter = 0;
    std::int64_t step = 0;
    DType dtype = DType::float32;  // of the shard
};

// Elements [first, first + count), in the shard's dtype.
void write_known_parameter(void* data, const KnownParameter& known, std::int64_t first,
                           std::int64_t count);

// Compares all `numel` elements with what they are when they have been cast to `dtype`: to the bit.
ElementCheck check_known_parameter(const void* data, DType dtype, std::int64_t numel,
                                   const KnownParameter& known);

}  // namespace bucketwise
