// What a prediction with a preset link hangs on: the same at both ends of the preset's range.
#pragma once

#include <algorithm>
#include <vector>

#include "sim/base/units.h"
#include "sim/link/link_presets.h"
#include "sim/plan/strategy.h"
#include "sim/predict/prediction.h"
#include "sim/program/program.h"

namespace bucketwise {

// The same step at one end of what a preset link leaves open.
struct LinkEnd {
    PresetEnd end = PresetEnd::slow;
    Evaluation best;          // the fastest there
    Duration with_choice{0};  // the step with what is advised for the typical link
    bool operator==(const LinkEnd&) const = default;

    // What that costs over the fastest, as a share.
    [[nodiscard]] double regret() const {
        const double least = std::max(static_cast<double>(best.times.step().count()), 1.0);
        return static_cast<double>((with_choice - best.times.step()).count()) / least;
    }
};

// The slow end, then the fast one. `prediction` is of the typical link, with the same `caps`.
// Throws InputError when a step could last longer than longest_duration.
std::vector<LinkEnd> link_ends(const StepInput& input, const SyncRequest& request,
                               const std::vector<Bytes>& caps, const LinkPreset& preset,
                               const Prediction& prediction);

}  // namespace bucketwise
