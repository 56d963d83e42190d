#include "calibrate/fit/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "sim/base/error.h"
#include "sim/base/statistics.h"
#include "sim/report/number_text.h"
#include "sim/text/passed_on.h"

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

// Runs may differ in their number of ranks, and, where their kinds differ, in the implementation.
void check_same_link(const MeasuredRun& first, const MeasuredRun& other) {
    const bool same_kind = std::ranges::any_of(every<CollectiveKind>, [&](CollectiveKind kind) {
        return first.has(kind) && other.has(kind);
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

// The points that a link is fitted to.
std::vector<LinkPoint> on_several_ranks(std::vector<LinkPoint> points) {
    std::erase_if(points, [](const LinkPoint& point) { return point.ranks == 1; });
    return points;
}

// Samples far above their median, which a step has to wait for.
std::vector<std::string> outlier_note(CollectiveKind kind, const std::vector<LinkPoint>& points) {
    constexpr double far = 1.5;
    constexpr double deviations = 5;
    std::size_t outliers = 0;
    std::size_t samples = 0;
    double longest = 0;
    for (const LinkPoint& point : points) {
        const double middle = point.median_us;
        const double limit =
            std::max(far * middle, middle + deviations * robust_deviation(point.samples_us));
        for (const double sample : point.samples_us) {
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

// `points`: those that the link was fitted to.
Provenance provenance_of(const std::vector<MeasuredRun>& runs,
                         const std::vector<LinkPoint>& points) {
    Provenance from;
    from.backend = runs.front().transport.backend;
    const auto [smallest, largest] = std::ranges::minmax_element(points, {}, &LinkPoint::size);
    from.smallest_message = smallest->size;
    from.largest_message = largest->size;
    from.ranks = std::ranges::max(points, {}, &LinkPoint::ranks).ranks;
    from.samples = 0;
    for (const LinkPoint& point : points) {
        *from.samples += point.samples;
    }
    from.source = fmt::format(
        "bucketwise calibrate {}",
        fmt::join(transformed(runs, [](const MeasuredRun& run) { return file_name(run.file); }),
                  ", "));
    if (const auto& environment = runs.front().environment) {
        // The most telling parts come first: a link file holds 200 characters.
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

// Without all-reduces, the contention of other kinds counts.
bool lacks_contention(const Calibration& calibration) {
    const bool others_have = std::ranges::any_of(
        calibration.own, [](const OwnFit& own) { return !own.interference.points.empty(); });
    return calibration.interference.points.empty() &&
           !(calibration.all_reduces.empty() && others_have);
}

// A simulation assumes the same where the link says nothing (sim/link/assumed_interference.h).
std::string no_contention_text(const MeasuredRun& run) {
    return fmt::format("no contention was measured: {}",
                       run.transport.backend == "nccl"
                           ? "how computing and communicating slow each other is assumed in "
                             "predictions, as for unmeasured GPUs"
                           : "computing and communicating are assumed not to slow each other");
}

std::string no_contention_warning(const MeasuredRun& run) {
    if (!run.computes.empty()) {
        return no_contention_text(run);
    }
    return fmt::format(
        "only {} were measured: the link is known, but not the cost of computing and copying, nor "
        "how computing and communicating slow each other, which is {}",
        run.has(CollectiveKind::all_gather) || run.has(CollectiveKind::reduce_scatter)
            ? "collectives"
            : "all-reduces",
        run.transport.backend == "nccl" ? "assumed in predictions" : "assumed to be not at all");
}

// The weaknesses of a fit to collectives of one kind; `of` begins sentences that do not name it.
void add_caveats(CollectiveKind kind, std::string_view of, const LinkFit& fit,
                 const std::vector<LinkPoint>& points, std::vector<Caveat>& caveats) {
    std::vector<double> off;
    for (const LinkResidual& residual : fit.residuals) {
        if (!residual.dropped) {
            off.push_back(std::abs(residual.relative()));
        }
    }
    if (const auto caveat =
            residual_caveat(median(std::move(off)), fmt::format("{}s", name_of(kind)))) {
        caveats.push_back(*caveat);
    }
    const auto fewest = std::ranges::min_element(points, {}, &LinkPoint::samples);
    if (fewest->samples == 1) {
        caveats.push_back({.text = fmt::format("{}of {} bytes and perhaps others there is a single "
                                               "sample, so their variation is unknown",
                                               of, fewest->size.count)});
    }
    for (const std::string& weakness : fit.weaknesses) {
        caveats.push_back({.text = fmt::format("{}{}", of, weakness)});
    }
}

constexpr std::string_view no_all_reduces =
    "no all-reduces were measured: they are taken to move their bytes as all-gathers and "
    "reduce-scatters do, in twice the steps";

// For the reader of a prediction with this link.
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
            add_caveats(own.kind, of, *own.link_fit, own.points, caveats);
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
        for (const CollectiveRecord& record : run.collectives) {
            append_all(samples, record.issue_us);
        }
    }
    return host_cost(samples);
}

LinkParameters link_of(const LinkFit& fit, Algorithm algorithm,
                       std::optional<std::int64_t> processors) {
    LinkParameters link;
    link.algorithm = algorithm;
    link.segments = fit.segments;
    link.launch = fit.launch;
    link.message = fit.message;
    link.processors = processors;
    return link;
}

// `alone`: fitted to collectives of the kind, or of others where none were measured.
InterferenceFit interference_of(CollectiveKind kind, const MeasuredRun& run, const LinkFit& alone,
                                std::optional<std::int64_t> processors) {
    std::vector<ContentionRecord> records;
    for (const ContentionRecord& record : run.contentions) {
        if (record.collective == kind) {
            records.push_back(record);
        }
    }
    TimeAlone alone_us;
    if (!alone.segments.empty() && run.transport.ranks > 1) {
        const RankGroup group{run.transport.ranks, run.transport.ranks};
        alone_us = [=, link = link_of(alone, algorithm_of(run), processors)](Bytes size) {
            return to_us(collective_time(kind, size, group, link));
        };
    }
    return fit_interference(records, run.transport.ctas, alone_us);
}

// Fitted to all-reduces, or, without any, to all other kinds together.
LinkFit fit_whole_link(const std::vector<MeasuredRun>& runs, Algorithm algorithm,
                       std::optional<std::int64_t> processors) {
    std::vector<LinkPoint> points = link_points(CollectiveKind::all_reduce, runs);
    const bool reduces = !points.empty();
    if (!reduces) {
        for (const CollectiveKind kind : own_kinds) {
            append_all(points, link_points(kind, runs));
        }
    }
    const bool measured = !points.empty();
    points = on_several_ranks(std::move(points));
    const std::string& file = runs.front().file;
    if (measured && points.empty()) {
        throw InputError(
            file, "",
            fmt::format("{} on more than one rank", reduces ? "all-reduces" : "collectives"),
            "one rank's");
    }
    return fit_link(algorithm, std::move(points), file, processors);
}

// With one number of ranks, launching a collective is part of its latency, here and for the link.
std::vector<OwnFit> fit_own(const std::vector<MeasuredRun>& runs, Algorithm algorithm,
                            std::optional<std::int64_t> processors, const LinkFit& whole) {
    std::vector<OwnFit> fits;
    for (const CollectiveKind kind : own_kinds) {
        OwnFit fit{
            .kind = kind, .link_fit = {}, .interference = {}, .points = link_points(kind, runs)};
        if (const auto points = on_several_ranks(fit.points); !points.empty()) {
            fit.link_fit =
                fit_link(algorithm, points, runs.front().file, processors, whole.message);
        }
        fit.interference =
            interference_of(kind, runs.front(), fit.link_fit ? *fit.link_fit : whole, processors);
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
        // A link has interference of its own only beside segments of its own.
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
        append_all(warnings, outlier_note(fit.kind, fit.points));
    }
    return warnings;
}

// Fits the computing of the first run, and the device behind it.
void fit_computing(const MeasuredRun& run, const Scenario& scenario, Calibration& result) {
    result.compute = fit_compute(run, scenario);
    if (!result.compute) {
        return;
    }
    const ComputeFit& compute = *result.compute;
    result.device = fit_device(scenario, compute);
    if (!result.device) {
        if (compute.launch && device_of(scenario) == nullptr) {
            result.warnings.emplace_back(
                "the scenario has no device, and none could be fitted: the launch cost is not in "
                "the calibrated scenario");
        }
        return;
    }
    Device& device = result.device->device;
    if (compute.launch) {
        // The regression's launch is then the least time of an operation on the device.
        device.launch = compute.launch->time;
        device.host_is_device = false;
    }
    if (compute.graph_launch) {
        device.graph_launch = compute.graph_launch->time;
    }
}

LinkParameters fitted_link(const std::vector<MeasuredRun>& runs, const Calibration& result,
                           std::optional<std::int64_t> processors) {
    const MeasuredRun& first = runs.front();
    LinkParameters link = link_of(result.link_fit, algorithm_of(first), processors);
    link.name = link_name(first);
    link.host_issue = result.host_issue ? result.host_issue->time : Duration{0};
    link.interference = result.interference.segments;
    link.ctas = result.interference.ctas;
    set_own_numbers(result.own, link);
    link.copy_bandwidth = result.compute ? result.compute->copy_bandwidth : std::nullopt;
    std::vector<LinkPoint> points = result.all_reduces;
    if (points.empty()) {
        for (const OwnFit& own : result.own) {
            append_all(points, own.points);
        }
    }
    link.provenance = provenance_of(runs, points);
    link.caveats = link_caveats(result, first);
    return link;
}

}  // namespace

Calibration calibrate(const std::vector<MeasuredRun>& runs, const std::optional<Scenario>& scenario,
                      std::optional<std::int64_t> processors) {
    const MeasuredRun& first = runs.front();
    Calibration result;
    const auto warn = [&](const std::vector<std::string>& warnings) {
        append_all(result.warnings, warnings);
    };
    for (auto run = runs.begin(); run != runs.end(); ++run) {
        std::for_each(runs.begin(), run, [&](const auto& other) { check_same_link(other, *run); });
        warn(run->warnings);
    }
    result.all_reduces = link_points(CollectiveKind::all_reduce, runs);
    result.link_fit = fit_whole_link(runs, algorithm_of(first), processors);
    result.own = fit_own(runs, algorithm_of(first), processors, result.link_fit);
    result.interference =
        interference_of(CollectiveKind::all_reduce, first, result.link_fit, processors);
    result.host_issue = host_issue(runs);
    result.shared_gpu = first.transport.shared_gpu;
    if (scenario) {
        fit_computing(first, *scenario, result);
    }
    result.link = fitted_link(runs, result, processors);
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
    return result;
}

}  // namespace bucketwise
