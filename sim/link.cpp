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

const Segment& segment_for(const LinkParameters& link, Bytes message) {
    invariant(!link.segments.empty(), "a link that is not hierarchical has segments");
    const auto serves = [&](const Segment& s) { return !s.up_to || message <= *s.up_to; };
    const auto found = std::find_if(link.segments.begin(), link.segments.end(), serves);
    return found == link.segments.end() ? link.segments.back() : *found;
}

}  // namespace bucketwise
