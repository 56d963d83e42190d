// The step at both ends of the presets of links and devices that a scenario uses.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/link/preset_end.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

struct PriorEnd {
    PresetEnd end = PresetEnd::slow;
    Evaluation best;          // the fastest there
    Duration with_choice{0};  // the step with the advice for the typical preset
    bool operator==(const PriorEnd&) const = default;

    // The excess of the advice over the fastest, as a share.
    [[nodiscard]] double regret() const {
        const double least = std::max(static_cast<double>(best.times.step().count()), 1.0);
        return static_cast<double>((with_choice - best.times.step()).count()) / least;
    }
};

// Both ends, the slow one first, of each preset that the scenario uses.
struct PriorEnds {
    std::vector<PriorEnd> link = {};
    std::vector<PriorEnd> device = {};
};

// Each with the fastest setting of `prediction`, of `input` and so of the typical presets; in a
// sharded prediction among the rows that matter and fit. Throws InputError if a step could last
// longer than longest_duration.
PriorEnds preset_ends(const Scenario& scenario, const StepInput& input,
                      const Prediction& prediction);

struct StepRange {
    Duration low{0};
    Duration high{0};
    bool operator==(const StepRange&) const = default;
};

// Where a step may lie whose presets are off, each by as much as its end: their logarithms are
// added in quadrature. `step_at`: the step of a scenario with its input. Empty without presets.
std::optional<StepRange> step_range(
    const Scenario& scenario, const StepInput& input, Duration step,
    const std::function<Duration(const Scenario&, const StepInput&)>& step_at);

}  // namespace bucketwise
