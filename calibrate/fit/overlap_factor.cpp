#include "calibrate/fit/overlap_factor.h"

#include <algorithm>
#include <cmath>

namespace bucketwise {

void scale_interference(double factor, LinkParameters& link) {
    constexpr double largest = 100;  // of link files
    const auto beyond_1 = [&](std::int64_t& ppm) {
        const double beyond = factor * static_cast<double>(ppm - undisturbed_ppm);
        ppm = undisturbed_ppm +
              std::llround(std::min(beyond, (largest - 1) * static_cast<double>(undisturbed_ppm)));
    };
    for (InterferenceSegment& segment : link.interference) {
        beyond_1(segment.slowdown.compute_slowdown_ppm);
        beyond_1(segment.slowdown.communication_slowdown_ppm);
        segment.slowdown.start_delay = scaled(segment.slowdown.start_delay, factor);
    }
}

void set_interference(const LinkParameters& assumed, double factor, double error,
                      LinkParameters& link) {
    link.interference = assumed.interference;
    for (InterferenceSegment& segment : link.interference) {
        const auto share = [&](std::int64_t ppm) {
            return error * static_cast<double>(ppm - undisturbed_ppm) * 1e-6;
        };
        segment.errors = {
            .compute_slowdown = share(segment.slowdown.compute_slowdown_ppm),
            .communication_slowdown = share(segment.slowdown.communication_slowdown_ppm),
            .start_delay_us = error * to_us(segment.slowdown.start_delay)};
    }
    scale_interference(factor, link);
}

}  // namespace bucketwise
