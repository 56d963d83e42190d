// The first sentences where training does not fit the device's memory: no advice, but what fits.
#pragma once

#include <optional>
#include <string>

#include "sim/predict/knobs.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

struct Misfit {
    std::string text = {};                 // whole sentences, with a setting that fits and its
                                           // step; empty: it fits, for all that is known
    std::optional<KnobSearch> knobs = {};  // none: it fits, or the scenario has no knobs
};

// For the scenario's own setting.
Misfit misfit_of(
    const Scenario& scenario, const Progress& progress = [](double) {});

// The text alone; empty where the scenario shards, as a prediction then tries other settings.
std::string misfit_text(const Scenario& scenario);

}  // namespace bucketwise
