// Whether training steps are as fast as they were, and as they have to be: a gate for CI.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/gate/causes.h"
#include "calibrate/gate/gate_run.h"

namespace bucketwise {

struct GateLimits {
    std::optional<double> max_exposed = {};  // share of the step that waits for communication
    std::optional<double> max_step_ms = {};
    double max_regression = 0.02;  // the most that a step may exceed its baseline, as a share
    double false_alarms = 0.01;    // at most, of all checks of unchanged steps
    bool operator==(const GateLimits&) const = default;
};

// Against the baseline.
struct GateChange {
    double before_ms = 0;  // median
    double slower = 0;     // as a share; below 0: faster
    double low = 0;        // 95 %
    double high = 0;
    bool is_slower = false;  // beyond chance
    bool is_faster = false;
    bool can_be_told = false;  // there are enough steps for that
    bool runs_are_known = false;
    double tellable = 0;  // as a share: a regression of this size is detected 95 times in 100
    std::size_t enough_steps = 0;  // of each side, to detect anything
    std::size_t steps_before = 0;
    std::size_t runs_before = 0;
    bool operator==(const GateChange&) const = default;
};

struct CheckedCase {
    std::string name;
    GateSource source = GateSource::trace;
    std::size_t steps = 0;
    std::size_t runs = 0;
    double step_ms = 0;  // median
    std::optional<double> exposed_ms = {};
    std::optional<GateChange> change = {};  // none: the baseline has no such case
    std::vector<GateCause> causes = {};     // of a regression
    // Sentences without their ends.
    std::vector<std::string> broken = {};  // limits that are not held
    std::vector<std::string> notes = {};
    bool operator==(const CheckedCase&) const = default;
};

struct GateVerdict {
    GateLimits limits;
    std::vector<CheckedCase> cases;
    std::vector<std::string> notes;
    std::string misfit = {};  // whole sentences; empty: every predicted step fits its device
    bool operator==(const GateVerdict&) const = default;

    [[nodiscard]] bool is_held() const;
};

// A step that takes longer is a regression where its estimate is beyond max_regression and its
// difference beyond chance, at a rate that is shared out among the cases. For predictions, every
// difference counts. The other limits are compared with medians. Cases are the same by source and
// name. Precondition (asserted): every run has steps.
GateVerdict check_cases(const std::vector<GateCase>& baseline, const std::vector<GateCase>& cases,
                        const GateLimits& limits);

}  // namespace bucketwise
