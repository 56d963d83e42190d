#include "calibrate/fit/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/base/json_output.h"
#include "sim/base/statistics.h"
#include "sim/report/number_text.h"
#include "sim/scenario/sharding_input.h"
#include "sim/text/passed_on.h"
#include "sim/workload/device_input.h"

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
    throw InputError(run.file, "", "collectives by an algorithm whose cost is known (ring, ...)",
                     "\"" + run.transport.algorithm + "\"");
}

void append_all(auto& to, const auto& more) {
    to.insert(to.end(), more.begin(), more.end());
}

constexpr std::array own_kinds{CollectiveKind::all_gather, CollectiveKind::reduce_scatter};

bool has_kind(CollectiveKind kind, const MeasuredRun& run) {
    return kind == CollectiveKind::all_reduce
               ? !run.all_reduces.empty()
               : std::ranges::find(run.collectives, kind, &CollectiveRecord::kind) !=
                     run.collectives.end();
}

// All but the number of ranks, and, of different kinds, who carries them out.
void check_same_link(const MeasuredRun& first, const MeasuredRun& other) {
    const bool same_kind = std::ranges::any_of(every<CollectiveKind>, [&](CollectiveKind kind) {
        return has_kind(kind, first) && has_kind(kind, other);
    });
    const bool both_sum = first.dtype && other.dtype;
    const auto text = [&](const MeasuredRun& run) {
        const EnvironmentRecord environment = run.environment.value_or(EnvironmentRecord{});
        return fmt::format(
            "{} {}{}{}{}{}, link rate {}, {}{}", run.transport.backend, run.transport.algorithm,
            same_kind ? fmt::format(" ({})", run.transport.implementation) : "",
            both_sum ? fmt::format(" of {}", name_of(*run.dtype)) : "",
            run.transport.shared_gpu ? " on a shared GPU" : "",
            run.transport.ctas ? fmt::format(", {} CTAs at most", *run.transport.ctas) : "",
            environment.link_rate.empty() ? "as it is" : environment.link_rate,
            environment.machine.cpu.empty() ? "unknown machine" : environment.machine.cpu,
            environment.gpu.empty() ? "" : ", " + environment.gpu);
    };
    if (text(first) != text(other)) {
        throw InputError(other.file, "",
                         fmt::format("measurements of the link of {}: {}", first.file, text(first)),
                         text(other));
    }
}

LinkPoint point_of(CollectiveKind kind, const AllReduceSamples& samples) {
    // Samples of a round are alike, so rounds count where there are several.
    const std::vector<double>& independent =
        samples.round_medians_us.size() > 1 ? samples.round_medians_us : samples.samples_us;
    return {.ranks = samples.ranks,
            .size = samples.size,
            .median_us = median(samples.samples_us),
            .standard_error_us = standard_error_of_median(independent),
            .samples = static_cast<std::int64_t>(samples.samples_us.size()),
            .kind = kind};
}

std::vector<LinkPoint> points_of(CollectiveKind kind,
                                 const std::vector<AllReduceSamples>& samples) {
    std::vector<LinkPoint> points;
    for (const AllReduceSamples& one : samples) {
        if (one.ranks > 1) {
            points.push_back(point_of(kind, one));
        }
    }
    return points;
}

// Samples that lie far above their median, which is what others waited for.
std::vector<std::string> outlier_note(CollectiveKind kind,
                                      const std::vector<AllReduceSamples>& all_reduces) {
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
    if (outliers == 0) {
        return {};
    }
    return {fmt::format(
        "{} of {} {} samples took more than {:g} times their median, up to {:.0f} times; "
        "medians leave them out",
        outliers, samples, name_of(kind), far, longest)};
}

