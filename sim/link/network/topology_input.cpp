#include "sim/link/network/topology_input.h"

#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

constexpr std::int64_t most_gpus = 1'000'000;  // of a node: one switch may connect them all
constexpr std::int64_t most_nics = 64;
constexpr std::int64_t most_nodes = 1'000'000;
constexpr std::size_t most_tiers = 4;
constexpr std::int64_t most_sites = 256;
constexpr std::int64_t most_ports = 1'000'000;
constexpr double most_oversubscription = 1000;
constexpr std::size_t most_vertices = 1024;
constexpr std::size_t most_graph_links = 65536;
constexpr std::size_t most_exceptions = 1024;

NodeTopology read_node(const JsonPlace& place) {
    const JsonObject object(place,
                            {"gpus", "fabric", "multicast", "latency_us", "bandwidth_gb_per_s"});
    NodeTopology node;
    node.gpus = read_integer(object.at("gpus"), 1, most_gpus);
    object.read_optional_choice("fabric", node.fabric, every<Fabric>);
    object.read_optional("multicast", node.multicast, read_boolean);
    object.read_optional("latency_us", node.latency, read_duration_us);
    node.bandwidth = read_bandwidth_gb_per_s(object.at("bandwidth_gb_per_s"));
    return node;
}

NicTopology read_nics(const JsonPlace& place, const NodeTopology& node) {
    const JsonObject object(place,
                            {"per_node", "rails", "path", "latency_us", "bandwidth_gb_per_s"});
    NicTopology nics;
    const JsonPlace per_node = object.at("per_node");
    nics.per_node = read_integer(per_node, 1, most_nics);
    if (node.gpus % nics.per_node != 0) {
        per_node.fail(fmt::format("a number that divides the GPUs of a node ({})", node.gpus));
    }
    object.read_optional("rails", nics.rails, read_boolean);
    object.read_optional_choice("path", nics.path, every<NicPath>);
    object.read_optional("latency_us", nics.latency, read_duration_us);
    nics.bandwidth = read_bandwidth_gb_per_s(object.at("bandwidth_gb_per_s"));
    return nics;
}

// `below`: nodes under one switch of the tier below.
TierTopology read_tier(const JsonPlace& place, std::int64_t below, bool outermost) {
    const JsonObject object(place, {"name", "nodes", "latency_us", "oversubscription", "ports"});
    TierTopology tier;
    tier.name = read_string(object.at("name"));
    const JsonPlace nodes = object.at("nodes");
    tier.nodes = read_integer(nodes, 1, most_nodes);
    if (tier.nodes % below != 0) {
        nodes.fail(
            fmt::format("a multiple of the nodes below a switch of the tier before ({})", below));
    }
    object.read_optional("latency_us", tier.latency, read_duration_us);
    if (const auto oversubscription = object.find("oversubscription")) {
        if (outermost) {
            oversubscription->fail(
                "no oversubscription of the outermost tier, which has no uplinks");
        }
        tier.oversubscription = read_number(*oversubscription, {1, most_oversubscription});
    }
    object.read_optional("ports", tier.ports, read_integer, 1, most_ports);
    return tier;
}

SitesTopology read_sites(const JsonPlace& place) {
    const JsonObject object(place, {"count", "latency_us", "bandwidth_gb_per_s"});
    SitesTopology sites;
    sites.count = read_integer(object.at("count"), 2, most_sites);
    sites.latency = read_duration_us(object.at("latency_us"));
    sites.bandwidth = read_bandwidth_gb_per_s(object.at("bandwidth_gb_per_s"));
    return sites;
}

void refuse_without_nics(const JsonObject& object) {
    for (const std::string_view key : {"tiers", "sites"}) {
        if (const auto found = object.find(key)) {
            found->fail(fmt::format("{} only beside nics, which they connect", key), "no nics");
        }
    }
}

RegularTopology read_regular(const JsonObject& object) {
    RegularTopology topology;
    topology.node = read_node(object.at("node"));
    if (!object.has("nics")) {
        refuse_without_nics(object);
        return topology;
    }
    topology.nics = read_nics(object.at("nics"), topology.node);
    if (const auto tiers = object.find("tiers")) {
        const std::vector<JsonPlace> elements = read_array(*tiers, most_tiers);
        for (std::size_t i = 0; i < elements.size(); ++i) {
            const std::int64_t below = i == 0 ? 1 : topology.tiers.back().nodes;
            topology.tiers.push_back(read_tier(elements[i], below, i + 1 == elements.size()));
        }
    }
    object.read_optional("sites", topology.sites, read_sites);
    return topology;
}

