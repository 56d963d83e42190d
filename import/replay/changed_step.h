// Parts of a step that counterfactuals change.
#pragma once

#include "sim/base/units.h"
#include "sim/link/link.h"
#include "sim/program/program.h"

namespace bucketwise {

// 0 of nothing.
inline double share(Duration part, Duration whole) {
    return whole > Duration{0}
               ? static_cast<double>(part.count()) / static_cast<double>(whole.count())
               : 0.0;
}

// Calls `visit` for every operation of the step.
template <typename Input, typename Visit>
void for_each_operation(Input& input, const Visit& visit) {
    for (auto* pass :
         {&input.workload.forward, &input.workload.backward, &input.step.optimizer_operations}) {
        for (auto& operation : *pass) {
            visit(operation);
        }
    }
}

// The link, on which every collective takes `factor` times as long.
LinkParameters slowed(LinkParameters link, double factor);

}  // namespace bucketwise
