#include "sim/link/network/topology_input.h"

#include <cstdint>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "sim/base/invariant.h"
#include "sim/link/network/graph_input.h"

namespace bucketwise {
namespace {

constexpr std::int64_t most_gpus = 1'000'000;  // of a node: one switch may connect them all
constexpr std::int64_t most_nics = 64;
constexpr std::int64_t most_nodes = 1'000'000;
constexpr std::size_t most_tiers = 4;
constexpr std::int64_t most_sites = 256;
constexpr double most_oversubscription = 1000;
constexpr std::size_t most_exceptions = 1024;

const JsonTable<NodeTopology>& node_keys() {
    using Node = NodeTopology;
    static const JsonTable<Node> table{
        "node",
        "GPUs of one node and what connects them",
        {{"gpus", field(&Node::gpus, as::integer(1, most_gpus)), "required", "GPUs of a node"},
         {"fabric", field(&Node::fabric, as::one_of<Fabric>()), "`nvlink`",
          "what connects them; NCCL's latencies depend on it"},
         {"multicast", field(&Node::multicast, as::boolean()), "false",
          "whether their switch sums and multicasts (NVLink SHARP)"},
         {"latency_us", field(&Node::latency, as::microseconds()), "0",
          "from GPU to GPU of a node; `nccl` brings its own"},
         {"bandwidth_gb_per_s", field(&Node::bandwidth, as::gb_per_s()), "required",
          "of one GPU into the fabric, each direction"}}};
    return table;
}

const JsonTable<NicTopology>& nic_keys() {
    using Nics = NicTopology;
    static const JsonTable<Nics> table{
        "nics",
        "NICs of a node, each of gpus / per_node neighbouring GPUs",
        {{"per_node", field(&Nics::per_node, as::integer(1, most_nics)), "required",
          "NICs of a node; divides its GPUs"},
         {"rails", field(&Nics::rails, as::boolean()), "false",
          "whether NIC i of every node is on switches of its own, so that what goes to another "
          "rail crosses its node first"},
         {"path", field(&Nics::path, as::one_of<NicPath>()), "`pxb`",
          "from a GPU to its NIC, in NCCL's words: `pxb` through PCIe switches alone, `p2c` "
          "through NVLink-C2C and the CPU (GH200, GB200), `phb` through a PCIe host bridge. NCCL "
          "uses LL128 on the first, from 2.27 and Hopper on on the second"},
         {"latency_us", field(&Nics::latency, as::microseconds()), "0",
          "from GPU to GPU of two nodes, but for the switches", true},
         {"bandwidth_gb_per_s", field(&Nics::bandwidth, as::gb_per_s()), "required",
          "of one NIC, each direction"}}};
    return table;
}

NicTopology read_nics(const JsonPlace& place, const NodeTopology& node) {
    const JsonObject object = nic_keys().open(place);
    NicTopology nics;
    nic_keys().read(object, nics);
    if (node.gpus % nics.per_node != 0) {
        object.at("per_node")
            .fail(fmt::format("a number that divides the GPUs of a node ({})", node.gpus));
    }
    return nics;
}

const JsonTable<TierTopology>& tier_keys() {
    using Tier = TierTopology;
    static const JsonTable<Tier> table{
        "tier",
        "Switches of one tier",
        {{"name", field(&Tier::name, as::text()), "required", "such as leaf"},
         {"nodes", field(&Tier::nodes, as::integer(1, most_nodes)), "required",
          "nodes below one switch, of a rail where there are `rails`; a multiple of the tier "
          "before"},
         {"latency_us", field(&Tier::latency, as::microseconds()), "0", "of crossing this tier"},
         {"oversubscription",
          field(&Tier::oversubscription, as::number({1, most_oversubscription})), "1",
          "bandwidth from below over bandwidth to the next tier; not of the outermost tier"},
         {"ports", field(&Tier::ports, as::integer(1, most_ports)), "enough",
          "of one switch, those to the next tier included"}}};
    return table;
}

// `below`: nodes under one switch of the tier below.
TierTopology read_tier(const JsonPlace& place, std::int64_t below, bool outermost) {
    const JsonObject object = tier_keys().open(place);
    TierTopology tier;
    tier_keys().read(object, tier);
    if (tier.nodes % below != 0) {
        object.at("nodes").fail(
            fmt::format("a multiple of the nodes below a switch of the tier before ({})", below));
    }
    if (outermost) {
        use_present(object, "oversubscription", [](const JsonPlace& oversubscription) {
            oversubscription.fail(
                "no oversubscription of the outermost tier, which has no uplinks");
        });
    }
    return tier;
}

const JsonTable<SitesTopology>& site_keys() {
    using Sites = SitesTopology;
    static const JsonTable<Sites> table{
        "sites",
        "Equal sites in a ring; traffic takes the shorter way round",
        {{"count", field(&Sites::count, as::integer(2, most_sites)), "required",
          "sites; divides the nodes"},
         {"latency_us", field(&Sites::latency, as::microseconds()), "required",
          "from one site to the next"},
         {"bandwidth_gb_per_s", field(&Sites::bandwidth, as::gb_per_s()), "required",
          "between two sites, each direction"}}};
    return table;
}

void refuse_without_nics(const JsonObject& object) {
    for (const std::string_view key : {"tiers", "sites"}) {
        use_present(object, key, [key](const JsonPlace& found) {
            found.fail(fmt::format("{} only beside nics, which they connect", key), "no nics");
        });
    }
}

RegularTopology read_regular(const JsonObject& object) {
    RegularTopology topology;
    topology.node = node_keys().read(object.at("node"));
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
    if (const auto sites = object.find("sites")) {
        topology.sites = site_keys().read(*sites);
    }
    return topology;
}

// AMD's have names such as mi300x, cdna3 and gfx942.
JsonType<GpuGeneration> generation() {
    JsonType<GpuGeneration> type = as::one_of<GpuGeneration>();
    type.read = [](const JsonPlace& place) {
        const std::string name = place.value->is_string() ? place.value->get<std::string>() : "";
        for (const std::string_view amd : {"mi", "cdna", "gfx"}) {
            if (name.starts_with(amd)) {
                place.fail(
                    "a generation of NVIDIA's: RCCL has a cost model of its own, not known here");
            }
        }
        return read_choice(place, every<GpuGeneration>);
    };
    return type;
}

// The generation is read before it.
KeyUse<NcclSettings> compute_capability() {
    constexpr std::int64_t most = 129;
    const JsonType<std::int64_t> any =
        as::integer(first_capability(every<GpuGeneration>.front()), most);
    KeyUse<NcclSettings> use = field(&NcclSettings::compute_capability, any);
    use.read = [read = any.read](const JsonPlace& place, NcclSettings& settings) {
        const GpuGeneration generation = settings.generation;
        const std::int64_t first = first_capability(generation);
        const std::int64_t last = generation == every<GpuGeneration>.back() ? most : first + 9;
        settings.compute_capability = read(place);
        if (*settings.compute_capability < first || *settings.compute_capability > last) {
            place.fail(fmt::format("a compute capability of {}, {} to {}", name_of(generation),
                                   first, last));
        }
    };
    return use;
}

const JsonTable<NcclClock>& clock_keys() {
    const JsonType<double> factor = as::number({0.1, 100});
    static const JsonTable<NcclClock> table{
        "clock",
        "How much longer collectives take than NCCL's cost model expects, which is made to choose "
        "and not to tell the time; 1: as it expects",
        {{"ring_ll", field(&NcclClock::ring_ll, factor), "0.45",
          "of the time that the bytes of a ring with LL need within a node", true},
         {"nvls", field(&NcclClock::nvls, factor), "1.5",
          "of NVLS on one node, where it is largest, at 8 to 16 MB", true},
         {"network", field(&NcclClock::network, factor), "1.5",
          "of what crosses two nodes, where it is largest, from 64 kB to some MB; what it is "
          "beyond 1 grows with the square root of the logarithm of the nodes",
          true}}};
    return table;
}

const JsonTable<NcclSettings>& nccl_keys() {
    using Nccl = NcclSettings;
    static const JsonTable<Nccl> table{
        "nccl",
        "Further inputs of NCCL's cost model",
        {{"generation", field(&Nccl::generation, generation()), "required", "of the GPUs"},
         {"channels", field(&Nccl::channels, as::integer(1, 1024)), "required",
          "channels of a collective, each a thread block: \"coll channels\" in NCCL's log"},
         {"version", field(&Nccl::version, as::one_of<NcclVersion>()), "`2.28`",
          "of NCCL, by whose cost model it chooses"},
         {"compute_capability", compute_capability(), "the first of their generation",
          "of the GPUs, ten times as it is written: 86 of an A40"},
         {"cpu", field(&Nccl::cpu, as::one_of<HostCpu>()), "`intel`", "of the hosts"},
         {"collnet", field(&Nccl::collnet, as::boolean()), "false",
          "whether switches between nodes sum (SHARP) and NCCL has a plugin that uses them"},
         {"clock", field(&Nccl::clock, clock_keys().type()), "that of its keys",
          "how much longer collectives take than NCCL expects ([links](../docs/links.md))", true}}};
    return table;
}

const JsonTable<SlowRank>& slow_rank_keys() {
    static const JsonTable<SlowRank> table{
        "slow rank",
        "A rank whose own links are slower",
        {{"rank", target(&SlowRank::rank, as::integer(0, most_gpus)), "required",
          "its number, each once"},
         {"bandwidth_factor", target(&SlowRank::bandwidth_factor, as::number({1e-6, 1})), "1",
          "its bandwidth over the others'"},
         {"extra_latency_us", target(&SlowRank::extra_latency, as::microseconds()), "0",
          "of every message it sends"}}};
    return table;
}

void check_each_once(const JsonPlace& place, const std::vector<SlowRank>& ranks) {
    std::set<std::int64_t> seen;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        if (!seen.insert(ranks[i].rank).second) {
            slow_rank_keys()
                .open(read_array(place, most_exceptions)[i])
                .at("rank")
                .fail("each rank once", std::to_string(ranks[i].rank));
        }
    }
}

KeyUse<Topology> slow_ranks() {
    const auto list = as::list(slow_rank_keys().type(), most_exceptions);
    KeyUse<Topology> use{list};
    use.read = [read = list.read](const JsonPlace& place, Topology& topology) {
        topology.slow_ranks = read(place);
        check_each_once(place, topology.slow_ranks);
    };
    return use;
}

const JsonTable<BackgroundFlow>& background_keys() {
    using Flow = BackgroundFlow;
    const JsonType<std::int64_t> rank = as::integer(0, most_gpus);
    static const JsonTable<Flow> table{
        "background",
        "One constant stream of others",
        {{"from", target(&Flow::from, rank), "required", "rank that sends"},
         {"to", target(&Flow::to, rank), "required", "rank that receives"},
         {"bandwidth_gb_per_s", target(&Flow::bandwidth, as::gb_per_s()), "required",
          "at most, where the links have it"}}};
    return table;
}

// A part of a regular topology, read before the others.
template <typename Field, typename Value>
KeyUse<Topology> regular(Field RegularTopology::*member, const JsonType<Value>& type) {
    KeyUse<Topology> use{type};
    use.write = [part = field(member, type)](const Topology& topology, bool always) {
        invariant(!topology.irregular(), "a topology that is written is regular");
        return part.write(*topology.regular, always);
    };
    return use;
}

std::vector<JsonKey<Topology>> regular_rows() {
    return {
        {"node", regular(&RegularTopology::node, node_keys().type()), "required but in a graph",
         "GPUs of a node and what connects them", true},
        {"nics", regular(&RegularTopology::nics, nic_keys().type()), "none: one node",
         "NICs of a node, each serving the same number of neighbouring GPUs"},
        {"tiers", regular(&RegularTopology::tiers, as::list(tier_keys().type(), most_tiers)),
         "one switch without limits",
         "switches of a fat tree, from the nodes up. Traffic is spread evenly over the parallel "
         "links of a tier (ideal ECMP)"},
        {"sites", regular(&RegularTopology::sites, site_keys().type()), "one",
         "equal sites in a ring"},
        {"nccl", field(&Topology::nccl, nccl_keys().type()), "required for `nccl`",
         "further inputs of NCCL's cost model, which brings its own latencies and does not look at "
         "the node's; the other algorithms do not look at `nccl`"}};
}

std::vector<JsonKey<Topology>> irregular_rows() {
    return {{"slow_ranks", slow_ranks(), "none", "ranks whose own links are slower"},
            {"background",
             target(&Topology::background, as::list(background_keys().type(), most_exceptions)),
             "none", "constant traffic of others"}};
}

std::vector<JsonRule> either_regular_or_graph() {
    std::vector<JsonRule> rules;
    for (const std::string_view regular : {"node", "nics", "tiers", "sites"}) {
        for (const std::string_view graph : {"ranks", "switches", "links", "routing"}) {
            rules.push_back(exclusive(regular, graph));
        }
    }
    return rules;
}

const JsonTable<Topology>& topology_keys() {
    static const JsonTable<Topology> table{
        "topology",
        "Nodes of GPUs with NICs, tiers of switches and sites; or a graph of ranks, switches and "
        "links",
        joined(joined(regular_rows(), graph_rows()), irregular_rows()),
        either_regular_or_graph(),
        {Json::parse(R"({"if": {"anyOf": [{"required": ["links"]}, {"required": ["ranks"]}]},
                         "then": {"required": ["ranks", "links"]},
                         "else": {"required": ["node"],
                                  "properties": {"switches": false, "routing": false},
                                  "dependentRequired": {"tiers": ["nics"], "sites": ["nics"]}}})")}};
    return table;
}

Topology read_topology(const JsonPlace& place) {
    const JsonObject object = topology_keys().open(place);
    Topology topology;
    if (object.has("links") || object.has("ranks")) {
        topology.graph = read_graph(object);
    } else {
        topology.regular = read_regular(object);
    }
    topology_keys().read(object, topology);
    return topology;
}

}  // namespace

JsonType<Topology> topology_type() {
    JsonType<Topology> type = topology_keys().type();
    type.read = read_topology;
    return type;
}

}  // namespace bucketwise
