#include "calibrate/fit/inverse_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>
#include <Eigen/Core>
#include <Eigen/SVD>
#include <nlohmann/json.hpp>

#include "calibrate/fit/minimum.h"
#include "calibrate/fit/observed_plans.h"
#include "calibrate/fit/overlap_factor.h"
#include "calibrate/link/link_fit.h"
#include "sim/base/error.h"
#include "sim/base/json_output.h"
#include "sim/base/transformed.h"
#include "sim/plan/strategy.h"
#include "sim/predict/prediction.h"

namespace bucketwise {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

// Logarithms of the factors. Interference's factor is on the assumed cost beyond none.
enum Unknown : std::size_t { computing, bandwidth, latency, interference };
constexpr std::size_t parameter_count = 4;
using FittedFactors = std::array<double, parameter_count>;  // 0: as the scenario has it

LinkParameters scaled_link(LinkParameters link, const FittedFactors& factors) {
    for_each_segment(link, [&](Segment& segment) {
        segment.latency = scaled(segment.latency, std::exp(factors[latency]));
        // Within the limits of link files.
        const double gb_per_s = to_gb_per_s(segment.bandwidth) * std::exp(factors[bandwidth]);
        segment.bandwidth = bandwidth_from_gb_per_s(std::clamp(gb_per_s, 1e-6, 1e6));
    });
    for (LinkParameters& tier : link.tiers) {
        tier = scaled_link(tier, factors);
    }
    return link;
}

void scale_pass(std::vector<TimedOperation>& pass, bool is_late, double factor) {
    for (TimedOperation& operation : pass) {
        if (!operation.order.is_beside()) {
            operation.device = scaled(operation.device, factor);
            operation.host = is_late ? operation.device : operation.host;
        }
    }
}

// Each scenario once as a step, its observations many times.
class Simulator {
  public:
    Simulator(const std::vector<ObservedSteps>& observed, const Progress& progress)
        : observed_(observed), progress_(progress) {
        for (const ObservedSteps& steps : observed) {
            inputs_.push_back(step_input(steps.scenario));
            plans_.emplace_back(transformed(steps.steps, &ObservedStep::cap), steps.scenario.sync,
                                inputs_.back());
            rows_ += steps.steps.size();
        }
    }

    [[nodiscard]] std::size_t rows() const { return rows_; }

    // In ms, row by row.
    [[nodiscard]] std::vector<double> predict(const FittedFactors& factors) const {
        std::vector<double> ms;
        for (std::size_t i = 0; i < observed_.size(); ++i) {
            const ObservedSteps& steps = observed_[i];
            StepInput input = inputs_[i];
            input.link = scaled_link(input.link, factors);
            if (input.link.assumes_interference) {
                scale_interference(std::exp(factors[interference]), input.link);
            }
            const bool is_late = input.workload.late_host > 0;
            scale_pass(input.workload.backward, is_late, std::exp(factors[computing]));
            if (steps.part == ObservedPart::step) {
                scale_pass(input.workload.forward, is_late, std::exp(factors[computing]));
            }
            Evaluator evaluator(input, steps.scenario.sync);
            const std::vector<double> times = plans_[i].for_each_step([&](const auto& known) {
                const StepTimes step = evaluator.evaluate(known.cap, known.plan).times;
                return to_ms(steps.part == ObservedPart::step ? step.step() : step.backward);
            });
            ms.insert(ms.end(), times.begin(), times.end());
        }
        tell_progress();
        return ms;
    }

    [[nodiscard]] VectorXd residuals(const FittedFactors& factors) const {
        std::vector<double> ms;
        try {
            ms = predict(factors);
        } catch (const InputError&) {
            // The search may try machines that are too slow to simulate.
            constexpr double hopeless = 1e3;
            return VectorXd::Constant(static_cast<Index>(rows_), hopeless);
        }
        VectorXd residuals(static_cast<Index>(rows_));
        Index row = 0;
        for (const ObservedSteps& steps : observed_) {
            for (const ObservedStep& step : steps.steps) {
                residuals[row] = ms[static_cast<std::size_t>(row)] / step.ms - 1;
                ++row;
            }
        }
        return residuals;
    }

