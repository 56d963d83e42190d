#include "sim/workload/model.h"

namespace bucketwise {

Work work_of(const Operation& operation, Pass pass) {
    constexpr std::int64_t batch_norm_times = 3;  // forward moves its elements: read, read, write
    const Work& forward = operation.forward;
    const std::int64_t statistics = forward.elements / batch_norm_times;
    switch (pass) {
        case Pass::forward:
            return forward;
        case Pass::statistics:
            return {0, statistics};
        case Pass::normalise:
            return {forward.flops, forward.elements - statistics};
        case Pass::input_gradient:
            return operation.input_gradient;
        case Pass::weight_gradient:
            break;
    }
    return operation.weight_gradient;
}

}  // namespace bucketwise
