#include "calibrate/fit/device_fit.h"

#include <algorithm>
#include <cmath>
#include <variant>
#include <vector>

#include <Eigen/Core>

#include "calibrate/link/non_negative_least_squares.h"
#include "sim/base/dtype.h"
#include "sim/base/statistics.h"
#include "sim/workload/workload.h"

namespace bucketwise {
namespace {

using Eigen::Index;

struct TimedWork {
    double flops = 0;
    double bytes = 0;
    double seconds = 0;
};

void add_pass(const Model& model, const std::vector<TimedOperation>& pass,
              const std::vector<Duration>& times, Arithmetic arithmetic,
              std::vector<TimedWork>& works) {
    constexpr double shortest_s = 5e-6;  // all contain a clock's and a function call's own time
    for (std::size_t i = 0; i < pass.size(); ++i) {
        const double seconds = to_us(times[i]) * 1e-6;
        if (!pass[i].source || seconds < shortest_s) {
            continue;
        }
        const Work& work =
            work_of(model.operations[static_cast<std::size_t>(pass[i].source->operation)],
                    pass[i].source->pass);
        works.push_back({static_cast<double>(work.flops),
                         static_cast<double>(work.elements) *
                             static_cast<double>(element_size(arithmetic).count),
                         seconds});
    }
}

struct Rates {
    double seconds_per_flop = 0;
    double seconds_per_byte = 0;
    double launch_seconds = 0;
    double flop_error = 0;  // relative
    double byte_error = 0;
};

bool is_compute_bound(const TimedWork& work, const Rates& rates) {
    return work.flops * rates.seconds_per_flop >= work.bytes * rates.seconds_per_byte;
}

// Within the limits of scenario files; both roofs bind some operation.
bool is_possible(const Rates& rates) {
    constexpr double least = 1e-6;
    constexpr double most = 1e6;
    const double tflop_per_s = 1e-12 / rates.seconds_per_flop;
    const double gb_per_s = 1e-9 / rates.seconds_per_byte;
    constexpr double longest_launch_s = 1;
    return tflop_per_s >= least && tflop_per_s <= most && gb_per_s >= least && gb_per_s <= most &&
           rates.launch_seconds <= longest_launch_s;
}

double fitted_seconds(const TimedWork& work, const Rates& rates) {
    return rates.launch_seconds +
           std::max(work.flops * rates.seconds_per_flop, work.bytes * rates.seconds_per_byte);
}

// Relative residuals, so that every operation counts alike.
Rates regress(const std::vector<TimedWork>& works, const std::vector<char>& compute_bound) {
    const auto rows = static_cast<Index>(works.size());
    Eigen::MatrixXd a = Eigen::MatrixXd::Zero(rows, 3);
    const Eigen::VectorXd b = Eigen::VectorXd::Ones(rows);
    for (Index row = 0; row < rows; ++row) {
        const TimedWork& work = works[static_cast<std::size_t>(row)];
        const bool compute = compute_bound[static_cast<std::size_t>(row)] != 0;
        a(row, compute ? 0 : 1) = (compute ? work.flops : work.bytes) / work.seconds;
        a(row, 2) = 1 / work.seconds;
    }
    const NonNegativeSolution solution = solve_non_negative(a, b);
    const double freedom = std::max(static_cast<double>(rows - 3), 1.0);
    const auto relative = [&](Index i) {
        const double variance = solution.covariance(i, i) * solution.residual_sum / freedom;
        return solution.x[i] > 0 ? std::sqrt(std::max(variance, 0.0)) / solution.x[i] : 0;
    };
    return {solution.x[0], solution.x[1], solution.x[2], relative(0), relative(1)};
}

}  // namespace

std::optional<DeviceFit> fit_device(const Scenario& scenario, const ComputeFit& compute) {
    const auto* workload = std::get_if<ModelWorkload>(&scenario.workload);
    if (workload == nullptr) {
        return std::nullopt;
    }
    const Workload timed = step_input(scenario).workload;
    const Model model = model_of(*workload);
    std::vector<TimedWork> works;
    add_pass(model, timed.forward, compute.forward_operations, workload->arithmetic, works);
    add_pass(model, timed.backward, compute.backward_operations, workload->arithmetic, works);

    constexpr std::size_t fewest = 4;  // one more than unknowns
    if (works.size() < fewest) {
        return std::nullopt;
    }

    // To begin with: a hundred operations per byte, a common ratio of both rates.
    Rates rates{.seconds_per_flop = 1, .seconds_per_byte = 10};
    std::vector<char> bound;
    constexpr int most_rounds = 50;
    for (int round = 0; round < most_rounds; ++round) {
        const std::vector<char> next = transformed(works, [&](const TimedWork& work) {
            return static_cast<char>(is_compute_bound(work, rates));
        });
        if (next == bound) {
            break;
        }
        bound = next;
        rates = regress(works, bound);
    }
    DeviceFit fit;
    fit.compute_bound = static_cast<std::size_t>(std::count(bound.begin(), bound.end(), 1));
    fit.memory_bound = bound.size() - fit.compute_bound;
    if (!is_possible(rates)) {
        return std::nullopt;
    }
    if (workload->device) {
        fit.device = *workload->device;
    }
    fit.device.name = "fitted";
    fit.device.peak_tflop_per_s.fill(0);
    fit.device.peak_tflop_per_s[static_cast<std::size_t>(workload->arithmetic)] =
        1e-12 / rates.seconds_per_flop;
    fit.device.memory_bandwidth = {std::llround(1 / rates.seconds_per_byte)};
    fit.device.compute_efficiency = fit.device.memory_efficiency = 1;
    fit.device.launch = duration_from_us(1e6 * rates.launch_seconds);
    fit.compute_error = rates.flop_error;
    fit.memory_error = rates.byte_error;
    fit.typical_residual = median_of(works, [&](const TimedWork& work) {
        return std::abs(fitted_seconds(work, rates) / work.seconds - 1);
    });
    return fit;
}

}  // namespace bucketwise
