// One rank's part in sharded steps, behind one interface for every backend that has it: it runs
// programs on real shards and says when everything happened.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "hw/rank/rank_device.h"
#include "hw/rank/sharded_calls.h"
#include "hw/record/step_trace.h"

namespace bucketwise {

class ShardedDevice : public ComputingDevice {
  public:
    // Runs one step. Steps are numbered so that no two successive ones have equal parameters or
    // gradients. What the trace says of each single instruction may be coarse, as of
    // RankDevice::run().
    virtual StepTrace run(const ShardedReplay& replay, std::int64_t number,
                          Communicate communicate) = 0;

    // As RankDevice::run_each() does it.
    virtual std::optional<StepTrace> run_each(const ShardedReplay& /*replay*/,
                                              std::int64_t /*number*/) {
        return std::nullopt;
    }

    // Compares every element of what the step that ran last left, as it was told to communicate,
    // with what it must be: the parameters that were gathered last, and the own part of every
    // gradient.
    virtual StepCheck check() = 0;

    // Runs one step that is not timed and compares likewise after each time that parameters are
    // gathered or gradients reduced.
    virtual StepCheck run_checked(const ShardedReplay& replay, std::int64_t number) = 0;
};

}  // namespace bucketwise
