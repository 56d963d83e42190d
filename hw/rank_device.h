// One rank's compute and communication, behind one interface for every backend: it runs programs
// on real buffers and says when everything happened.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hw/step_trace.h"
#include "sim/dtype.h"
#include "sim/plan.h"
#include "sim/program.h"
#include "sim/strategy.h"
#include "sim/units.h"

namespace bucketwise {

struct StepCheck {
    double largest_difference = 0;  // of any gradient's element from the exact mean
    std::string wrong;              // what is wrong with a sum; empty: nothing
};

struct AllReduceTrace {
    std::vector<Duration> times;  // one per iteration, back to back
    double largest_difference = 0;
    std::string wrong;
};

// All-reduces back to back while backward runs over and over.
struct ContentionTrace {
    std::vector<Duration> times;  // of the all-reduces
    // Operations of backward that ran from begin to end while all-reduces were running: what they
    // took, and what the same operations took alone.
    Duration compute_disturbed{0};
    Duration compute_alone{0};
};

enum class Communicate : std::uint8_t {
    yes,
    for_free  // collectives are launched and waited for, and do nothing
};

class RankDevice {
  public:
    virtual ~RankDevice() = default;
    RankDevice() = default;
    RankDevice(const RankDevice&) = delete;
    RankDevice& operator=(const RankDevice&) = delete;

    // Measures what fillers need. Collective only in that all ranks should do it at once.
    virtual void calibrate() = 0;

    // Runs one step. `program` was built for `plan` and `sync`. Steps are numbered so that no two
    // successive ones have equal gradients.
    virtual StepTrace run(const Program& program, const SyncSettings& sync, const BucketPlan& plan,
                          std::int64_t step, Communicate communicate) = 0;

    // Compares every element of every gradient of the step that ran last with the exact mean.
    virtual StepCheck check() = 0;

    // All-reduces of `size` bytes back to back, after one that warms up and is checked.
    virtual AllReduceTrace all_reduce(Bytes size, DType dtype, std::int64_t iterations) = 0;

    // What each operation of backward takes while nothing is communicated.
    virtual std::vector<Duration> backward_alone() = 0;

    // `iterations` all-reduces back to back, and backward over and over until they have ended.
    // `alone` is what backward_alone() said.
    virtual ContentionTrace contend(Bytes size, DType dtype, std::int64_t iterations,
                                    const std::vector<Duration>& alone) = 0;
};

}  // namespace bucketwise