// AMD's have names such as mi300x, cdna3 and gfx942.
GpuGeneration read_generation(const JsonPlace& place) {
    const std::string name = place.value->is_string() ? place.value->get<std::string>() : "";
    for (const std::string_view amd : {"mi", "cdna", "gfx"}) {
        if (name.starts_with(amd)) {
            place.fail(
                "a generation of NVIDIA's: RCCL has a cost model of its own, not known here");
        }
    }
    return read_choice(place, every<GpuGeneration>);
}

std::int64_t read_capability(const JsonPlace& place, GpuGeneration generation) {
    constexpr std::int64_t most_capability = 129;
    const bool newest = generation == every<GpuGeneration>.back();
    const std::int64_t first = first_capability(generation);
    const std::int64_t last = newest ? most_capability : first + 9;
    const std::int64_t capability =
        read_integer(place, first_capability(every<GpuGeneration>.front()), most_capability);
    if (capability < first || capability > last) {
        place.fail(
            fmt::format("a compute capability of {}, {} to {}", name_of(generation), first, last));
    }
    return capability;
}

NcclClock read_clock(const JsonPlace& place) {
    constexpr NumberRange factors{0.1, 100};
    const JsonObject object(place, {"ring_ll", "nvls", "network"});
    NcclClock clock;
    object.read_optional("ring_ll", clock.ring_ll, read_number, factors);
    object.read_optional("nvls", clock.nvls, read_number, factors);
    object.read_optional("network", clock.network, read_number, factors);
    return clock;
}

NcclSettings read_nccl(const JsonPlace& place) {
    constexpr std::int64_t most_channels = 1024;
    const JsonObject object(place, {"generation", "channels", "version", "compute_capability",
                                    "cpu", "collnet", "clock"});
    NcclSettings settings;
    settings.generation = read_generation(object.at("generation"));
    settings.channels = read_integer(object.at("channels"), 1, most_channels);
    object.read_optional_choice("version", settings.version, every<NcclVersion>);
    object.read_optional_choice("cpu", settings.cpu, every<HostCpu>);
    object.read_optional("collnet", settings.collnet, read_boolean);
    object.read_optional("clock", settings.clock, read_clock);
    if (const auto capability = object.find("compute_capability")) {
        settings.compute_capability = read_capability(*capability, settings.generation);
    }
    return settings;
}

// --- graphs ---

// Sets of vertices that are connected (disjoint sets with path halving).
class Connected {
  public:
    explicit Connected(std::size_t vertices) : parent_(vertices) {
        std::iota(parent_.begin(), parent_.end(), 0);
    }

    // False: they already were.
    bool join(std::int32_t a, std::int32_t b) {
        const std::int32_t root_a = root(a);
        const std::int32_t root_b = root(b);
        parent_[static_cast<std::size_t>(root_a)] = root_b;
        return root_a != root_b;
    }

  private:
    std::int32_t root(std::int32_t vertex) {
        while (parent_[static_cast<std::size_t>(vertex)] != vertex) {
            std::int32_t& above = parent_[static_cast<std::size_t>(vertex)];
            above = parent_[static_cast<std::size_t>(above)];
            vertex = above;
        }
        return vertex;
    }

    std::vector<std::int32_t> parent_;
};

class GraphReader {
  public:
    GraphTopology read(const JsonObject& object) {
        read_ranks(object.at("ranks"));
        if (const auto switches = object.find("switches")) {
            read_switches(*switches);
        }
        read_links(object.at("links"), is_tree(object));
        return std::move(graph_);
    }

  private:
    static bool is_tree(const JsonObject& object) {
        const auto routing = object.find("routing");
        if (!routing) {
            return false;
        }
        const std::string name = read_string(*routing);
        if (name != "shortest" && name != "tree") {
            routing->fail("one of shortest, tree");
        }
        return name == "tree";
    }

    void add_vertex(const JsonPlace& place, const std::string& name) {
        const auto number = static_cast<std::int32_t>(graph_.names.size());
        if (!numbers_.emplace(name, number).second) {
            place.fail("a name that no other rank or switch has", name);
        }
        graph_.names.push_back(name);
        ports_left_.push_back(most_ports);
    }

