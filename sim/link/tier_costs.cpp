#include "sim/link/tier_costs.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "sim/link/assumed_interference.h"

namespace bucketwise {
namespace {

bool tells_products_apart(const LinkParameters& link) {
    return std::any_of(link.interference.begin(), link.interference.end(),
                       [](const auto& segment) { return segment.computing.has_value(); });
}

LinkParameters with_product_share(double share, LinkParameters link) {
    set_product_share(share, link);
    return link;
}

// With the kind's interference in the place of the link's.
LinkParameters as_of_kind(OwnNumbers LinkParameters::*kind, LinkParameters link) {
    if (!(link.*kind).interference.empty()) {
        link.interference = (link.*kind).interference;
    }
    return link;
}

// Pieces at the boundaries of both, each with the larger of both factors, for the thread blocks
// that each tier uses.
std::vector<InterferenceSegment> costlier_interference(const LinkParameters& a,
                                                       const LinkParameters& b) {
    for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
        // One tier knows nothing of its GPUs, so the other's "none" is no answer for both.
        if (lacks_interference(*one) && !interferes(other->interference)) {
            return {};
        }
        if (one->interference.empty() && !has_cta_groups(other->interference)) {
            return other->interference;
        }
    }
    std::set<Bytes> limits;
    for (const LinkParameters* link : {&a, &b}) {
        for (const InterferenceSegment& segment : link->interference) {
            if (segment.up_to) {
                limits.insert(*segment.up_to);
            }
        }
    }
    const auto costlier_of = [](const LinkParameters& one, const LinkParameters& other,
                                Bytes message) -> Interference {
        const Interference first = interference_for(CollectiveKind::all_reduce, one, message);
        const Interference second = interference_for(CollectiveKind::all_reduce, other, message);
        return {std::max(first.compute_slowdown_ppm, second.compute_slowdown_ppm),
                std::max(first.communication_slowdown_ppm, second.communication_slowdown_ppm),
                std::max(first.start_delay, second.start_delay)};
    };
    const bool tells_products = tells_products_apart(a) || tells_products_apart(b);
    const auto costlier = [&](std::optional<Bytes> up_to) {
        const Bytes message = up_to.value_or(Bytes{std::numeric_limits<std::int64_t>::max()});
        InterferenceSegment segment{.up_to = up_to, .slowdown = costlier_of(a, b, message)};
        if (tells_products) {
            const auto of_share = [&](double share) {
                return costlier_of(with_product_share(share, a), with_product_share(share, b),
                                   message)
                    .compute_slowdown_ppm;
            };
            segment.computing = {of_share(1), of_share(0)};
        }
        return segment;
    };
    std::vector<InterferenceSegment> both;
    for (const Bytes limit : limits) {
        both.push_back(costlier(limit));
    }
    both.push_back(costlier(std::nullopt));
    return both;
}

}  // namespace

void inherit_costs(const LinkParameters& tier, LinkParameters& link) {
    link.host_issue = std::max(link.host_issue, tier.host_issue);
    link.host_wait = std::max(link.host_wait, tier.host_wait);
    for (OwnNumbers LinkParameters::*kind :
         {&LinkParameters::all_gather, &LinkParameters::reduce_scatter}) {
        if (!(link.*kind).interference.empty() || !(tier.*kind).interference.empty()) {
            (link.*kind).interference =
                costlier_interference(as_of_kind(kind, link), as_of_kind(kind, tier));
        }
    }
    link.interference = costlier_interference(link, tier);
    if (tier.copy_bandwidth) {
        link.copy_bandwidth =
            std::min(link.copy_bandwidth.value_or(*tier.copy_bandwidth), *tier.copy_bandwidth);
    }
}

}  // namespace bucketwise
