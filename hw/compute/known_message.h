// A message of an isolated collective whose exact sum every rank can compute: each element is a
// scattered number in [1, 2), made from the rank and the element's index alone.
#pragma once

#include <cstdint>
#include <string>

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

// Compares every element of `ranks` messages, of so many elements each, with what their ranks
// wrote.
MessageCheck check_known_gather(const void* data, std::int64_t elements, DType dtype, int ranks);

}  // namespace bucketwise
