// Measured variation of a machine from step to step, the source of a prediction's interval.
#pragma once

#include <cstdint>

namespace bucketwise {

// Shares of the undisturbed time: relative standard deviations, and one standard error.
struct Variation {
    std::uint64_t seed = 1;             // of the draws
    double compute_spread = 0;          // of the whole step's computing, all its operations alike
    double operation_spread = 0;        // of each operation on its own, in addition
    double collective_spread = 0;       // of each collective on its own
    double compute_standard_error = 0;  // of the computing times that the workload gives
    double rank_spread = 0;             // of each rank's computing of a step, on its own
    // In a step each rank is this much slower with this probability, each on its own.
    double straggler_probability = 0;
    double straggler_slowdown = 1;
    bool operator==(const Variation&) const = default;
};

// Whether equal ranks may differ in a step.
constexpr bool ranks_vary(const Variation& variation) {
    return variation.rank_spread > 0 ||
           (variation.straggler_probability > 0 && variation.straggler_slowdown > 1);
}

// Whether one step may differ from the next.
constexpr bool steps_vary(const Variation& variation) {
    return variation.compute_spread > 0 || variation.operation_spread > 0 ||
           variation.collective_spread > 0 || ranks_vary(variation);
}

}  // namespace bucketwise
