#include "calibrate/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/statistics.h"
#include "sim/error.h"
#include "sim/link_json.h"
#include "sim/strategy.h"

namespace bucketwise {
namespace {

constexpr std::array all_reduce_algorithms{Algorithm::ring, Algorithm::direct,
                                           Algorithm::recursive_halving_doubling,
                                           Algorithm::double_binary_tree};

Algorithm algorithm_of(const MeasuredRun& run) {
    for (const Algorithm algorithm : all_reduce_algorithms) {
        if (run.transport.algorithm == name_of(algorithm)) {
            return algorithm;
        }
    }
    throw InputError(run.file, "", "all-reduces by an algorithm whose cost is known (ring, ...)",
                     "\"" + run.transport.algorithm + "\"");
}

// All but the number of ranks.
void check_same_link(const MeasuredRun& first, const MeasuredRun& other) {
    const auto text = [](const MeasuredRun& run) {
        const EnvironmentRecord environment = run.environment.value_or(EnvironmentRecord{});
        return fmt::format(
            "{} {} ({}) of {}, link rate {}, {}", run.transport.backend, run.transport.algorithm,
            run.transport.implementation, run.dtype ? name_of(*run.dtype) : "nothing",
            environment.link_rate.empty() ? "as it is" : environment.link_rate,
            environment.machine.cpu.empty() ? "unknown machine" : environment.machine.cpu);
    };
    if (text(first) != text(other)) {
        throw InputError(other.file, "",
                         fmt::format("measurements of the link of {}: {}", first.file, text(first)),
                         text(other));
    }
}

LinkPoint point_of(const AllReduceSamples& samples) {
    // Samples of a round are alike, so rounds count where there are several.
    const std::vector<double>& independent =
        samples.round_medians_us.size() > 1 ? samples.round_medians_us : samples.samples_us;
    return {.ranks = samples.ranks,
            .size = samples.size,
            .median_us = median(samples.samples_us),
            .standard_error_us = standard_error_of_median(independent),
            .samples = static_cast<std::int64_t>(samples.samples_us.size())};
}

// Samples that lie far above their median, which is what others waited for.
std::string outlier_note(const std::vector<AllReduceSamples>& all_reduces) {
    constexpr double far = 1.5;
    constexpr double deviations = 5;
    std::size_t outliers = 0;
    std::size_t samples = 0;
    double longest = 0;
    for (const AllReduceSamples& s : all_reduces) {
        const double middle = median(s.samples_us);
        const double limit =
            std::max(far * middle, middle + deviations * robust_deviation(s.samples_us));
        for (const double sample : s.samples_us) {
            ++samples;
            outliers += sample > limit ? 1U : 0U;
            longest = sample > limit ? std::max(longest, sample / middle) : longest;
        }
    }
    return outliers == 0 ? ""
                         : fmt::format(
                               "{} of {} all-reduce samples took more than {:g} times their "
                               "median, up to {:.0f} times; medians leave them out",
                               outliers, samples, far, longest);
}

Provenance provenance_of(const std::vector<MeasuredRun>& runs,
                         const std::vector<AllReduceSamples>& all_reduces) {
    Provenance from;
    from.backend = runs.front().transport.backend;
    std::int64_t samples = 0;
    std::string files;
    for (const MeasuredRun& run : runs) {
        files += (files.empty() ? "" : ", ") + run.file;
    }
    from.smallest_message = all_reduces.front().size;
    from.largest_message = all_reduces.front().size;
    std::int64_t most_ranks = 0;
    for (const AllReduceSamples& s : all_reduces) {
        samples += static_cast<std::int64_t>(s.samples_us.size());
        from.smallest_message = std::min(*from.smallest_message, s.size);
        from.largest_message = std::max(*from.largest_message, s.size);
        most_ranks = std::max(most_ranks, s.ranks);
    }
    from.ranks = most_ranks;
    from.samples = samples;
    from.source = "bucketwise calibrate " + files;
    if (const auto& environment = runs.front().environment) {
        from.hardware = fmt::format(
            "{}, {} cores, {} host{}{}", environment->machine.cpu, environment->machine.cores,
            environment->hosts, environment->hosts == 1 ? "" : "s",
            environment->link_rate.empty() ? "" : ", links of " + environment->link_rate);
        from.versions = environment->libraries + ", " + environment->machine.kernel;
        from.date = environment->date.substr(0, 10);
    }
    return from;
}

std::string link_name(const MeasuredRun& run) {
    const std::string rate = run.environment ? run.environment->link_rate : "";
    return fmt::format(
        "{} {}, measured", run.transport.backend,
        rate.empty() ? (run.environment && run.environment->hosts == 1 ? std::string("on loopback")
                                                                       : std::string("as it is"))
                     : "at " + rate);
}

}  // namespace

Calibration calibrate(const std::vector<MeasuredRun>& runs,
                      const std::optional<Scenario>& scenario) {
    const MeasuredRun& first = runs.front();
    Calibration result;
    for (const MeasuredRun& run : runs) {
        check_same_link(first, run);
        result.warnings.insert(result.warnings.end(), run.warnings.begin(), run.warnings.end());
    }
    result.all_reduces = all_reduce_samples(runs);
    std::vector<LinkPoint> points;
    for (const AllReduceSamples& samples : result.all_reduces) {
        if (samples.ranks > 1) {
            points.push_back(point_of(samples));
        }
    }
    if (points.empty() && !result.all_reduces.empty()) {
        throw InputError(first.file, "", "all-reduces on more than one rank", "one rank's");
    }
    result.link_fit = fit_link(algorithm_of(first), points, first.file);
    result.interference = fit_interference(first.contentions);
    if (scenario) {
        result.compute = fit_compute(first, *scenario);
    }
    if (result.compute) {
        result.device = fit_device(*scenario, *result.compute);
    }

    LinkParameters& link = result.link;
    link.name = link_name(first);
    link.algorithm = algorithm_of(first);
    link.segments = result.link_fit.segments;
    link.launch = result.link_fit.launch;
    link.interference = result.interference.segments;
    link.copy_bandwidth = result.compute ? result.compute->copy_bandwidth : std::nullopt;
    link.provenance = provenance_of(runs, result.all_reduces);

    const auto warn = [&](const std::vector<std::string>& warnings) {
        result.warnings.insert(result.warnings.end(), warnings.begin(), warnings.end());
    };
    warn(result.link_fit.warnings);
    if (result.compute) {
        warn(result.compute->warnings);
    }
    if (const std::string note = outlier_note(result.all_reduces); !note.empty()) {
        result.warnings.push_back(note);
    }
    if (first.contentions.empty()) {
        result.warnings.emplace_back(
            "no contention was measured: computing and communicating are taken not to slow each "
            "other");
    }
    return result;
}

// --- the calibrated scenario ---

namespace {

// As the measurement has it: a nanosecond.
double rounded_us(Duration time) {
    return std::round(1e3 * to_us(time)) / 1e3;
}

Json times_us(const std::vector<Duration>& times) {
    Json json = Json::array();
    for (const Duration time : times) {
        json.push_back(rounded_us(time));
    }
    return json;
}

double rounded_ms(Duration time) {
    return std::round(1e6 * to_ms(time)) / 1e6;
}

Json device_json(const Device& device) {
    Json peaks = Json::object();
    for (const Arithmetic arithmetic : all_arithmetics) {
        if (device.peak(arithmetic) > 0) {
            peaks[std::string(name_of(arithmetic))] = device.peak(arithmetic);
        }
    }
    return {{"name", device.name},
            {"peak_tflop_per_s", std::move(peaks)},
            {"memory_bandwidth_gb_per_s", static_cast<double>(device.memory_bandwidth.count) / 1e9},
            {"launch_us", to_us(device.launch)},
            {"host_is_device", device.host_is_device}};
}

}  // namespace

Json with_measured_computing(Json document, const ComputeFit& compute) {
    Json& workload = document["workload"];
    if (workload.contains("gradients")) {
        workload["forward_ms"] = rounded_ms(compute.forward);
        workload["backward_ms"] = rounded_ms(compute.backward);
        std::size_t i = 0;
        for (Json& gradient : workload["gradients"]) {
            gradient["ready_ms"] =
                std::min(rounded_ms(compute.ready.at(i++)), rounded_ms(compute.backward));
        }
    } else {
        workload.erase("forward_ms");
        workload.erase("backward_ms");
        workload["forward_operations_us"] = times_us(compute.forward_operations);
        workload["backward_operations_us"] = times_us(compute.backward_operations);
    }
    Json& step = document["step"];
    step = step.is_null() ? Json::object() : step;
    step.erase("optimizer");
    step["optimizer_ms"] = rounded_ms(compute.optimizer);
    const Variation& variation = compute.variation;
    document["variation"] = {{"seed", variation.seed},
                             {"compute_spread", variation.compute_spread},
                             {"operation_spread", variation.operation_spread},
                             {"collective_spread", variation.collective_spread},
                             {"compute_standard_error", variation.compute_standard_error}};
    return document;
}

Json calibrated_scenario(Json document, const Calibration& calibration) {
    document = with_measured_computing(std::move(document), calibration.compute.value());
    document["cluster"]["link"] = link_json(calibration.link);
    if (calibration.device) {
        // Launching is in the measured times of operations and copies already; the ranks that
        // Gloo connects compute on CPUs.
        Device device = calibration.device->device;
        device.launch = Duration{0};
        device.host_is_device = true;
        document["workload"]["device"] = device_json(device);
    }
    return document;
}

// --- what is behind it ---

Json fit_json(const Calibration& calibration) {
    Json points = Json::array();
    for (std::size_t i = 0; i < calibration.link_fit.residuals.size(); ++i) {
        const LinkResidual& residual = calibration.link_fit.residuals[i];
        points.push_back({{"ranks", residual.point.ranks},
                          {"bytes", residual.point.size.count},
                          {"samples", residual.point.samples},
                          {"median_us", residual.point.median_us},
                          {"standard_error_us", residual.point.standard_error_us},
                          {"fitted_us", residual.fitted_us},
                          {"relative_residual", residual.relative()},
                          {"segment", residual.segment},
                          {"dropped", residual.dropped}});
    }
    Json slowdowns = Json::array();
    for (const InterferencePoint& point : calibration.interference.points) {
        slowdowns.push_back({{"bytes", point.size.count},
                             {"rounds", point.rounds},
                             {"compute_slowdown", point.compute_slowdown},
                             {"compute_standard_error", point.compute_error},
                             {"communication_slowdown", point.communication_slowdown},
                             {"communication_standard_error", point.communication_error}});
    }
    Json json{{"link", link_json(calibration.link)},
              {"all_reduce", std::move(points)},
              {"interference", std::move(slowdowns)},
              {"warnings", calibration.warnings}};
    if (calibration.device) {
        json["device"] = device_json(calibration.device->device);
        json["device"]["compute_standard_error"] = calibration.device->compute_error;
        json["device"]["memory_standard_error"] = calibration.device->memory_error;
        json["device"]["typical_residual"] = calibration.device->typical_residual;
    }
    return json;
}

}  // namespace bucketwise
