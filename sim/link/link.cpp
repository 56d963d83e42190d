#include "sim/link/link.h"

#include <algorithm>
#include <cmath>

#include "sim/base/invariant.h"

namespace bucketwise {

namespace {

// Precondition: there is a segment.
template <typename Iterator>
const auto& serving(Iterator first, Iterator last, Bytes message) {
    const auto found =
        std::find_if(first, last, [&](const auto& s) { return !s.up_to || message <= *s.up_to; });
    return found == last ? *std::prev(last) : *found;
}

// As measured with `ctas` thread blocks.
struct SlowdownAt {
    std::int64_t ctas = 0;
    Interference slowdown;
};

// Precondition: low.ctas < ctas < high.ctas.
Interference between(const SlowdownAt& low, const SlowdownAt& high, std::int64_t ctas) {
    const double share =
        static_cast<double>(ctas - low.ctas) / static_cast<double>(high.ctas - low.ctas);
    const auto linear = [&](std::int64_t a, std::int64_t b) {
        return a + std::llround(share * static_cast<double>(b - a));
    };
    return {
        linear(low.slowdown.compute_slowdown_ppm, high.slowdown.compute_slowdown_ppm),
        linear(low.slowdown.communication_slowdown_ppm, high.slowdown.communication_slowdown_ppm),
        Duration{linear(low.slowdown.start_delay.count(), high.slowdown.start_delay.count())}};
}

Interference interference_at(const std::vector<InterferenceSegment>& segments, std::int64_t ctas,
                             Bytes message) {
    std::optional<SlowdownAt> below;
    for (auto first = segments.begin(); first != segments.end();) {
        const auto last = std::find_if(first, segments.end(),
                                       [&](const auto& s) { return s.ctas != first->ctas; });
        const SlowdownAt here{first->ctas.value(), serving(first, last, message).slowdown};
        if (here.ctas == ctas || (here.ctas > ctas && !below)) {
            return here.slowdown;
        }
        if (here.ctas > ctas) {
            return between(*below, here, ctas);
        }
        below = here;
        first = last;
    }
    return below->slowdown;
}

}  // namespace

const Segment& segment_for(const LinkParameters& link, Bytes message) {
    invariant(!link.segments.empty(), "a link that is not hierarchical has segments");
    return serving(link.segments.begin(), link.segments.end(), message);
}

Interference interference_for(const LinkParameters& link, Bytes message) {
    if (link.interference.empty()) {
        return {};
    }
    if (has_cta_groups(link)) {
        invariant(link.ctas.has_value(),
                  "a link with interference by thread blocks says how many it uses");
        return interference_at(link.interference, *link.ctas, message);
    }
    return serving(link.interference.begin(), link.interference.end(), message).slowdown;
}

bool interferes(const LinkParameters& link) {
    return std::any_of(link.interference.begin(), link.interference.end(),
                       [](const InterferenceSegment& s) { return s.slowdown != Interference{}; });
}

void set_product_share(double share, std::vector<InterferenceSegment>& interference) {
    for (InterferenceSegment& segment : interference) {
        if (const auto& computing = segment.computing) {
            segment.slowdown.compute_slowdown_ppm =
                std::llround(share * static_cast<double>(computing->product_ppm) +
                             (1 - share) * static_cast<double>(computing->rest_ppm));
        }
    }
}

std::vector<InterferenceSegment> constant_interference(const Interference& slowdown) {
    return {{.slowdown = slowdown}};
}

}  // namespace bucketwise