// `samples`: what the link was fitted to.
Provenance provenance_of(const std::vector<MeasuredRun>& runs,
                         const std::vector<AllReduceSamples>& samples) {
    Provenance from;
    from.backend = runs.front().transport.backend;
    const auto [smallest, largest] =
        std::ranges::minmax_element(samples, {}, &AllReduceSamples::size);
    from.smallest_message = smallest->size;
    from.largest_message = largest->size;
    from.ranks = std::ranges::max(samples, {}, &AllReduceSamples::ranks).ranks;
    from.samples = 0;
    for (const AllReduceSamples& s : samples) {
        *from.samples += std::ssize(s.samples_us);
    }
    from.source = fmt::format(
        "bucketwise calibrate {}",
        fmt::join(transformed(runs, [](const MeasuredRun& run) { return file_name(run.file); }),
                  ", "));
    if (const auto& environment = runs.front().environment) {
        // What tells most comes first: a link file holds 200 characters of it.
        from.hardware = fmt::format(
            "{}{}{}, {} cores, {} host{}{}", environment->gpu, environment->gpu.empty() ? "" : "; ",
            environment->machine.cpu, environment->machine.cores, environment->hosts,
            environment->hosts == 1 ? "" : "s",
            environment->link_rate.empty() ? "" : ", links of " + environment->link_rate);
        from.versions = environment->libraries + ", " + environment->machine.kernel;
        from.date = environment->date.substr(0, 10);
    }
    return from;
}

std::string link_name(const MeasuredRun& run) {
    if (run.transport.shared_gpu) {
        return run.transport.backend + " measured, shared GPU, not an interconnect";
    }
    const std::string rate = run.environment ? run.environment->link_rate : "";
    const bool one_host = run.environment && run.environment->hosts == 1;
    const bool several_hosts = run.environment && run.environment->hosts > 1;
    const std::string where = !rate.empty()                     ? " at " + rate
                              : several_hosts                   ? " between hosts"
                              : !one_host                       ? ""
                              : run.transport.backend == "gloo" ? " on loopback"
                                                                : " within one host";
    return fmt::format("{}{}, measured", run.transport.backend, where);
}

// Without all-reduces it is that of others that counts.
bool lacks_contention(const Calibration& calibration) {
    const bool others_have = std::ranges::any_of(
        calibration.own, [](const OwnFit& own) { return !own.interference.points.empty(); });
    return calibration.interference.points.empty() &&
           !(calibration.all_reduces.empty() && others_have);
}

// As a simulation does of a link that says nothing (sim/link/assumed_interference.h).
std::string no_contention_text(const MeasuredRun& run) {
    return fmt::format("no contention was measured: {}",
                       run.transport.backend == "nccl"
                           ? "how computing and communicating slow each other is assumed in "
                             "predictions, as of GPUs that nobody measured"
                           : "computing and communicating are taken not to slow each other");
}

std::string no_contention_warning(const MeasuredRun& run) {
    if (!run.computes.empty()) {
        return no_contention_text(run);
    }
    return fmt::format(
        "only {} were measured: the link is known, but not what computing and copying "
        "take, nor how computing and communicating slow each other, which is {}",
        run.collectives.empty() ? "all-reduces" : "collectives",
        run.transport.backend == "nccl" ? "assumed in predictions" : "taken as not at all");
}

// How far the fit is typically off the all-reduces that it follows, as a share.
double typical_residual(const LinkFit& fit) {
    std::vector<double> off;
    for (const LinkResidual& residual : fit.residuals) {
        if (!residual.dropped) {
            off.push_back(std::abs(residual.relative()));
        }
    }
    return median(std::move(off));
}