  private:
    // The number of machines that a search tries is unknown: each 500 take a third of the way left.
    void tell_progress() const {
        constexpr double machines = 500;
        progress_(1 - std::pow(2.0 / 3, static_cast<double>(++looked_at_) / machines));
    }

    const std::vector<ObservedSteps>& observed_;
    const Progress& progress_;
    std::vector<StepInput> inputs_;
    std::vector<ObservedPlans> plans_;
    std::size_t rows_ = 0;
    mutable std::size_t looked_at_ = 0;
};

using Free = std::vector<Unknown>;  // those that are fitted; the others stay

// The unknowns are the factors of computing and latency, and the inverse of the bandwidth's. A step
// is piecewise linear in these (except for interference), so that each iteration within a piece is
// exact. Signs do not matter, which keeps factors above zero.
FittedFactors factors_of(const VectorXd& x, const Free& free) {
    constexpr double furthest = 12;  // e^12, far beyond any machine, yet no overflow
    FittedFactors factors{};
    for (std::size_t i = 0; i < free.size(); ++i) {
        const double logarithm =
            std::log(std::max(std::abs(x[static_cast<Index>(i)]), std::exp(-furthest)));
        factors[free[i]] =
            std::clamp(free[i] == bandwidth ? -logarithm : logarithm, -furthest, furthest);
    }
    return factors;
}

// The buckets that hold up others differ from place to place, and each such pattern may have a
// minimum of its own; hence the grid.
Minimum best_machine(const Simulator& simulator, const Free& free) {
    const std::vector<double> computing_axis{-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0};
    const std::vector<double> link_axis{-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0};
    const std::vector<double> interference_axis{-4.0, -1.0, 0.0, 1.0};
    std::vector<std::vector<double>> axes;
    for (const Unknown unknown : free) {
        axes.push_back(unknown == computing      ? computing_axis
                       : unknown == interference ? interference_axis
                                                 : link_axis);
    }
    Minimum minimum = find_minimum(
        [&](const VectorXd& x) { return simulator.residuals(factors_of(x, free)); }, axes);
    // In terms of the factors' logarithms; a bandwidth's falls as its unknown grows. Interference
    // may be none at all: its factor itself counts.
    for (std::size_t i = 0; i < free.size(); ++i) {
        if (free[i] == interference) {
            continue;
        }
        const auto column = static_cast<Index>(i);
        const double x = minimum.unknowns[column];
        minimum.jacobian.col(column) *= free[i] == bandwidth ? -x : x;
    }
    return minimum;
}

// By how much each standard error must grow to reach other minima that are nearly as good: one
// whose chi squared is larger by d lies within sqrt(d) standard errors, as it would in a single
// bowl.
VectorXd widened_for_other_minima(const Minimum& minimum, const MatrixXd& covariance,
                                  double sigma) {
    constexpr double as_good = 9;  // three standard errors
    VectorXd wider = VectorXd::Ones(minimum.unknowns.size());
    for (const LocalMinimum& other : minimum.others) {
        const double chi_squared =
            (other.squared_error - minimum.residuals.squaredNorm()) / (sigma * sigma);
        if (chi_squared > as_good) {
            continue;
        }
        for (Index i = 0; i < wider.size(); ++i) {
            const double away =
                std::abs(std::log(std::abs(other.unknowns[i] / minimum.unknowns[i])));
            const double needed = away / std::sqrt(std::max(chi_squared, 1.0));
            wider[i] = std::max(wider[i], needed / std::sqrt(covariance(i, i)));
        }
    }
    return wider;
}

// The covariance of the free parameters' logarithms: their roots are relative errors.
MatrixXd covariance_of(const Minimum& minimum) {
    const Index rows = minimum.residuals.size();
    const Index columns = minimum.unknowns.size();
    // Without degrees of freedom the steps' own error is taken for 1 %; no measurement is better
    // than a tenth of that.
    constexpr double usual_error = 0.01;
    constexpr double least_error = 0.001;
    const double sigma =
        rows > columns
            ? std::max(minimum.residuals.norm() / std::sqrt(static_cast<double>(rows - columns)),
                       least_error)
            : usual_error;
    const Eigen::JacobiSVD<MatrixXd> svd(minimum.jacobian, Eigen::ComputeFullV);
    const MatrixXd& v = svd.matrixV();
    MatrixXd covariance = MatrixXd::Zero(columns, columns);
    for (Index i = 0; i < columns; ++i) {
        const double singular = i < svd.singularValues().size() ? svd.singularValues()[i] : 0.0;
        const double width = sigma / std::max(singular, 1e-9);
        covariance += width * width * v.col(i) * v.col(i).transpose();
    }
    const VectorXd wider = widened_for_other_minima(minimum, covariance, sigma);
    return wider.asDiagonal() * covariance * wider.asDiagonal();
}

double value_of(const ObservedSteps& first, Unknown parameter) {
    const StepInput input = step_input(first.scenario);
    const LinkParameters& link = input.link;
    if (parameter == interference) {
        return static_cast<double>(link.interference.back().slowdown.compute_slowdown_ppm) * 1e-6;
    }
    if (parameter != computing) {
        const Segment& segment =
            link.segments.empty() ? link.tiers.at(1).segments.back() : link.segments.back();
        return parameter == bandwidth ? to_gb_per_s(segment.bandwidth) : to_us(segment.latency);
    }
    Duration time{0};
    const auto add = [&](const std::vector<TimedOperation>& pass) {
        for (const TimedOperation& operation : pass) {
            time += operation.order.is_beside() ? Duration{0} : operation.device;
        }
    };
    add(input.workload.backward);
    if (first.part == ObservedPart::step) {
        add(input.workload.forward);
    }
    return to_ms(time);
}

std::string name_of(Unknown parameter, ObservedPart part) {
    const char* time = part == ObservedPart::step ? "forward_and_backward_ms" : "backward_ms";
    return std::array{time, "bandwidth_gb_per_s", "latency_us", "compute_slowdown"}.at(parameter);
}

// The largest relative standard error of an identifiable parameter.
constexpr double identifiable = 0.5;

void check(const std::vector<ObservedSteps>& observed) {
    const ObservedSteps& first = observed.front();
    std::size_t rows = 0;
    for (const ObservedSteps& steps : observed) {
        rows += steps.steps.size();
        if (steps.scenario.link != first.scenario.link ||
            steps.scenario.group != first.scenario.group || steps.part != first.part) {
            throw InputError(
                steps.file, "",
                "steps of one machine: the same ranks, link and part of the step as " + first.file,
                "another");
        }
        if (!has_cap(steps.scenario.sync)) {
            throw InputError(steps.file, "", "a scenario whose strategy has a bucket cap",
                             std::string(bucketwise::name_of(steps.scenario.sync.strategy)));
        }
    }
    if (rows < 2) {
        throw InputError(first.file, "", "at least two caps and their times",
                         fmt::format("{}", rows));
    }
}

void set_link_errors(LinkParameters& link, const FittedFactors& relative_error,
                     double correlation) {
    for (LinkParameters& tier : link.tiers) {
        set_link_errors(tier, relative_error, correlation);
    }
    for_each_segment(link, [&](Segment& segment) {
        segment.errors = SegmentErrors{
            .latency_us = std::min(relative_error[latency] * to_us(segment.latency), 1e6),
            .bandwidth_gb_per_s =
                std::min(relative_error[bandwidth] * to_gb_per_s(segment.bandwidth), 1e6),
            .correlation = std::clamp(correlation, -1.0, 1.0)};
    });
}

// The parameters that the steps determine, at the best machine.
struct Identified {
    Free free;
    Minimum minimum;
    MatrixXd covariance;
};

// Adds a warning for each parameter that the steps do not determine.
Identified identify(const Simulator& simulator, const ObservedSteps& first,
                    std::vector<std::string>& warnings) {
    const LinkParameters link = step_input(first.scenario).link;
    Free free{computing};
    if (link.assumes_interference) {
        free.push_back(interference);
    }
    if (!link.topology) {
        free.push_back(bandwidth);
    }
    if (!link.topology && value_of(first, latency) > 0) {
        free.push_back(latency);
    }
    const auto give_up = [&](std::size_t index, std::string_view why) {
        const Unknown lost = free[index];
        warnings.push_back(
            fmt::format("{} is not identifiable from these times, {}; kept at the scenario's {:g}",
                        name_of(lost, first.part), why, value_of(first, lost)));
        free.erase(free.begin() + static_cast<std::ptrdiff_t>(index));
    };
    while (free.size() > simulator.rows()) {
        give_up(free.size() - 1, "as they are too few");
    }
    Minimum minimum = best_machine(simulator, free);
    MatrixXd covariance = covariance_of(minimum);
    while (free.size() > 1) {
        Index worst = 0;
        if (std::sqrt(covariance.diagonal().maxCoeff(&worst)) <= identifiable) {
            break;
        }
        give_up(static_cast<std::size_t>(worst),
                "as they hardly depend on it, or only as on the others");
        minimum = best_machine(simulator, free);
        covariance = covariance_of(minimum);
    }
    return {free, std::move(minimum), std::move(covariance)};
}

void add_caveats(InverseFit& fit) {
    fit.link.caveats.clear();  // the old link's
    if (const auto off = residual_caveat(fit.typical_error, "steps")) {
        fit.link.caveats.push_back(*off);
    }
    for (const std::string& warning : fit.warnings) {
        fit.link.caveats.push_back({.text = warning});
    }
}

// A number, or all of a list.
void scale_key(Json& object, const char* key, double factor) {
    if (object.contains(key)) {
        for (Json& value : object[key]) {
            value = factor * value.get<double>();
        }
    }
}

// One by one, as totals would lose the host's launch of each. Where the host is the device, an
// operation's time contains its launch.
Json times_us(const Workload& workload, const std::vector<TimedOperation>& pass, double factor) {
    return json_list(pass, [&](const TimedOperation& operation) {
        const Duration launch = workload.host_is_device ? operation.host : Duration{0};
        return factor * to_us(operation.device) + to_us(launch);
    });
}

}  // namespace

