// Where the time of a step goes: each moment of the compute stream, counted once.
#pragma once

#include <vector>

#include "import/run/traced_run.h"
#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/program/program.h"

namespace bucketwise {

struct StepAccount {
    Duration computing{0};
    Duration launching{0};      // free, and nothing was launched
    Duration communicating{0};  // free, until all-reduces or broadcasts of buffers had ended
    Duration others{0};         // free, until other streams' work or other ranks' had
    bool operator==(const StepAccount&) const = default;

    [[nodiscard]] Duration step() const { return computing + launching + communicating + others; }
};

// `has_device`: it ran on one; else the host is the device.
StepAccount account_of(const TracedStep& step, bool has_device);

// Of the traced steps, each part the median.
StepAccount traced_account(const TracedRun& run);

// What one bucket is waited for, once all gradients are ready.
struct BucketWait {
    std::size_t bucket = 0;  // in launch order
    Duration waited{0};
    Duration issued{0};  // the all-reduce, from the start of the step, on the compute stream
    Duration begin{0};   // on the communication stream
    Duration end{0};
    bool operator==(const BucketWait&) const = default;
};

struct SimulatedAccount {
    StepAccount account;
    std::vector<BucketWait> buckets;  // in launch order
    Duration last_ready{0};           // when the compute stream has run all of backward
    bool operator==(const SimulatedAccount&) const = default;
};

// Of a simulated step with its timeline, of the first rank.
SimulatedAccount simulated_account(const Program& program, const Simulation& simulation);

}  // namespace bucketwise
