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

const OwnNumbers* own_numbers(CollectiveKind kind, const LinkParameters& link) {
    switch (kind) {
        case CollectiveKind::all_gather:
            return &link.all_gather;
        case CollectiveKind::reduce_scatter:
            return &link.reduce_scatter;
        case CollectiveKind::all_reduce:
        case CollectiveKind::broadcast:
            break;
    }
    return nullptr;
}

Duration launch_for(CollectiveKind kind, const LinkParameters& link) {
    const OwnNumbers* own = own_numbers(kind, link);
    return own != nullptr && !own->segments.empty() ? own->launch : link.launch;
}

const Segment& segment_for(CollectiveKind kind, const LinkParameters& link, Bytes message) {
    const OwnNumbers* own = own_numbers(kind, link);
    const auto& segments = own != nullptr && !own->segments.empty() ? own->segments : link.segments;
    invariant(!segments.empty(), "a link that is not hierarchical has segments");
    return serving(segments.begin(), segments.end(), message);
}

Interference interference_for(CollectiveKind kind, const LinkParameters& link, Bytes message) {
    const OwnNumbers* own = own_numbers(kind, link);
    const auto& interference =
        own != nullptr && !own->interference.empty() ? own->interference : link.interference;
    if (interference.empty()) {
        return {};
    }
    if (has_cta_groups(interference)) {
        invariant(link.ctas.has_value(),
                  "a link with interference by thread blocks says how many it uses");
        return interference_at(interference, *link.ctas, message);
    }
    return serving(interference.begin(), interference.end(), message).slowdown;
}

bool interferes(const std::vector<InterferenceSegment>& interference) {
    return std::any_of(interference.begin(), interference.end(),
                       [](const InterferenceSegment& s) { return s.slowdown != Interference{}; });
}

bool interferes(const LinkParameters& link) {
    return interferes(link.interference) || interferes(link.all_gather.interference) ||
           interferes(link.reduce_scatter.interference);
}

void set_product_share(double share, LinkParameters& link) {
    for_each_interference(link, [&](InterferenceSegment& segment) {
        if (const auto& computing = segment.computing) {
            segment.slowdown.compute_slowdown_ppm =
                std::llround(share * static_cast<double>(computing->product_ppm) +
                             (1 - share) * static_cast<double>(computing->rest_ppm));
        }
    });
}

std::vector<InterferenceSegment> constant_interference(const Interference& slowdown) {
    return {{.slowdown = slowdown}};
}

}  // namespace bucketwise
