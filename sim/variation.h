// How much a machine varies from step to step, as measured: what a prediction's interval is made
// of.
#pragma once

#include <cstdint>

namespace bucketwise {

// Shares of the undisturbed time: relative standard deviations, and one standard error.
struct Variation {
    std::uint64_t seed = 1;             // of the draws
    double compute_spread = 0;          // of the whole step's computing, all its operations alike
    double operation_spread = 0;        // of each operation on its own, besides
    double collective_spread = 0;       // of each collective on its own
    double compute_standard_error = 0;  // of the computing times that the workload gives
    bool operator==(const Variation&) const = default;
};

}  // namespace bucketwise
