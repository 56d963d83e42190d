#include "import/run/traced_link.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "calibrate/link/link_fit.h"
#include "sim/base/statistics.h"
#include "sim/link/collective.h"

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

}  // namespace bucketwise