// What is weak in a fit to collectives of one kind; `of` begins sentences that do not name it.
void add_caveats(CollectiveKind kind, std::string_view of, const LinkFit& fit,
                 const std::vector<AllReduceSamples>& samples, std::vector<Caveat>& caveats) {
    if (const auto off =
            residual_caveat(typical_residual(fit), fmt::format("{}s", name_of(kind)))) {
        caveats.push_back(*off);
    }
    const auto fewest =
        std::ranges::min_element(samples, {}, [](const auto& s) { return s.samples_us.size(); });
    if (fewest->samples_us.size() == 1) {
        caveats.push_back({.text = fmt::format("{}of {} bytes and perhaps others there is a single "
                                               "sample, which tells nothing of how they vary",
                                               of, fewest->size.count)});
    }
    for (const std::string& weakness : fit.weaknesses) {
        caveats.push_back({.text = fmt::format("{}{}", of, weakness)});
    }
}

constexpr std::string_view no_all_reduces =
    "no all-reduces were measured: they are taken to move their bytes as all-gathers and "
    "reduce-scatters do, in twice the steps";

// What of it whoever predicts with the link has to know.
std::vector<Caveat> link_caveats(const Calibration& calibration, const MeasuredRun& first) {
    std::vector<Caveat> caveats;
    if (calibration.shared_gpu) {
        caveats.push_back({.text = std::string(shared_gpu_warning), .withholds = true});
    }
    if (calibration.all_reduces.empty()) {
        caveats.push_back({.text = std::string(no_all_reduces)});
    } else {
        add_caveats(CollectiveKind::all_reduce, "", calibration.link_fit, calibration.all_reduces,
                    caveats);
    }
    for (const std::string& warning : calibration.interference.warnings) {
        caveats.push_back({.text = warning});
    }
    for (const OwnFit& own : calibration.own) {
        const std::string of = fmt::format("{}s: ", name_of(own.kind));
        if (own.link_fit) {
            add_caveats(own.kind, of, *own.link_fit, own.samples, caveats);
        }
        for (const std::string& warning : own.interference.warnings) {
            caveats.push_back({.text = of + warning});
        }
    }
    if (lacks_contention(calibration)) {
        caveats.push_back({.text = no_contention_text(first)});
    }
    return caveats;
}

std::optional<HostCost> host_issue(const std::vector<MeasuredRun>& runs) {
    std::vector<double> samples;
    for (const MeasuredRun& run : runs) {
        for (const AllReduceRecord& record : run.all_reduces) {
            append_all(samples, record.issue_us);
        }
        for (const CollectiveRecord& record : run.collectives) {
            append_all(samples, record.measured.issue_us);
        }
    }
    return host_cost(samples);
}

InterferenceFit interference_of(CollectiveKind kind, const MeasuredRun& run) {
    std::vector<ContentionRecord> records;
    for (const ContentionRecord& record : run.contentions) {
        if (record.collective == kind) {
            records.push_back(record);
        }
    }
    return fit_interference(records, run.transport.ctas);
}

// One for all, if no all-reduce was measured.
LinkFit fit_whole_link(const std::vector<MeasuredRun>& runs, Algorithm algorithm,
                       std::optional<std::int64_t> processors) {
    std::vector<LinkPoint> points = points_of(CollectiveKind::all_reduce, all_reduce_samples(runs));
    const std::string& file = runs.front().file;
    const auto has_isolated = [](const MeasuredRun& run) {
        return !run.all_reduces.empty() || !run.collectives.empty();
    };
    const bool reduces = std::ranges::any_of(
        runs, [](const MeasuredRun& run) { return has_kind(CollectiveKind::all_reduce, run); });
    if (!reduces) {
        for (const CollectiveKind kind : own_kinds) {
            append_all(points, points_of(kind, samples_of(kind, runs)));
        }
    }
    if (points.empty() && std::ranges::any_of(runs, has_isolated)) {
        throw InputError(
            file, "",
            fmt::format("{} on more than one rank", reduces ? "all-reduces" : "collectives"),
            "one rank's");
    }
    return fit_link(algorithm, std::move(points), file, processors);
}

