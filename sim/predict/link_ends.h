// What a prediction with a preset link hangs on: the same at both ends of the preset's range.
#pragma once

#include <vector>

#include "sim/link/link_presets.h"
#include "sim/plan/strategy.h"
#include "sim/predict/prediction.h"
#include "sim/program/program.h"

namespace bucketwise {

// The slow end, then the fast one. `prediction` is of the typical link, with the same `caps`.
// Throws InputError when a step could last longer than longest_duration.
std::vector<LinkEnd> link_ends(const StepInput& input, const SyncRequest& request,
                               const std::vector<Bytes>& caps, const LinkPreset& preset,
                               const Prediction& prediction);

}  // namespace bucketwise
