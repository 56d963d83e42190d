// A message of an isolated collective whose exact sum every rank can compute: each element is a
// scattered number in [1, 2), made from the rank and the element's index alone.
#pragma once

#include <cstdint>
#include <string>

#include "hw/compute/gradient_pattern.h"
#include "sim/base/dtype.h"

namespace bucketwise {

// The rank's term, exactly as write_known_message() stores it.
double known_term(int rank, std::int64_t element, DType dtype);

void write_known_message(void* data, std::int64_t elements, DType dtype, int rank);

struct MessageCheck {
    double largest_difference = 0;  // of an element's mean over the ranks from the exact one
    std::string wrong = {};         // the first element further off than rounding explains
};

// Compares every element of the sum with the exact one, summed in long double. `data` begins with
// element `first` of the message.
MessageCheck check_known_sum(const void* data, std::int64_t elements, DType dtype, int ranks,
                             std::int64_t first = 0);

// Compares `ranks` messages of `elements` each with those that the ranks wrote, to the bit.
MessageCheck check_known_gather(const void* data, std::int64_t elements, DType dtype, int ranks);

// A sharded parameter in one step. Its elements are the terms of a known message, another one for
// each parameter, so that a part in the wrong place shows, and another one from step to step, so
// that a part of an earlier step shows.
struct KnownParameter {
    std::int32_t parameter = 0;
    std::int64_t step = 0;
    DType dtype = DType::float32;  // of the shard
};

// Elements [first, first + count), in the shard's dtype.
void write_known_parameter(void* data, const KnownParameter& known, std::int64_t first,
                           std::int64_t count);

// Compares all `numel` elements with the known ones, cast to `dtype`: to the bit.
ElementCheck check_known_parameter(const void* data, DType dtype, std::int64_t numel,
                                   const KnownParameter& known);

}  // namespace bucketwise