InverseFit fit_to_steps(const std::vector<ObservedSteps>& observed, const Progress& progress) {
    check(observed);
    const ObservedSteps& first = observed.front();
    const Simulator simulator(observed, progress);
    InverseFit fit;
    const auto& [free, minimum, covariance] = identify(simulator, first, fit.warnings);
    const FittedFactors factors = factors_of(minimum.unknowns, free);
    const bool has_freedom = simulator.rows() > free.size();
    FittedFactors relative_error{};
    std::array<Index, parameter_count> column{-1, -1, -1};
    for (std::size_t i = 0; i < free.size(); ++i) {
        const auto index = static_cast<Index>(i);
        column[free[i]] = index;
        relative_error[free[i]] = std::sqrt(covariance(index, index));
    }
    const LinkParameters assumed = step_input(first.scenario).link;
    for (const Unknown parameter : {computing, bandwidth, latency, interference}) {
        if (parameter == interference ? !assumed.assumes_interference
                                      : parameter != computing && assumed.topology) {
            continue;
        }
        FittedParameter& fitted = fit.parameters.emplace_back();
        fitted.name = name_of(parameter, first.part);
        fitted.start = value_of(first, parameter);
        const double none = parameter == interference ? 1 : 0;  // a slowdown of 1 costs nothing
        fitted.value = none + (fitted.start - none) * std::exp(factors[parameter]);
        fitted.is_fitted = column[parameter] >= 0;
        if (fitted.is_fitted && has_freedom) {
            fitted.standard_error =
                relative_error[parameter] * (none > 0 ? fitted.start - none : fitted.value);
        }
    }
    fit.computing_factor = std::exp(factors[computing]);
    fit.link = scaled_link(first.scenario.link, factors);
    if (column[interference] >= 0) {
        set_interference(assumed, std::exp(factors[interference]), relative_error[interference],
                         fit.link);
    }
    if (has_freedom) {
        const bool both = column[latency] >= 0 && column[bandwidth] >= 0;
        const double product = relative_error[latency] * relative_error[bandwidth];
        set_link_errors(
            fit.link, relative_error,
            both && product > 0 ? covariance(column[latency], column[bandwidth]) / product : 0);
    } else {
        fit.warnings.emplace_back(
            "as many parameters as times: every time is met, and the certainty of the "
            "parameters is unknown");
    }
    const std::vector<double> fitted_ms = simulator.predict(factors);
    auto ms = fitted_ms.begin();
    for (const ObservedSteps& steps : observed) {
        for (const ObservedStep& step : steps.steps) {
            fit.steps.push_back({steps.file, step, *ms++});
        }
    }
    fit.typical_error = minimum.residuals.norm() / std::sqrt(static_cast<double>(simulator.rows()));
    add_caveats(fit);
    return fit;
}

