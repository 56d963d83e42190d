#include "import/replay/trace_link.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/link/link_fit.h"
#include "import/replay/scenario_document.h"
#include "import/replay/undisturbed.h"
#include "sim/base/error.h"
#include "sim/base/statistics.h"
#include "sim/link/collective.h"
#include "sim/link/link_input.h"

namespace bucketwise {
namespace {

// One number per size; without all ranks' traces it is as uncertain as waiting for them is.
std::vector<LinkPoint> link_points(const WireTimes& wire_us, std::int64_t ranks,
                                   CollectiveKind kind) {
    constexpr double uncertain = 0.1;
    std::vector<LinkPoint> points;
    for (const auto& [size, times] : wire_us) {
        const double median = times.empty() ? 0 : upper_median(times);
        if (median > 0) {
            points.push_back({.ranks = ranks,
                              .size = size,
                              .median_us = median,
                              .standard_error_us = uncertain * median,
                              .samples = static_cast<std::int64_t>(times.size()),
                              .kind = kind});
        }
    }
    return points;
}

// A single size tells a bandwidth.
Segment segment_through(const LinkPoint& point) {
    const WireCost cost = wire_cost(point.kind, Algorithm::ring, point.ranks);
    const double share =
        static_cast<double>(cost.wire.numerator) / static_cast<double>(cost.wire.denominator);
    const double bytes = share * static_cast<double>(point.size.count);
    Segment segment;
    segment.bandwidth =
        BytesPerSecond{std::max<std::int64_t>(std::llround(bytes / point.median_us * 1e6), 1)};
    return segment;
}

std::vector<Segment> segments_through(const std::vector<LinkPoint>& points, const std::string& file,
                                      const char* collectives, std::vector<Caveat>& caveats) {
    std::vector<Segment> segments;
    if (points.size() > 1) {
        LinkFit fit = fit_link(Algorithm::ring, points, file);
        segments = std::move(fit.segments);
        for (std::string& weakness : fit.weaknesses) {
            // Of collectives of the same sizes the same is said.
            Caveat caveat{.text = std::move(weakness)};
            if (std::ranges::find(caveats, caveat) == caveats.end()) {
                caveats.push_back(std::move(caveat));
            }
        }
    } else {
        segments = {segment_through(points.front())};
        caveats.push_back(
            {.text = fmt::format("its {} were all of {} bytes, which tell a bandwidth, but "
                                 "no latency: what others take is an extrapolation",
                                 collectives, points.front().size.count)});
    }
    // A few steps do not tell how sure they are.
    for (Segment& segment : segments) {
        segment.errors.reset();
    }
    return segments;
}

WireTimes wire_times(const TraceImport& imported) {
    WireTimes by_size;
    for (const TracedAllReduce& all_reduce : imported.all_reduces) {
        std::vector<double>& times = by_size[all_reduce.bytes];
        times.insert(times.end(), all_reduce.wire_us.begin(), all_reduce.wire_us.end());
    }
    return by_size;
}

// Of the largest all-reduce, as far as links have them.
std::optional<std::int64_t> thread_blocks(const TraceImport& imported) {
    const auto largest =
        std::ranges::max_element(imported.all_reduces, {}, &TracedAllReduce::bytes);
    return largest->blocks >= 1 && largest->blocks <= most_thread_blocks
               ? std::optional<std::int64_t>(largest->blocks)
               : std::nullopt;
}

// What all-reduces cost computing. Empty: what is assumed on GPUs.
struct OverlapCost {
    std::vector<InterferenceSegment> interference = {};
    bool is_assumed = false;  // and not measured
};

LinkParameters fitted_link(const TraceImport& imported, const OverlapCost& cost) {
    const TracedRank& rank = imported.run->rank();
    const char* const collectives = imported.sharding ? "collectives" : "all-reduces";
    std::optional<LinkParameters> link =
        imported.sharding ? sharded_link_through(*imported.sharding, rank.file)
                          : link_through(wire_times(imported), imported.ranks, rank.file);
    if (!link) {
        throw InputError(
            rank.file, "/traceEvents",
            fmt::format("{} on a communication stream, or a link (--link)", collectives),
            "neither");
    }
    if (cost.interference.empty()) {
        link->ctas = thread_blocks(imported);  // by which it is assumed
    }
    link->interference = cost.interference;
    link->provenance.backend = rank.backend.empty() && rank.has_device ? "nccl" : rank.backend;
    const std::string& backend = link->provenance.backend;
    link->name = (backend.empty() ? "network" : backend) + ", as traced";
    link->provenance.hardware = rank.device;
    link->provenance.versions = rank.nccl_version.empty() ? "" : "NCCL " + rank.nccl_version;
    std::ranges::copy(caveats_of(imported.findings, Weakens::link),
                      std::back_inserter(link->caveats));
    link->provenance.source =
        fmt::format("{} of {}, {} times{}", collectives, rank.profile,
                    imported.sharding && !rank.has_device ? "mean" : "least",
                    cost.is_assumed ? "; what they cost computing is assumed" : "");
    return *link;
}

Scenario with_link(TraceImport& imported, const std::optional<std::string>& link,
                   const OverlapCost& cost, const FileReader& read_file) {
    put_link(
        imported.scenario, link, imported.ranks, [&] { return fitted_link(imported, cost); },
        read_file);
    return parse_scenario(imported.scenario, imported.run->ranks.front().file + " as a scenario",
                          read_file, StrategyKinds::all);
}

std::int64_t to_ppm(double factor) {
    return std::llround(factor * static_cast<double>(undisturbed_ppm));
}

// Of computing alone: what it costs all-reduces is in their times, and so is how late they begin.
std::vector<InterferenceSegment> of_computing(std::vector<InterferenceSegment> interference) {
    for (InterferenceSegment& segment : interference) {
        segment.slowdown.communication_slowdown_ppm = undisturbed_ppm;
        segment.slowdown.start_delay = Duration{0};
        if (segment.errors) {
            segment.errors->start_delay_us = 0;
        }
    }
    return interference;
}

// As measured; how sure of the rest as where it is assumed.
std::vector<InterferenceSegment> measured_interference(const KernelSlowdowns& slowdowns,
                                                       const LinkParameters& assumed) {
    InterferenceSegment segment;
    if (!assumed.interference.empty()) {
        segment.errors = assumed.interference.back().errors;
    }
    segment.slowdown.compute_slowdown_ppm = to_ppm(slowdowns.all.factor);
    segment.computing = {to_ppm(slowdowns.products.factor), to_ppm(slowdowns.rest.factor)};
    segment.errors = segment.errors.value_or(InterferenceErrors{});
    segment.errors->compute_slowdown = std::max(slowdowns.products.error, slowdowns.rest.error);
    return of_computing({segment});
}

// Makes the scenario anew, of the times that kernels take alone.
void take_out_interference(const LinkParameters& link, TraceImport& imported) {
    TracedRun& run = *imported.run;
    const Overlap overlap = overlap_of(run, imported.all_reduces);
    take_out_of_computing(run, imported.all_reduces, link);
    const Duration alone = overlap_of(run, imported.all_reduces).computing;
    Finding& finding = imported.findings.assumed(
        "undisturbed",
        "{:.3f} of {:.3f} ms of computing ran beside all-reduces; what that costs, {:.3f} ms by "
        "{}, "
        "is taken out and put back where they overlap; --undisturbed, a trace of the same steps "
        "without communication, measures it",
        to_ms(overlap.beside), to_ms(overlap.computing), to_ms(overlap.computing - alone),
        link.assumes_interference ? "what is assumed of GPUs" : "the link's interference");
    constexpr std::int64_t noticeable = 100;  // of a step, that part
    const bool matters = noticeable * (overlap.computing - alone) >= imported.step;
    finding.weakens = link.assumes_interference && matters ? Weakens::scenario : Weakens::nothing;
    Findings nothing;  // new
    const Json cluster = imported.scenario["cluster"];
    imported.scenario =
        scenario_document(run, imported.ranks, imported.gradients, imported.model, nothing);
    imported.scenario["cluster"] = cluster;
}

}  // namespace

std::optional<LinkParameters> link_through(const WireTimes& wire_us, std::int64_t ranks,
                                           const std::string& file) {
    const std::vector<LinkPoint> points = link_points(wire_us, ranks, CollectiveKind::all_reduce);
    if (points.empty()) {
        return std::nullopt;
    }
    LinkParameters link;
    link.segments = segments_through(points, file, "all-reduces", link.caveats);
    // Kernels and all-reduces were timed side by side: what they cost each other is in their times.
    link.interference = constant_interference({});
    link.provenance.ranks = ranks;
    link.provenance.smallest_message = points.front().size;
    link.provenance.largest_message = points.back().size;
    link.provenance.samples = static_cast<std::int64_t>(points.size());
    return link;
}

std::optional<LinkParameters> sharded_link_through(const TracedSharding& sharding,
                                                   const std::string& file) {
    std::map<CollectiveKind, WireTimes> times;
    for (const TracedShardCollective& collective : sharding.collectives) {
        std::vector<double>& of_size = times[collective.kind][collective.bytes];
        of_size.insert(of_size.end(), collective.wire_us.begin(), collective.wire_us.end());
    }
    const auto points_of = [&](CollectiveKind kind) {
        return link_points(times[kind], sharding.shard_ranks, kind);
    };
    const std::vector<LinkPoint> gathers = points_of(CollectiveKind::all_gather);
    const std::vector<LinkPoint> scatters = points_of(CollectiveKind::reduce_scatter);
    if (gathers.empty() || scatters.empty()) {
        return std::nullopt;
    }
    LinkParameters link;
    link.segments = segments_through(gathers, file, "all-gathers", link.caveats);
    if (const std::vector<LinkPoint> reductions =
            link_points(times[CollectiveKind::all_reduce], sharding.ranks / sharding.shard_ranks,
                        CollectiveKind::all_reduce);
        !reductions.empty()) {
        link.all_gather.segments = std::exchange(
            link.segments, segments_through(reductions, file, "all-reduces", link.caveats));
    }
    link.reduce_scatter.segments =
        segments_through(scatters, file, "reduce-scatters", link.caveats);
    // What computing and collectives cost each other is in the times of both.
    link.interference = constant_interference({});
    link.provenance.ranks = sharding.shard_ranks;
    link.provenance.smallest_message = std::min(gathers.front().size, scatters.front().size);
    link.provenance.largest_message = std::max(gathers.back().size, scatters.back().size);
    link.provenance.samples = std::ssize(gathers) + std::ssize(scatters);
    return link;
}

void put_link(Json& scenario, const std::optional<std::string>& link, std::int64_t ranks,
              const std::function<LinkParameters()>& fitted, const FileReader& read_file) {
    Json& cluster_link = scenario["cluster"]["link"];
    if (link) {
        cluster_link = *link;
        inline_link(scenario, "", read_file);
    } else if (ranks == 1) {
        LinkParameters none;
        none.name = "none";
        none.segments = {{.bandwidth = {1'000'000'000}}};
        none.caveats = {{.text = "a placeholder, as one rank sends nothing: of several ranks, give "
                                 "a link",
                         .withholds = true}};
        cluster_link = link_json(none);
    } else {
        cluster_link = link_json(fitted());
    }
}

Scenario connect(TraceImport& imported, const std::optional<std::string>& link,
                 const FileReader& read_file) {
    if (!imported.run->rank().has_device || imported.sharding) {
        // What computing and collectives cost each other is in their times.
        return with_link(imported, link, {constant_interference({})}, read_file);
    }
    Scenario scenario = with_link(imported, link, {}, read_file);
    if (imported.ranks == 1 || imported.all_reduces.empty()) {
        return scenario;
    }
    LinkParameters disturbing = step_input(scenario).link;
    const bool has_wires = std::ranges::any_of(
        imported.all_reduces, [](const TracedAllReduce& one) { return !one.wire_us.empty(); });
    if (link && disturbing.assumes_interference && has_wires) {
        // Another link's thread blocks did not slow what was traced: those of the traced one did.
        disturbing = step_input(with_link(imported, {}, {}, read_file)).link;
    }
    OverlapCost cost;
    if (imported.slowdowns) {
        cost.interference = measured_interference(*imported.slowdowns, disturbing);
    } else {
        take_out_interference(disturbing, imported);
        cost = {of_computing(disturbing.interference), disturbing.assumes_interference};
    }
    return with_link(imported, link, cost, read_file);
}

}  // namespace bucketwise
