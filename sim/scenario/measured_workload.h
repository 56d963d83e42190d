// A workload whose times were measured, as gradients with their moments or operation by operation.
#pragma once

#include <optional>

#include "sim/scenario/scenario.h"

namespace bucketwise {

// Its operations; of gradients with their moments one for each.
Workload measured_workload(const GradientWorkload& workload);

// Changes what backward computes again from what was measured (backward_with()).
void set_recompute(const std::optional<Recompute>& recompute, GradientWorkload& workload);

}  // namespace bucketwise