Json fitted_scenario(Json document, const Scenario& scenario, ObservedPart part,
                     const InverseFit& fit) {
    Json& workload = document["workload"];
    const double forward_factor = part == ObservedPart::step ? fit.computing_factor : 1;
    const bool from_device =
        !workload.contains("forward_ms") && !workload.contains("forward_operations_us");
    if (from_device) {
        const Workload timed = step_input(scenario).workload;
        workload["forward_operations_us"] = times_us(timed, timed.forward, forward_factor);
        workload["backward_operations_us"] = times_us(timed, timed.backward, fit.computing_factor);
    } else {
        scale_key(workload, "forward_ms", forward_factor);
        scale_key(workload, "forward_operations_us", forward_factor);
        scale_key(workload, "backward_ms", fit.computing_factor);
        scale_key(workload, "backward_operations_us", fit.computing_factor);
    }
    if (workload.contains("gradients")) {
        for (Json& gradient : workload["gradients"]) {
            scale_key(gradient, "ready_ms", fit.computing_factor);
            gradient["ready_ms"] =
                std::min(gradient["ready_ms"].get<double>(), workload["backward_ms"].get<double>());
        }
    }
    document["cluster"]["link"] = link_json(fit.link);
    return document;
}

std::string inverse_fit_report(const InverseFit& fit) {
    std::string text =
        fmt::format("fitted to {} times through the simulator\n\n", fit.steps.size());
    text += fmt::format("  {:<26} {:>14} {:>14}\n", "", "scenario", "fitted");
    for (const FittedParameter& parameter : fit.parameters) {
        text += fmt::format(
            "  {:<26} {:>14.4f} {:>14.4f}{}\n", parameter.name, parameter.start, parameter.value,
            !parameter.is_fitted       ? "  not identifiable"
            : parameter.standard_error ? fmt::format(" ± {:.4f}", *parameter.standard_error)
                                       : "");
    }
    text += fmt::format("\n  {:>14} {:>14} {:>14} {:>9}\n", "cap, MiB", "observed, ms",
                        "fitted, ms", "error");
    for (const FittedStep& step : fit.steps) {
        text += fmt::format(
            "  {:>14} {:>14.3f} {:>14.3f} {:>7.2f} %{}\n",
            step.observed.cap.named() ? fmt::format("{}", typed_mib(*step.observed.cap.named()))
                                      : "default",
            step.observed.ms, step.fitted_ms, 100 * (step.fitted_ms / step.observed.ms - 1),
            step.file == fit.steps.front().file ? "" : "  " + step.file);
    }
    text += fmt::format("\n  root mean square error {:.2f} %\n", 100 * fit.typical_error);
    for (const std::string& warning : fit.warnings) {
        text += fmt::format("  Note: {}.\n", warning);
    }
    return text;
}

}  // namespace bucketwise
