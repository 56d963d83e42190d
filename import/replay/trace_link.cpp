#include "import/replay/trace_link.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <nlohmann/json.hpp>

#include "calibrate/link/link_fit.h"
#include "sim/base/error.h"
#include "sim/base/statistics.h"
#include "sim/link/collective.h"
#include "sim/link/link_input.h"

namespace bucketwise {
namespace {

// One number per size; without all ranks' traces it is as uncertain as waiting for them is.
std::vector<LinkPoint> link_points(const WireTimes& wire_us, std::int64_t ranks) {
    constexpr double uncertain = 0.1;
    std::vector<LinkPoint> points;
    for (const auto& [size, times] : wire_us) {
        const double median = times.empty() ? 0 : upper_median(times);
        if (median > 0) {
            points.push_back({.ranks = ranks,
                              .size = size,
                              .median_us = median,
                              .standard_error_us = uncertain * median,
                              .samples = static_cast<std::int64_t>(times.size())});
        }
    }
    return points;
}

// A single size tells a bandwidth.
Segment segment_through(const LinkPoint& point) {
    const WireCost cost = wire_cost(CollectiveKind::all_reduce, Algorithm::ring, point.ranks);
    const double share =
        static_cast<double>(cost.wire.numerator) / static_cast<double>(cost.wire.denominator);
    const double bytes = share * static_cast<double>(point.size.count);
    Segment segment;
    segment.bandwidth =
        BytesPerSecond{std::max<std::int64_t>(std::llround(bytes / point.median_us * 1e6), 1)};
    return segment;
}

WireTimes wire_times(const TraceImport& imported) {
    WireTimes by_size;
    for (const TracedAllReduce& all_reduce : imported.all_reduces) {
        std::vector<double>& times = by_size[all_reduce.bytes];
        times.insert(times.end(), all_reduce.wire_us.begin(), all_reduce.wire_us.end());
    }
    return by_size;
}

LinkParameters fitted_link(const TraceImport& imported, const TracedRank& rank) {
    std::optional<LinkParameters> link =
        link_through(wire_times(imported), imported.ranks, rank.file);
    if (!link) {
        throw InputError(rank.file, "/traceEvents",
                         "all-reduces on a communication stream, or a link (--link)", "neither");
    }
    link->name = "of the trace";
    link->provenance.backend = rank.backend;
    link->provenance.hardware = rank.device;
    link->provenance.versions = rank.nccl_version.empty() ? "" : "NCCL " + rank.nccl_version;
    link->provenance.source = "all-reduces of a PyTorch profiler trace, least times";
    return *link;
}

}  // namespace

std::optional<LinkParameters> link_through(const WireTimes& wire_us, std::int64_t ranks,
                                           const std::string& file) {
    const std::vector<LinkPoint> points = link_points(wire_us, ranks);
    if (points.empty()) {
        return std::nullopt;
    }
    LinkParameters link;
    link.segments = points.size() > 1 ? fit_link(Algorithm::ring, points, file).segments
                                      : std::vector{segment_through(points.front())};
    // A few steps do not tell how sure they are.
    for (Segment& segment : link.segments) {
        segment.errors.reset();
    }
    // Kernels and all-reduces were timed side by side: what they cost each other is in their times.
    link.interference = constant_interference({});
    link.provenance.ranks = ranks;
    link.provenance.smallest_message = points.front().size;
    link.provenance.largest_message = points.back().size;
    link.provenance.samples = static_cast<std::int64_t>(points.size());
    return link;
}

Scenario connect(TraceImport& imported, const TracedRank& rank,
                 const std::optional<std::string>& link, const FileReader& read_file) {
    Json& cluster_link = imported.scenario["cluster"]["link"];
    if (link) {
        cluster_link = *link;
        inline_link(imported.scenario, "", read_file);
    } else if (imported.ranks == 1) {
        LinkParameters none;
        none.name = "none";
        none.segments = {{.bandwidth = {1'000'000'000}}};
        cluster_link = link_json(none);
    } else {
        cluster_link = link_json(fitted_link(imported, rank));
    }
    return parse_scenario(imported.scenario, rank.file + " as a scenario", read_file);
}

}  // namespace bucketwise