    void read_ranks(const JsonPlace& place) {
        for (const JsonPlace& element : read_array(place, most_vertices)) {
            add_vertex(element, read_string(element));
        }
        graph_.ranks = std::ssize(graph_.names);
    }

    void read_switches(const JsonPlace& place) {
        for (const JsonPlace& element : read_array(place, most_vertices)) {
            const JsonObject object(element, {"name", "ports"});
            add_vertex(object.at("name"), read_string(object.at("name")));
            object.read_optional("ports", ports_left_.back(), read_integer, 1, most_ports);
        }
    }

    std::int32_t read_end(const JsonPlace& place) {
        const std::string name = read_string(place);
        const auto found = numbers_.find(name);
        if (found == numbers_.end()) {
            place.fail("the name of a rank or a switch", name);
        }
        if (--ports_left_[static_cast<std::size_t>(found->second)] < 0) {
            place.fail(fmt::format("no more links than {} has ports", name), "one more");
        }
        return found->second;
    }

    void read_links(const JsonPlace& place, bool tree) {
        Connected connected(graph_.names.size());
        for (const JsonPlace& element : read_array(place, most_graph_links)) {
            const JsonObject object(element, {"between", "latency_us", "bandwidth_gb_per_s"});
            const JsonPlace between = object.at("between");
            const std::vector<JsonPlace> ends = read_array(between, 2);
            if (ends.size() != 2) {
                between.fail("two names", "one");
            }
            GraphLink link;
            link.a = read_end(ends[0]);
            link.b = read_end(ends[1]);
            object.read_optional("latency_us", link.latency, read_duration_us);
            link.bandwidth = read_bandwidth_gb_per_s(object.at("bandwidth_gb_per_s"));
            if (link.a == link.b) {
                between.fail("two different names", "one twice");
            }
            if (!connected.join(link.a, link.b) && tree) {
                between.fail("a tree, as routing says: one way between any two",
                             fmt::format("a cycle through {} and {}",
                                         graph_.names[static_cast<std::size_t>(link.a)],
                                         graph_.names[static_cast<std::size_t>(link.b)]));
            }
            graph_.links.push_back(link);
        }
    }

    GraphTopology graph_;
    std::map<std::string, std::int32_t> numbers_;
    std::vector<std::int64_t> ports_left_;
};

// --- exceptions ---

std::vector<SlowRank> read_slow_ranks(const JsonPlace& place) {
    std::vector<SlowRank> ranks;
    std::set<std::int64_t> seen;
    for (const JsonPlace& element : read_array(place, most_exceptions)) {
        const JsonObject object(element, {"rank", "bandwidth_factor", "extra_latency_us"});
        SlowRank slow;
        slow.rank = read_integer(object.at("rank"), 0, most_gpus);
        if (!seen.insert(slow.rank).second) {
            object.at("rank").fail("each rank once", std::to_string(slow.rank));
        }
        object.read_optional("bandwidth_factor", slow.bandwidth_factor, read_number,
                             NumberRange{1e-6, 1});
        object.read_optional("extra_latency_us", slow.extra_latency, read_duration_us);
        ranks.push_back(slow);
    }
    return ranks;
}

std::vector<BackgroundFlow> read_background(const JsonPlace& place) {
    return transformed(read_array(place, most_exceptions), [](const JsonPlace& element) {
        const JsonObject object(element, {"from", "to", "bandwidth_gb_per_s"});
        return BackgroundFlow{read_integer(object.at("from"), 0, most_gpus),
                              read_integer(object.at("to"), 0, most_gpus),
                              read_bandwidth_gb_per_s(object.at("bandwidth_gb_per_s"))};
    });
}

}  // namespace

Topology read_topology(const JsonPlace& place) {
    const JsonObject object(place, {"node", "nics", "tiers", "sites", "ranks", "switches", "links",
                                    "routing", "slow_ranks", "background", "nccl"});
    for (const std::string_view regular : {"node", "nics", "tiers", "sites"}) {
        for (const std::string_view graph : {"ranks", "switches", "links", "routing"}) {
            object.exclusive(regular, graph);
        }
    }
    Topology topology;
    if (object.has("links") || object.has("ranks")) {
        topology.graph = GraphReader().read(object);
    } else {
        topology.regular = read_regular(object);
    }
    object.read_optional("nccl", topology.nccl, read_nccl);
    object.read_optional("slow_ranks", topology.slow_ranks, read_slow_ranks);
    object.read_optional("background", topology.background, read_background);
    return topology;
}

}  // namespace bucketwise
