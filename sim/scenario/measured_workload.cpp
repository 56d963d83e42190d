#include "sim/scenario/measured_workload.h"

#include <utility>

namespace bucketwise {

Workload measured_workload(const GradientWorkload& workload) {
    Workload measured =
        workload_from_readiness(workload.gradients, workload.forward, workload.backward);
    if (workload.operations) {
        measured.forward = workload.operations->forward;
        measured.backward = workload.operations->backward;
        measured.readiness = workload.operations->readiness;
        measured.side_streams = workload.operations->side_streams;
    }
    return measured;
}

void set_recompute(const std::optional<Recompute>& recompute, GradientWorkload& workload) {
    Workload measured = measured_workload(workload);
    measured.backward = backward_with(recompute, measured);
    if (workload.operations) {
        workload.operations->backward = std::move(measured.backward);
    } else {
        workload.backward = set_readiness(measured, workload.gradients);
    }
}

}  // namespace bucketwise
