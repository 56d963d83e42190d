#include "sim/workload/gpu_prior.h"

namespace bucketwise {

const FactorRange& range_of(GpuFactor factor) {
    static constexpr std::array<FactorRange, every<GpuFactor>.size()> ranges{{
        {{0.60, 0.79, 0.95}, "of the tensor cores' peak, of large tiles"},
        {{0.75, 0.96, 1.10}, "of the other units' peak; above 1: fewer operations (Winograd)"},
        {{0.65, 0.89, 1.10}, "of that, convolutions"},
        {{0.30, 0.50, 0.70}, "of that, attention in one kernel that overlaps its loads"},
        {{0.05, 0.10, 0.25}, "of that, attention in one kernel that does not"},
        {{0.72, 0.87, 0.95}, "of the memory's peak, of passes over tensors"},
        {{4.5, 3.0, 2.0}, "of each kernel, what it takes beyond its work, in us"},
        {{1.8, 1.0, 0.5}, "of a server's host times"},
    }};
    return ranges[static_cast<std::size_t>(factor)];
}

}  // namespace bucketwise
