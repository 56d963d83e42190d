#include "sim/predict/drawn_link.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace bucketwise {
namespace {

void draw_segment(Segment& segment, double first, double second) {
    if (!segment.errors) {
        return;
    }
    const SegmentErrors& errors = *segment.errors;
    const double with_first = errors.correlation * first +
                              std::sqrt(1 - errors.correlation * errors.correlation) * second;
    const double latency_us = to_us(segment.latency) + errors.latency_us * first;
    const double gb_per_s = to_gb_per_s(segment.bandwidth);
    // A relative error above a factor of e carries no information; the draw is limited to it.
    const double relative_error = std::min(errors.bandwidth_gb_per_s / gb_per_s, 1.0);
    // The limits of the file format.
    constexpr double longest_latency_us = 1e6;
    segment.latency = duration_from_us(std::clamp(latency_us, 0.0, longest_latency_us));
    segment.bandwidth = bandwidth_from_gb_per_s(
        std::clamp(gb_per_s * std::exp(relative_error * with_first), 1e-6, 1e6));
}

std::int64_t drawn_slowdown(std::int64_t ppm, double error, double deviate) {
    constexpr double largest = 100;
    const double slowdown = static_cast<double>(ppm) * 1e-6 + error * deviate;
    return std::llround(1e6 * std::clamp(slowdown, 1.0, largest));
}

std::size_t segments_of(const LinkParameters& link) {
    std::size_t count = 0;
    for_each_segment(link, [&](const Segment&) { ++count; });
    for (const LinkParameters& tier : link.tiers) {
        count += segments_of(tier);
    }
    return count;
}

void draw(LinkParameters& link, const LinkDeviates& deviates, double sign, std::size_t& next) {
    for_each_segment(link, [&](Segment& segment) {
        draw_segment(segment, sign * deviates[next], sign * deviates[next + 1]);
        next += 2;
    });
    constexpr double longest_us = 1e6;
    const std::size_t own = deviates.size() - 3;
    for_each_interference(link, [&](InterferenceSegment& segment) {
        const InterferenceErrors errors = segment.errors.value_or(InterferenceErrors{});
        Interference& slowdown = segment.slowdown;
        slowdown.compute_slowdown_ppm = drawn_slowdown(
            slowdown.compute_slowdown_ppm, errors.compute_slowdown, sign * deviates[own]);
        slowdown.communication_slowdown_ppm =
            drawn_slowdown(slowdown.communication_slowdown_ppm, errors.communication_slowdown,
                           sign * deviates[own + 1]);
        const double later_us = errors.start_delay_us * (sign * deviates[own + 2]);
        slowdown.start_delay =
            duration_from_us(std::clamp(to_us(slowdown.start_delay) + later_us, 0.0, longest_us));
    });
    for (LinkParameters& tier : link.tiers) {
        draw(tier, deviates, sign, next);
    }
}

}  // namespace

LinkDeviates drawn_deviates(const LinkParameters& link, Normal& normal) {
    LinkDeviates deviates(2 * segments_of(link) + 3);
    std::ranges::generate(deviates, std::ref(normal));
    return deviates;
}

LinkParameters drawn_link(LinkParameters link, const LinkDeviates& deviates, double sign) {
    std::size_t next = 0;
    draw(link, deviates, sign, next);
    return link;
}

bool has_segment_errors(const LinkParameters& link) {
    bool any = false;
    for_each_segment(link, [&](const Segment& segment) { any = any || segment.errors; });
    return any || std::any_of(link.tiers.begin(), link.tiers.end(), has_segment_errors);
}

bool has_interference_errors(const LinkParameters& link) {
    bool any = false;
    for_each_interference(link,
                          [&](const InterferenceSegment& segment) { any = any || segment.errors; });
    return any;
}

LinkParameters with_declared_errors(LinkParameters link, double share) {
    for_each_interference(link, [&](InterferenceSegment& segment) {
        if (segment.errors) {
            return;
        }
        const auto beyond_1 = [](std::int64_t ppm) { return static_cast<double>(ppm) * 1e-6 - 1; };
        segment.errors = {
            .compute_slowdown = share * beyond_1(segment.slowdown.compute_slowdown_ppm),
            .communication_slowdown = share * beyond_1(segment.slowdown.communication_slowdown_ppm),
            .start_delay_us = share * to_us(segment.slowdown.start_delay)};
    });
    return link;
}

}  // namespace bucketwise
