// The times of a captured step's computing alone. They were captured while the step's own buckets
// travelled, which slowed it; a scenario holds undisturbed times, which the simulator slows.
#pragma once

#include <optional>

#include "sim/base/json.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

struct AloneTimes {
    GradientWorkload workload;  // the scenario's, with undisturbed moments of readiness
    Duration slowed{0};         // the slowdown of backward beside communication
    // The largest error, as a share, of an operation of backward simulated beside communication.
    double miss = 0;
    bool operator==(const AloneTimes&) const = default;
};

// Looks for the times of backward's operations with which the simulator, with the scenario's own
// plan and link, reproduces the captured ones: each is multiplied by its error, until all are
// within a thousandth, at most 50 times. Empty: the scenario does not list gradients by readiness,
// or runs pieces of a compiled graph, which do not keep their places.
std::optional<AloneTimes> times_alone(const Scenario& captured);

// The captured document with these times.
Json with_times(Json document, const AloneTimes& alone);

}  // namespace bucketwise
