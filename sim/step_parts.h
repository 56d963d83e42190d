// A step in its parts: what no bucket plan changes is simulated once, and each plan's closing part
// from there.
#pragma once

#include "sim/engine.h"
#include "sim/program.h"
#include "sim/strategy.h"

namespace bucketwise {

// Throws InputError for a step that could last longer than longest_duration.
void check_length(double longest_possible_seconds);

// Of all that comes before the last backward, which is checked.
double longest_seconds_before_closing(const StepInput& input, const SyncSettings& sync);

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
    // Throws InputError when it could last longer than longest_duration.
    StepBeforeClosing(const StepInput& input, const SyncSettings& sync)
        : longest_seconds_(longest_seconds_before_closing(input, sync)),
          progress_(simulate_before_closing(input, sync, unchanged)) {}

    // The step that ends with `closing`, which build_closing() gave for any plan. Throws likewise.
    [[nodiscard]] Duration step_with(const Program& closing) const {
        check_length(longest_seconds_ + longest_possible_seconds(closing));
        return simulate_times(closing, progress_).step();
    }

    [[nodiscard]] const RankProgress& progress() const { return progress_; }

  private:
    double longest_seconds_;
    RankProgress progress_;
};

}  // namespace bucketwise
