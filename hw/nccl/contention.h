// Collectives back to back on one stream of a GPU while backward runs over and over on another, and
// the mutual slowdown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "hw/gpu/runtime/gpu_stream.h"
#include "hw/nccl/nccl_communicator.h"
#include "hw/rank/rank_device.h"
#include "hw/record/step_trace.h"
#include "sim/base/units.h"

namespace bucketwise {

// One operation of backward, as it ran beside all-reduces.
struct RanOperation {
    std::size_t index = 0;  // of Workload::backward
    Interval interval;      // by the clock of the all-reduces' intervals
    bool starved = false;   // it waited for the host to launch it, not for the GPU
    bool operator==(const RanOperation&) const = default;
};

struct RanTogether {
    std::vector<Interval> all_reduces;  // in the order they ran
    std::vector<RanOperation> operations;
    bool operator==(const RanTogether&) const = default;
};

// Work that is put on a stream again and again.
struct Load {
    const GpuStream& stream;
    std::function<void(std::size_t)> put;  // number ...: puts it on the stream and returns
};

// Keeps 32 all-reduces and 32 operations in the queues until `iterations` all-reduces have ended;
// operations follow one another from 0 to `operations` - 1, again and again. Returns once both
// streams are idle. Throws as PatientWait does, for all-reduces of `communicator`.
// Precondition: iterations > 0, operations > 0.
RanTogether run_together(NcclCommunicator& communicator, const Load& all_reduces,
                         std::int64_t iterations, const Load& backward, std::size_t operations);

// Times of operations alone, by index, and the matrix products among them.
struct OperationsAlone {
    std::vector<Duration> times;
    std::vector<bool> are_products = {};  // parallel to times
};

// Counts the operations that ran wholly between the begin of the first all-reduce and the end of
// the last, but not those that were starved: their wait for the host says nothing about
// all-reduces. `stamp_time` is what an event adds to each interval of an operation. Where no
// operation counts, times with and without all-reduces are both zero. Precondition: an index of
// every operation is in `alone`.
ContentionTrace contention_of(const RanTogether& ran, const OperationsAlone& alone,
                              Duration stamp_time);

}  // namespace bucketwise
