// The account of a step: each moment of the compute stream, counted once.
#pragma once

#include <array>
#include <vector>

#include "import/run/traced_run.h"
#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/program/program.h"

namespace bucketwise {

struct StepAccount {
    Duration computing{0};
    Duration launching{0};      // free, while nothing was launched
    Duration communicating{0};  // free, until all-reduces or broadcasts of buffers ended
    Duration others{0};         // free, until work of other streams or ranks ended
    bool operator==(const StepAccount&) const = default;

    [[nodiscard]] Duration step() const { return computing + launching + communicating + others; }
};

inline constexpr std::array account_parts{&StepAccount::computing, &StepAccount::launching,
                                          &StepAccount::communicating, &StepAccount::others};

// Without a device, the host is the device.
StepAccount account_of(const TracedStep& step, bool has_device);

// The median over the traced steps, part by part.
StepAccount traced_account(const TracedRun& run);

// The wait for one bucket, once all gradients are ready.
struct BucketWait {
    std::size_t bucket = 0;  // in launch order
    Duration waited{0};
    Duration issued{0};  // from the start of the step, on the compute stream
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

// The account of the first rank, by the timeline of the simulation.
SimulatedAccount simulated_account(const Program& program, const Simulation& simulation);

}  // namespace bucketwise
