#include "sim/link.h"

#include <algorithm>

#include "sim/invariant.h"

namespace bucketwise {

std::string_view name_of(Algorithm algorithm) {
    switch (algorithm) {
        case Algorithm::ring:
            return "ring";
        case Algorithm::direct:
            return "direct";
        case Algorithm::recursive_halving_doubling:
            return "recursive_halving_doubling";
        case Algorithm::double_binary_tree:
            return "double_binary_tree";
        case Algorithm::hierarchical:
            return "hierarchical";
    }
    return {};
}

namespace {

// Precondition: `segments` holds one.
template <typename AnySegment>
const AnySegment& serving(const std::vector<AnySegment>& segments, Bytes message) {
    const auto serves = [&](const AnySegment& s) { return !s.up_to || message <= *s.up_to; };
    const auto found = std::find_if(segments.begin(), segments.end(), serves);
    return found == segments.end() ? segments.back() : *found;
}

}  // namespace

const Segment& segment_for(const LinkParameters& link, Bytes message) {
    invariant(!link.segments.empty(), "a link that is not hierarchical has segments");
    return serving(link.segments, message);
}

Interference interference_for(const LinkParameters& link, Bytes message) {
    return link.interference.empty() ? Interference{}
                                     : serving(link.interference, message).slowdown;
}

std::vector<InterferenceSegment> constant_interference(const Interference& slowdown) {
    return {{.slowdown = slowdown}};
}

}  // namespace bucketwise
