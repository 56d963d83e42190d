#include "sim/link/network/fair_share.h"

#include <algorithm>
#include <limits>

#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

// Shares that differ by less are the same: what differs is how their sums were rounded.
constexpr double equal_share = 1 + 1e-12;

}  // namespace

FairShare::FairShare(const std::vector<BytesPerSecond>& capacities) : links_(capacities.size()) {
    for (std::size_t i = 0; i < capacities.size(); ++i) {
        links_[i].capacity = static_cast<double>(capacities[i].count);
    }
}

std::uint32_t FairShare::add(std::span<const std::int32_t> links, double most_bytes_per_second) {
    if (free_.empty()) {
        free_.push_back(static_cast<std::uint32_t>(flows_.size()));
        flows_.emplace_back();
    }
    const std::uint32_t number = free_.back();
    free_.pop_back();
    Flow& flow = flows_[number];
    flow.links.assign(links.begin(), links.end());
    flow.most = most_bytes_per_second;
    flow.rate = 0;
    flow.active = true;
    for (const std::int32_t link : links) {
        links_[static_cast<std::size_t>(link)].flows.push_back(number);
        touched_.push_back(link);
    }
    return number;
}

void FairShare::remove(std::uint32_t number) {
    Flow& flow = flows_[number];
    invariant(flow.active, "a flow is removed once");
    flow.active = false;
    for (const std::int32_t link : flow.links) {
        std::vector<std::uint32_t>& there = links_[static_cast<std::size_t>(link)].flows;
        there.erase(std::find(there.begin(), there.end(), number));
        touched_.push_back(link);
    }
    free_.push_back(number);
}

void FairShare::collect_component() {
    component_links_.clear();
    component_flows_.clear();
    const auto visit = [&](std::int32_t link) {
        Link& there = links_[static_cast<std::size_t>(link)];
        if (!there.visited) {
            there.visited = true;
            component_links_.push_back(link);
        }
    };
    std::for_each(touched_.begin(), touched_.end(), visit);
    touched_.clear();
    for (std::size_t i = 0; i < component_links_.size(); ++i) {
        for (const std::uint32_t number :
             links_[static_cast<std::size_t>(component_links_[i])].flows) {
            Flow& flow = flows_[number];
            if (!flow.visited) {
                flow.visited = true;
                component_flows_.push_back(number);
                std::for_each(flow.links.begin(), flow.links.end(), visit);
            }
        }
    }
}

void FairShare::serve(std::uint32_t number, double rate) {
    Flow& flow = flows_[number];
    flow.new_rate = rate;
    for (const std::int32_t link : flow.links) {
        Link& there = links_[static_cast<std::size_t>(link)];
        there.left = std::max(there.left - rate, 0.0);
        --there.unserved;
    }
}

// Progressive filling: the link with the least to give to each of its flows serves these; flows
// that want less than any link would give are served first.
const std::vector<std::uint32_t>& FairShare::share_out() {
    collect_component();
    for (const std::int32_t i : component_links_) {
        Link& link = links_[static_cast<std::size_t>(i)];
        link.left = link.capacity;
        link.unserved = static_cast<std::uint32_t>(link.flows.size());
    }
    std::size_t served = 0;
    while (served < component_flows_.size()) {
        double least = std::numeric_limits<double>::max();
        for (const std::int32_t i : component_links_) {
            const Link& link = links_[static_cast<std::size_t>(i)];
            if (link.unserved > 0) {
                least = std::min(least, link.left / link.unserved);
            }
        }
        std::size_t content = 0;
        for (const std::uint32_t number : component_flows_) {
            if (flows_[number].new_rate < 0 && flows_[number].most <= least) {
                serve(number, flows_[number].most);
                ++content;
            }
        }
        if (content == 0) {
            for (const std::int32_t i : component_links_) {
                const Link& link = links_[static_cast<std::size_t>(i)];
                if (link.unserved == 0 || link.left / link.unserved > least * equal_share) {
                    continue;
                }
                for (const std::uint32_t number : link.flows) {
                    if (flows_[number].new_rate < 0) {
                        serve(number, least);
                        ++content;
                    }
                }
            }
        }
        served += content;
    }
    changed_.clear();
    shared_out_ += component_flows_.size();
    for (const std::uint32_t number : component_flows_) {
        Flow& flow = flows_[number];
        if (flow.new_rate != flow.rate) {
            changed_.push_back(number);
        }
        flow.rate = flow.new_rate;
        flow.new_rate = -1;
        flow.visited = false;
    }
    for (const std::int32_t i : component_links_) {
        links_[static_cast<std::size_t>(i)].visited = false;
    }
    std::sort(changed_.begin(), changed_.end());
    return changed_;
}

std::size_t FairShare::memory_bytes() const {
    std::size_t bytes = links_.capacity() * sizeof(Link) + flows_.capacity() * sizeof(Flow);
    for (const Link& link : links_) {
        bytes += link.flows.capacity() * sizeof(std::uint32_t);
    }
    for (const Flow& flow : flows_) {
        bytes += flow.links.capacity() * sizeof(std::int32_t);
    }
    return bytes;
}

}  // namespace bucketwise