// Where launching a collective and its latency cannot be told apart, as with one number of ranks,
// all is latency, as it is of the link.
std::vector<OwnFit> fit_own(const std::vector<MeasuredRun>& runs, Algorithm algorithm,
                            std::optional<std::int64_t> processors, Duration message) {
    std::vector<OwnFit> fits;
    for (const CollectiveKind kind : own_kinds) {
        OwnFit fit{.kind = kind,
                   .link_fit = {},
                   .interference = interference_of(kind, runs.front()),
                   .samples = samples_of(kind, runs)};
        const std::vector<LinkPoint> points = points_of(kind, fit.samples);
        if (!points.empty()) {
            fit.link_fit = fit_link(algorithm, points, runs.front().file, processors, message);
        }
        if (fit.link_fit || !fit.interference.points.empty()) {
            fits.push_back(std::move(fit));
        }
    }
    return fits;
}

void set_own_numbers(const std::vector<OwnFit>& fits, LinkParameters& link) {
    for (const OwnFit& fit : fits) {
        OwnNumbers& own =
            fit.kind == CollectiveKind::all_gather ? link.all_gather : link.reduce_scatter;
        // What they disturb needs what they cost beside it.
        own.segments = fit.link_fit ? fit.link_fit->segments : link.segments;
        own.launch = fit.link_fit ? fit.link_fit->launch : link.launch;
        own.interference = fit.interference.segments;
        link.ctas = fit.interference.ctas ? fit.interference.ctas : link.ctas;
    }
}

std::vector<std::string> own_warnings(const std::vector<OwnFit>& fits) {
    std::vector<std::string> warnings;
    const auto add = [&](CollectiveKind kind, const std::vector<std::string>& more) {
        for (const std::string& warning : more) {
            warnings.push_back(fmt::format("{}s: {}", name_of(kind), warning));
        }
    };
    for (const OwnFit& fit : fits) {
        if (fit.link_fit) {
            add(fit.kind, fit.link_fit->warnings);
        }
        add(fit.kind, fit.interference.warnings);
        append_all(warnings, outlier_note(fit.kind, fit.samples));
    }
    return warnings;
}

// What the link was fitted to.
std::vector<AllReduceSamples> samples_behind(const Calibration& calibration) {
    std::vector<AllReduceSamples> samples = calibration.all_reduces;
    if (samples.empty()) {
        for (const OwnFit& own : calibration.own) {
            append_all(samples, own.samples);
        }
    }
    return samples;
}

}  // namespace

Calibration calibrate(const std::vector<MeasuredRun>& runs, const std::optional<Scenario>& scenario,
                      std::optional<std::int64_t> processors) {
    const MeasuredRun& first = runs.front();
    Calibration result;
    const auto warn = [&](const std::vector<std::string>& warnings) {
        result.warnings.insert(result.warnings.end(), warnings.begin(), warnings.end());
    };
    for (auto run = runs.begin(); run != runs.end(); ++run) {
        std::for_each(runs.begin(), run, [&](const auto& other) { check_same_link(other, *run); });
        warn(run->warnings);
    }
    result.all_reduces = all_reduce_samples(runs);
    result.link_fit = fit_whole_link(runs, algorithm_of(first), processors);
    result.own = fit_own(runs, algorithm_of(first), processors, result.link_fit.message);
    result.interference = interference_of(CollectiveKind::all_reduce, first);
    result.host_issue = host_issue(runs);
    result.shared_gpu = first.transport.shared_gpu;
    if (scenario) {
        result.compute = fit_compute(first, *scenario);
    }
    if (result.compute) {
        result.device = fit_device(*scenario, *result.compute);
    }
    if (result.device && result.compute->launch) {
        // What the regression calls launching is then what an operation takes on the device
        // however little it does.
        Device& device = result.device->device;
        device.launch = result.compute->launch->time;
        device.host_is_device = false;
    }
    if (!result.device && result.compute && result.compute->launch &&
        device_of(*scenario) == nullptr) {
        result.warnings.emplace_back(
            "the scenario has no device, and none could be fitted: what launching takes is not in "
            "the calibrated scenario");
    }
    if (result.device && result.compute->graph_launch) {
        result.device->device.graph_launch = result.compute->graph_launch->time;
    }

    LinkParameters& link = result.link;
    link.name = link_name(first);
    link.algorithm = algorithm_of(first);
    link.segments = result.link_fit.segments;
    link.launch = result.link_fit.launch;
    link.message = result.link_fit.message;
    link.processors = processors;
    link.host_issue = result.host_issue ? result.host_issue->time : Duration{0};
    link.interference = result.interference.segments;
    link.ctas = result.interference.ctas;
    set_own_numbers(result.own, link);
    link.copy_bandwidth = result.compute ? result.compute->copy_bandwidth : std::nullopt;
    link.provenance = provenance_of(runs, samples_behind(result));

    if (result.shared_gpu) {
        result.warnings.insert(result.warnings.begin(), std::string(shared_gpu_warning));
    }
    warn(result.link_fit.warnings);
    warn(result.interference.warnings);
    if (result.all_reduces.empty()) {
        result.warnings.emplace_back(no_all_reduces);
    }
    warn(own_warnings(result.own));
    if (result.compute) {
        warn(result.compute->warnings);
    }
    warn(outlier_note(CollectiveKind::all_reduce, result.all_reduces));
    if (lacks_contention(result)) {
        result.warnings.push_back(no_contention_warning(first));
    }
    link.caveats = link_caveats(result, first);
    return result;
}

