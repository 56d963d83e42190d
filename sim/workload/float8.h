// Linear layers in float8 (torchao's Float8Linear, as torchtitan converts a model): the casts
// around a product that runs in 8 bits.
//
// Only linear layers of a model's repeated blocks are converted: the head and attention stay in
// bfloat16, and so does every tensor between operations. Each operand of the three products of a
// layer is cast where it is used, in backward once more: input and weight forward, gradient of the
// output and weight for the input's gradient, input again for the weight's. A tensor has one scale
// (tensorwise) or one for each row; a row of the weight's gradient is none of the input's gradient,
// so that by rows the output's gradient is cast twice.
//
// Eager, a cast is a pass for the largest magnitude (2 bytes an element) and one that scales and
// casts (2 + 1). Compiled:
//  - tensorwise, the magnitude is found by the kernel that writes an activation or a gradient, and
//    the cast is a pass; a weight, which no kernel of the graph writes, takes both passes;
//  - by rows, one kernel finds and casts;
//  - layers that read the same tensor share its cast: of those, all but one sum up a fork of
//    gradients.
// A weight that fully_shard gathers in float8 is not cast again.
#pragma once

#include <cstdint>

#include "sim/workload/compiled.h"
#include "sim/workload/device.h"
#include "sim/workload/model.h"

namespace bucketwise {

// Whether the operation multiplies in float8 where it is asked for.
inline bool converts_to_float8(const Operation& operation, const PassPlace& place) {
    return place.in_block && operation.kind == OperationKind::linear;
}

struct CastCost {
    double bytes = 0;  // read and written
    std::int64_t kernels = 0;
};

// The casts of one pass of such an operation. `weight_is_cast`: before it was gathered.
CastCost float8_casts(const Operation& operation, Pass pass, const PassPlace& place,
                      Arithmetic arithmetic, bool weight_is_cast);

}  // namespace bucketwise
