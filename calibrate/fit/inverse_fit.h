// Machine parameters from nothing but the times of steps at several caps, found through the
// simulator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/link/link.h"
#include "sim/plan/cap.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

struct ObservedStep {
    Cap cap = {};
    double ms = 0;  // above zero
    bool operator==(const ObservedStep&) const = default;
};

enum class ObservedPart : std::uint8_t { step, backward };

// One strategy's observations. Several of one machine are fitted together.
struct ObservedSteps {
    std::string file;  // for messages
    Scenario scenario;
    ObservedPart part = ObservedPart::step;
    std::vector<ObservedStep> steps;
    bool operator==(const ObservedSteps&) const = default;
};

// A factor on a quantity of the scenario: its whole computing (or backward alone, where that was
// observed), all latencies of its link, all bandwidths, or what overlapping is assumed to cost
// beyond nothing, which is shown as the slowdown of computing.
struct FittedParameter {
    std::string name;  // ends in its unit
    double start = 0;  // the scenario's
    double value = 0;  // the scenario's where it is not identifiable
    bool is_fitted = true;
    std::optional<double> standard_error;  // none: as many parameters as observations
    bool operator==(const FittedParameter&) const = default;
};

struct FittedStep {
    std::string file;
    ObservedStep observed;
    double fitted_ms = 0;
    bool operator==(const FittedStep&) const = default;
};

struct InverseFit {
    // Computing; bandwidth and latency unless the link is a topology; interference where assumed.
    std::vector<FittedParameter> parameters;
    double computing_factor = 1;
    LinkParameters link;  // of the first scenario, fitted, with standard errors
    std::vector<FittedStep> steps;
    double typical_error = 0;  // root mean square of relative residuals
    std::vector<std::string> warnings;
    bool operator==(const InverseFit&) const = default;
};

// Least squares of relative residuals by Levenberg and Marquardt (MINPACK's, in Eigen) over the
// logarithms of the factors, from the best of several starts. A parameter with a standard error of
// more than half of itself is not identifiable from these steps: it keeps the scenario's value,
// with a warning. Throws InputError for too few observations, or for a link or ranks that differ
// between scenarios.
InverseFit fit_to_steps(
    const std::vector<ObservedSteps>& observed, const Progress& progress = [](double /*done*/) {});

// The first scenario's document (links written out) with the fitted numbers.
Json fitted_scenario(Json document, const Scenario& scenario, ObservedPart part,
                     const InverseFit& fit);

std::string inverse_fit_report(const InverseFit& fit);

}  // namespace bucketwise
