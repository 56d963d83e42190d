#include "import/run/traced_link.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "calibrate/link/link_fit.h"
#include "sim/base/error.h"
#include "sim/base/statistics.h"
#include "sim/link/collective.h"

namespace bucketwise {
namespace {

// One point per size. Its error is a guess: how long others are waited for is not known.
std::vector<LinkPoint> link_points(const std::vector<TypicalCollective>& collectives,
                                   std::int64_t ranks, CollectiveKind kind) {
    constexpr double uncertain = 0.1;
    std::map<Bytes, std::vector<double>> times_us;
    for (const TypicalCollective& collective : collectives) {
        if (collective.kind == kind) {
            std::ranges::copy(collective.wire_us, std::back_inserter(times_us[collective.bytes]));
        }
    }
    std::vector<LinkPoint> points;
    for (const auto& [size, times] : times_us) {
        const double median = times.empty() ? 0 : upper_median(times);
        if (median > 0) {
            points.push_back({.ranks = ranks,
                              .size = size,
                              .median_us = median,
                              .standard_error_us = uncertain * median,
                              .samples = std::ssize(times),
                              .kind = kind});
        }
    }
    return points;
}

// A single size determines a bandwidth only.
Segment segment_through(const LinkPoint& point) {
    const WireCost cost = wire_cost(point.kind, Algorithm::ring, point.ranks);
    const double share =
        static_cast<double>(cost.wire.numerator) / static_cast<double>(cost.wire.denominator);
    const double bytes = share * static_cast<double>(point.size.count);
    return {.bandwidth = {std::max<std::int64_t>(std::llround(bytes / point.median_us * 1e6), 1)}};
}

void check_range(const Segment& segment, const std::string& file) {
    const double latency_us = to_us(segment.latency);
    const double gb_per_s = static_cast<double>(segment.bandwidth.count) / 1e9;
    if (latency_us > 1e6 || gb_per_s < 1e-6 || gb_per_s > 1e6) {
        throw InputError(file, "/traceEvents",
                         "collectives on a link of at most 10^6 us and of 10^-6 to 10^6 GB/s",
                         fmt::format("{} us and {} GB/s", latency_us, gb_per_s));
    }
}

std::vector<Segment> segments_through(const std::vector<LinkPoint>& points, const std::string& file,
                                      const char* collectives, std::vector<Caveat>& caveats) {
    std::vector<Segment> segments;
    if (points.size() > 1) {
        LinkFit fit = fit_link(Algorithm::ring, points, file);
        segments = std::move(fit.segments);
        for (std::string& weakness : fit.weaknesses) {
            // Kinds of collectives with the same sizes have the same weaknesses.
            Caveat caveat{.text = std::move(weakness)};
            if (std::ranges::find(caveats, caveat) == caveats.end()) {
                caveats.push_back(std::move(caveat));
            }
        }
    } else {
        segments = {segment_through(points.front())};
        caveats.push_back(
            {.text = fmt::format("its {} were all of {} bytes, which tell a bandwidth, but "
                                 "no latency: other sizes are an extrapolation",
                                 collectives, points.front().size.count)});
    }
    for (Segment& segment : segments) {
        segment.errors.reset();  // a few steps do not tell them
        check_range(segment, file);
    }
    return segments;
}

}  // namespace

std::optional<LinkParameters> link_through(const std::vector<TypicalCollective>& collectives,
                                           const LinkRanks& ranks, const std::string& file) {
    const bool sharded = ranks.shards > 0;
    const auto gathers = link_points(collectives, ranks.shards, CollectiveKind::all_gather);
    const auto scatters = link_points(collectives, ranks.shards, CollectiveKind::reduce_scatter);
    const auto reductions =
        link_points(collectives, sharded ? ranks.ranks / ranks.shards : ranks.ranks,
                    CollectiveKind::all_reduce);
    if (sharded ? gathers.empty() || scatters.empty() : reductions.empty()) {
        return std::nullopt;
    }
    LinkParameters link;
    if (sharded) {
        link.segments = segments_through(gathers, file, "all-gathers", link.caveats);
    }
    if (!reductions.empty()) {
        link.all_gather.segments = std::exchange(
            link.segments, segments_through(reductions, file, "all-reduces", link.caveats));
    }
    if (sharded) {
        link.reduce_scatter.segments =
            segments_through(scatters, file, "reduce-scatters", link.caveats);
    }
    // Computing and collectives were timed side by side: their times include the interference.
    link.interference = constant_interference({});
    std::vector<LinkPoint> points = sharded ? gathers : reductions;
    points.insert(points.end(), scatters.begin(), scatters.end());
    const auto [smallest, largest] = std::ranges::minmax_element(points, {}, &LinkPoint::size);
    link.provenance.ranks = sharded ? ranks.shards : ranks.ranks;
    link.provenance.smallest_message = smallest->size;
    link.provenance.largest_message = largest->size;
    link.provenance.samples = std::ssize(points);
    return link;
}

}  // namespace bucketwise
