// The time of a matrix product on a GPU without measurements: tiles, their depth, and their waves
// over the multiprocessors.
#pragma once

#include <cstdint>

#include "sim/workload/device.h"
#include "sim/workload/model.h"

namespace bucketwise {

struct ProductWork {
    MatrixProduct shape;  // of the pass: a weight gradient's depth is the rows
    double bytes = 0;     // its operands and its result
    bool convolution = false;
};

// In seconds, without the launch. Precondition (asserted): the device has a prior and supports the
// arithmetic.
double product_seconds(const ProductWork& work, const Device& device, Arithmetic arithmetic);

// The rate that large products of this arithmetic reach, in flop per second.
double product_rate(const Device& device, Arithmetic arithmetic);

// Whether tensor cores compute it.
constexpr bool on_tensor_cores(Arithmetic arithmetic) {
    return arithmetic != Arithmetic::float32 && arithmetic != Arithmetic::float64;
}

}  // namespace bucketwise