// --- the calibrated scenario ---

namespace {

// As the measurement has it: a nanosecond.
double rounded_us(Duration time) {
    return std::round(1e3 * to_us(time)) / 1e3;
}

double rounded_ms(Duration time) {
    return std::round(1e6 * to_ms(time)) / 1e6;
}

Json device_json(const Device& device) {
    Json peaks = Json::object();
    for (const Arithmetic arithmetic : every<Arithmetic>) {
        const double peak = device.peak(arithmetic);
        add_if(peak > 0, peaks, name_of(arithmetic), peak);
    }
    Json json{{"name", device.name},
              {"peak_tflop_per_s", std::move(peaks)},
              {"memory_bandwidth_gb_per_s", to_gb_per_s(device.memory_bandwidth)},
              {"launch_us", to_us(device.launch)},
              {"host_is_device", device.host_is_device}};
    add_optional(json, "copy_launch_us", device.copy_launch, to_us);
    add_optional(json, "memory_gib", device.memory,
                 [](Bytes memory) { return to_mib(memory) / 1024; });
    add_if(device.graph_launch > Duration{0}, json, "graph_launch_us", to_us(device.graph_launch));
    return json;
}

// What launching took, into the scenario's own device. Where none was measured it is in the
// operations' times, and must not be added to them once more.
void set_launches(Json& workload, const ComputeFit& compute) {
    if (!workload.contains("device")) {
        return;
    }
    Json& device = workload["device"];
    const Device before = read_device({&device, "scenario", "/workload/device"});
    const bool counted_twice =
        !compute.launch && !before.host_is_device && before.launch > Duration{0};
    if (!compute.launch && !counted_twice) {
        return;
    }
    if (device.is_string()) {
        device = Json{{"preset", device}};
    }
    device["host_is_device"] = !compute.launch;
    device["launch_us"] = compute.launch ? to_us(compute.launch->time) : 0.0;
    add_optional(device, "graph_launch_us", compute.graph_launch,
                 [](const auto& launch) { return to_us(launch.time); });
}

bool shards(const Json& document) {
    const auto sync = document.find("sync");
    return sync != document.end() && read_sharding({&*sync, "scenario", "/sync"});
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
        workload["forward_operations_us"] = json_list(compute.forward_operations, rounded_us);
        workload["backward_operations_us"] = json_list(compute.backward_operations, rounded_us);
    }
    set_launches(workload, compute);
    if (!compute.launch && workload.contains("gradients") && shards(document)) {
        workload["host_is_device"] = true;  // else collectives would not block what computes
    }
    Json& step = document["step"];
    step = step.is_null() ? Json::object() : step;
    step.erase("optimizer");
    step["optimizer_ms"] = rounded_ms(compute.optimizer);
    if (!compute.launch) {
        // A host that is the device launches nothing.
        step.erase("cuda_graph");
        step.erase("launch_queue");
    }
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
    constexpr std::size_t few_rounds = 3;
    if (calibration.compute->rounds < few_rounds) {
        add_caveat(document,
                   {.text = fmt::format(
                        "computing was measured in {} only",
                        counted(static_cast<long long>(calibration.compute->rounds), "round"))});
    }
    if (calibration.device) {
        Device device = calibration.device->device;
        if (!calibration.compute->launch) {
            // A CPU's: launching is in the measured times of operations and copies already.
            device.launch = device.graph_launch = Duration{0};
            device.host_is_device = true;
        }
        document["workload"]["device"] = device_json(device);
    }
    return document;
}

