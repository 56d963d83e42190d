// All steps measured at one cap, over all rounds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "calibrate/fit/measured_run.h"
#include "sim/base/units.h"
#include "sim/plan/cap.h"

namespace bucketwise {

struct MeasuredCap {
    std::optional<Bytes> cap;  // none: the strategy has no cap to vary
    bool is_default = false;   // the framework's default, not a cap that was named
    std::vector<Bytes> bucket_bytes;
    std::vector<double> step_us;                // of the slowest rank, by sample
    std::vector<std::int64_t> rounds;           // the round of each sample
    std::vector<double> free_communication_us;  // the same with collectives that do nothing
    double exposed_us = 0;                      // median
    // Medians of rank 0.
    double computing_us = 0;  // the step without the time that it was blocked
    double forward_us = 0;
    double backward_us = 0;
    double optimizer_us = 0;
    std::vector<double> begin_us;  // by collective
    std::vector<double> end_us;
    std::vector<double> last_begin_us;  // of the last rank
    bool operator==(const MeasuredCap&) const = default;

    // The cap as an Evaluator's argument.
    [[nodiscard]] Cap asked_cap() const { return is_default ? Cap() : Cap(cap); }
};

// By rising cap, the default before a named cap of the same size. Throws InputError where rounds of
// one cap had different buckets or strategies.
std::vector<MeasuredCap> measured_caps(const MeasuredRun& run);

}  // namespace bucketwise
