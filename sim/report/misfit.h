// The first sentences where training does not fit the device's memory: no advice, but what fits.
#pragma once

#include <string>

#include "sim/scenario/scenario.h"

namespace bucketwise {

// Whole sentences, with the step that sharding over the same ranks would take. Empty: it fits, for
// all that is known, or the scenario shards already.
std::string misfit_text(const Scenario& scenario);

}  // namespace bucketwise