// --- what is behind it ---

Json fit_json(const Calibration& calibration) {
    const auto point_json = [](const LinkResidual& residual) {
        return Json{{"ranks", residual.point.ranks},
                    {"bytes", residual.point.size.count},
                    {"samples", residual.point.samples},
                    {"median_us", residual.point.median_us},
                    {"standard_error_us", residual.point.standard_error_us},
                    {"fitted_us", residual.fitted_us},
                    {"relative_residual", residual.relative()},
                    {"segment", residual.segment},
                    {"dropped", residual.dropped}};
    };
    const auto slowdown_json = [](const InterferencePoint& point) {
        Json json{{"bytes", point.size.count},
                  {"rounds", point.rounds},
                  {"communication_slowdown", point.communication.factor},
                  {"communication_standard_error", point.communication.error}};
        if (point.compute) {
            json["compute_slowdown"] = point.compute->factor;
            json["compute_standard_error"] = point.compute->error;
        }
        add_optional(json, "ctas", point.ctas);
        add_optional(json, "products_slowdown", point.apart.products);
        add_optional(json, "rest_slowdown", point.apart.rest);
        return json;
    };
    Json json{{"link", link_json(calibration.link)},
              {"all_reduce", json_list(calibration.link_fit.residuals, point_json)},
              {"interference", json_list(calibration.interference.points, slowdown_json)},
              {"warnings", calibration.warnings}};
    if (calibration.all_reduces.empty()) {
        json["all_reduce"] = Json::array();
    }
    for (const OwnFit& own : calibration.own) {
        const std::string key =
            own.kind == CollectiveKind::all_gather ? "all_gather" : "reduce_scatter";
        if (own.link_fit) {
            json[key] = json_list(own.link_fit->residuals, point_json);
        }
        for (const InterferencePoint& point : own.interference.points) {
            json["interference"].push_back(slowdown_json(point));
            json["interference"].back()["collective"] = name_of(own.kind);
        }
    }
    const auto cost_json = [](const HostCost& cost) {
        return Json{{"median_us", to_us(cost.time)}, {"interquartile_share", cost.spread}};
    };
    Json host = Json::object();
    add_optional(host, "issue", calibration.host_issue, cost_json);
    if (calibration.compute) {
        add_optional(host, "launch", calibration.compute->launch, cost_json);
        add_optional(host, "graph_launch", calibration.compute->graph_launch, cost_json);
    }
    add_unless_empty(json, "host", host);
    add_if(calibration.shared_gpu, json, "shared_gpu", true);
    if (calibration.device) {
        json["device"] = device_json(calibration.device->device);
        json["device"]["compute_standard_error"] = calibration.device->compute_error;
        json["device"]["memory_standard_error"] = calibration.device->memory_error;
        json["device"]["typical_residual"] = calibration.device->typical_residual;
    }
    return json;
}

}  // namespace bucketwise
