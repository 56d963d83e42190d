// A step in its parts: what no bucket plan changes is simulated once, and each plan's closing part
// from there.
#pragma once

#include "sim/engine.h"
#include "sim/program.h"
#include "sim/strategy.h"

namespace bucketwise {

using ProgramChange = Program (*)(Program);

inline Program unchanged(Program program) {
    return program;
}

// Simulates what comes before the last backward: broadcasts, all micro-steps but the last, and the
// last one's forward. `change` is applied to each program first.
RankProgress simulate_before_closing(const StepInput& input, const SyncSettings& sync,
                                     ProgramChange change);

class StepBeforeClosing {
  public:
    StepBeforeClosing(const StepInput& input, const SyncSettings& sync)
        : progress_(simulate_before_closing(input, sync, unchanged)) {}

    // The step that ends with `closing`, which build_closing() gave for any plan.
    [[nodiscard]] Duration step_with(const Program& closing) const {
        return simulate_times(closing, progress_).step();
    }

  private:
    RankProgress progress_;
};

}  // namespace bucketwise
