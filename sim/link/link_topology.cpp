#include "sim/link/link_topology.h"

#include <algorithm>
#include <cmath>

#include "sim/base/invariant.h"
#include "sim/link/network/chunk_engine.h"
#include "sim/link/network/topology_cost.h"

namespace bucketwise {

Duration interpolate(const std::vector<SimulatedTime>& times, Bytes bytes) {
    invariant(times.size() >= 2, "a line goes through two points");
    std::size_t upper = 1;
    while (upper + 1 < times.size() && times[upper].bytes < bytes) {
        ++upper;
    }
    const SimulatedTime& a = times[upper - 1];
    const SimulatedTime& b = times[upper];
    const double share = static_cast<double>((bytes - a.bytes).count) /
                         static_cast<double>((b.bytes - a.bytes).count);
    const double time = static_cast<double>(a.time.count()) +
                        share * static_cast<double>((b.time - a.time).count());
    const double most = static_cast<double>(longest_duration.count());
    return Duration{std::llround(std::clamp(time, 0.0, most))};
}

std::optional<TopologyFault> check_topology(const LinkParameters& link, std::int64_t ranks) {
    const Topology& topology = *link.topology;
    if (auto fault = check_places(topology, ranks)) {
        fault->pointer = "/topology" + fault->pointer;
        return fault;
    }
    if (ranks == 1) {
        return std::nullopt;
    }
    if (link.algorithm == Algorithm::hierarchical || link.algorithm == Algorithm::nvls) {
        if (auto fault = check_levels(*topology.regular, ranks)) {
            return fault;
        }
    }
    return topology.irregular()
               ? check_messages(schedule_on(CollectiveKind::all_reduce, link.algorithm, {1}, ranks,
                                            topology, false))
               : std::nullopt;
}

std::optional<TopologyFault> prepare_topology(LinkParameters& link, std::int64_t ranks) {
    constexpr std::int64_t smallest = 256;
    constexpr std::int64_t largest = std::int64_t{1} << 32;
    constexpr std::int64_t growth = 16;
    if (auto fault = check_topology(link, ranks)) {
        return fault;
    }
    link.simulated.clear();
    if (!link.topology->irregular() || ranks == 1) {
        return std::nullopt;
    }
    const Network network = network_for(link.algorithm, *link.topology, ranks);
    for (std::int64_t bytes = smallest; bytes <= largest; bytes *= growth) {
        const CollectiveJob job{.schedule = schedule_on(CollectiveKind::all_reduce, link.algorithm,
                                                        {bytes}, ranks, *link.topology, true)};
        const CollectiveRun run =
            simulate_collectives(*link.topology, network, {job}, most_sharing);
        if (!run.complete) {
            return too_much_sharing();
        }
        link.simulated.push_back({{bytes}, run.jobs.front().end});
    }
    return std::nullopt;
}

}  // namespace bucketwise
