// What a captured step's computing takes alone. Its times were taken while its own buckets
// travelled, which slowed it; a scenario has what computing takes by itself, as the simulator slows
// it.
#pragma once

#include <optional>

#include "sim/base/json.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

struct AloneTimes {
    GradientWorkload workload;  // the scenario's, with the moments that computing reaches alone
    Duration slowed{0};         // by how much backward took longer beside communication
    // Largest share by which an operation of backward, simulated beside communication, misses what
    // was captured.
    double miss = 0;
    bool operator==(const AloneTimes&) const = default;
};

// Looks for the times of backward's operations with which the simulator, with the scenario's own
// plan and link, gives those that were captured: each is multiplied by what it misses, until none
// misses by more than a thousandth, at most 50 times. None: the scenario does not list gradients by
// when they are ready, or runs pieces of a compiled graph, which do not keep their places.
std::optional<AloneTimes> times_alone(const Scenario& captured);

// The captured document with these times.
Json with_times(Json document, const AloneTimes& alone);

}  // namespace bucketwise
