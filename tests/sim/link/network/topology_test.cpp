#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/link/link_input.h"
#include "sim/link/network/nccl_clock.h"
#include "sim/link/network/nccl_model.h"
#include "sim/link/network/topology_cost.h"
#include "sim/link/network/topology_input.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"
#include "tests/sim/link/network/network_topologies.h"

namespace bucketwise {
namespace {

const char* const h100_pod = R"({
    "name": "pod", "algorithm": "nccl", "launch_us": 3,
    "topology": {
        "node": {"gpus": 8, "fabric": "nvlink", "multicast": true, "bandwidth_gb_per_s": 370},
        "nics": {"per_node": 8, "rails": true, "latency_us": 2, "bandwidth_gb_per_s": 48},
        "tiers": [{"name": "leaf", "nodes": 32, "latency_us": 0.5, "ports": 64},
                  {"name": "spine", "nodes": 256, "latency_us": 1}],
        "nccl": {"generation": "hopper", "channels": 16}}})";

const char* const two_hosts = R"({
    "name": "hosts", "algorithm": "ring",
    "topology": {
        "ranks": ["a", "b"], "switches": [{"name": "s", "ports": 2}], "routing": "tree",
        "links": [{"between": ["a", "s"], "latency_us": 1, "bandwidth_gb_per_s": 10},
                  {"between": ["s", "b"], "latency_us": 2, "bandwidth_gb_per_s": 5}]}})";

LinkParameters read(const Json& document) {
    return read_link({&document, "link.json", ""}, [](const std::string&) { return ""; });
}

// The error of the document with one value changed, or with a key removed where it is null.
std::string error_of(const char* text, const std::string& pointer, const Json& value) {
    Json document = Json::parse(text);
    const Json::json_pointer place(pointer);
    if (value.is_null()) {
        document.at(place.parent_pointer()).erase(place.back());
    } else {
        document[place] = value;
    }
    try {
        static_cast<void>(read(document));
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

TEST_CASE("a topology is read as it is written") {
    const LinkParameters link = read(Json::parse(h100_pod));
    REQUIRE(link.topology);
    REQUIRE(link.topology->regular);
    const RegularTopology& regular = *link.topology->regular;
    CHECK(regular.node.gpus == 8);
    CHECK(regular.node.multicast);
    CHECK(regular.nics->rails);
    CHECK(regular.nics->bandwidth == bandwidth_from_gb_per_s(48));
    CHECK(regular.tiers.size() == 2);
    CHECK(regular.tiers[0].ports == 64);
    CHECK(link.topology->nccl == NcclSettings{GpuGeneration::hopper, 16});
    Json said = Json::parse(h100_pod);
    said["topology"]["nccl"] = {{"generation", "ampere"},   {"channels", 4},
                                {"version", "2.20"},        {"cpu", "arm"},
                                {"compute_capability", 86}, {"collnet", true}};
    CHECK(read(said).topology->nccl == NcclSettings{.generation = GpuGeneration::ampere,
                                                    .channels = 4,
                                                    .version = NcclVersion::v2_20,
                                                    .compute_capability = 86,
                                                    .cpu = HostCpu::arm,
                                                    .collnet = true});
    CHECK(!link.topology->irregular());
    const LinkParameters hosts = read(Json::parse(two_hosts));
    CHECK(hosts.topology->graph->names == std::vector<std::string>{"a", "b", "s"});
    CHECK(hosts.topology->irregular());
}

TEST_CASE("nonsense topologies are refused by name") {
    const auto pod = [](const std::string& pointer, const Json& value) {
        return error_of(h100_pod, pointer, value);
    };
    const auto hosts = [](const std::string& pointer, const Json& value) {
        return error_of(two_hosts, pointer, value);
    };
    CHECK(pod("/topology/node/bandwidth_gb_per_s", 0) ==
          "link.json: /topology/node/bandwidth_gb_per_s: expected a number of at least "
          "1e-06 and at most 1000000, got 0");
    CHECK(pod("/topology/nics/per_node", 3) ==
          "link.json: /topology/nics/per_node: expected a number that divides the GPUs of a node "
          "(8), got 3");
    CHECK(pod("/topology/tiers/1/nodes", 40) ==
          "link.json: /topology/tiers/1/nodes: expected a multiple of the nodes below a switch of "
          "the tier before (32), got 40");
    CHECK(pod("/topology/tiers/1/oversubscription", 2) ==
          "link.json: /topology/tiers/1/oversubscription: expected no oversubscription of the "
          "outermost tier, which has no uplinks, got 2");
    CHECK(pod("/topology/nics", nullptr) ==
          "link.json: /topology/tiers: expected tiers only beside nics, which they connect, got no "
          "nics");
    CHECK(pod("/segments", Json::array()).find("link.json: ") == 0);
    CHECK(pod("/topology/links", Json::array()).find("link.json: /topology") == 0);
    CHECK(pod("/topology/nccl", nullptr) ==
          "link.json: /topology: expected the key nccl, by which the algorithm nccl chooses, got a "
          "topology without it");
    CHECK(pod("/topology/nccl/compute_capability", 100) ==
          "link.json: /topology/nccl/compute_capability: expected a compute capability of hopper, "
          "90 to 99, got 100");
    CHECK(
        pod("/topology/nccl/generation", "mi300x") ==
        "link.json: /topology/nccl/generation: expected a generation of NVIDIA's: RCCL has a cost "
        "model of its own, not known here, got \"mi300x\"");
    CHECK(pod("/topology/nccl/version", "2.29") ==
          "link.json: /topology/nccl/version: expected one of 2.18, 2.20, 2.23, 2.27, 2.28, 2.30, "
          "got \"2.29\"");
    const std::string tiered =
        std::string(R"({"name": "t", "algorithm": "hierarchical", "inter": )") +
        R"({"name": "i", "algorithm": "ring", "segments": [{"latency_us": )" +
        R"(1, "bandwidth_gb_per_s": 1}]}, "intra": )" + two_hosts + "}";
    CHECK(error_of(tiered.c_str(), "/name", "m") ==
          "link.json: /intra: expected a tier of segments, got a topology");
    CHECK(error_of(R"({"name": "n", "algorithm": "nccl", "segments": []})", "/name", "m") ==
          "link.json: expected the key topology, got an object without it");

    CHECK(
        hosts("/topology/links/1/bandwidth_gb_per_s", 0) ==
        "link.json: /topology/links/1/bandwidth_gb_per_s: expected a number of at least 1e-06 and "
        "at most 1000000, got 0");
    CHECK(hosts("/topology/links/1/between", {"s", "c"}) ==
          "link.json: /topology/links/1/between/1: expected the name of a rank or a switch, got c");
    CHECK(hosts("/topology/switches/0/ports", 1) ==
          "link.json: /topology/links/1/between/0: expected no more links than s has ports, got "
          "one more");
    CHECK(hosts("/topology/links/2", {{"between", {"a", "b"}}, {"bandwidth_gb_per_s", 1}}) ==
          "link.json: /topology/links/2/between: expected a tree, as routing says: one way between "
          "any two, got a cycle through a and b");
    CHECK(hosts("/topology/links/1/between", {"a", "a"}) ==
          "link.json: /topology/links/1/between: expected two different names, got one twice");
    CHECK(hosts("/topology/ranks", {"a", "a"}).find("a name that no other rank or switch has") !=
          std::string::npos);
    CHECK(hosts("/topology/routing", "scenic").find("one of shortest, tree") != std::string::npos);
    CHECK(hosts("/algorithm", "hierarchical").find("a graph does not have") != std::string::npos);
    CHECK(hosts("/topology/slow_ranks", Json::array({{{"rank", 0}}, {{"rank", 0}}})) ==
          "link.json: /topology/slow_ranks/1/rank: expected each rank once, got 0");
}

// A step of one gradient over the link.
Json scenario_on(const char* link, std::int64_t ranks) {
    return {{"name", "on a topology"},
            {"workload",
             {{"forward_ms", 1},
              {"backward_ms", 2},
              {"gradients",
               {{{"name", "a"}, {"numel", 250'000}, {"dtype", "float32"}, {"ready_ms", 2}}}}}},
            {"cluster", {{"ranks", ranks}, {"link", Json::parse(link)}}},
            {"sync", {{"strategy", "flat"}}}};
}

Scenario parse(const Json& document) {
    return parse_scenario(document, "s.json", [](const std::string&) { return ""; });
}

std::string scenario_error(const Json& document) {
    try {
        static_cast<void>(parse(document));
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

TEST_CASE("ranks that have no place on the topology, or no way, are refused with the place") {
    CHECK(scenario_error(scenario_on(h100_pod, 2048)).empty());
    CHECK(scenario_error(scenario_on(h100_pod, 4096)) ==
          "s.json: /cluster/link/topology/tiers/1/nodes: expected an outermost tier that connects "
          "all 512 nodes, got 256");
    CHECK(scenario_error(scenario_on(two_hosts, 3)) ==
          "s.json: /cluster/link/topology/ranks: expected a name for each of 3 ranks, got 2");
    Json cut = scenario_on(two_hosts, 2);
    cut["cluster"]["link"]["topology"]["links"].erase(1);
    CHECK(scenario_error(cut) ==
          "s.json: /cluster/link/topology/links: expected a network in which every rank reaches "
          "every other, got no way from b to a but through ranks");
    Json node = scenario_on(h100_pod, 8);
    node["cluster"]["ranks_per_node"] = 8;
    CHECK(scenario_error(node).find("no ranks_per_node beside a topology") != std::string::npos);
    Json far_too_large = scenario_on(h100_pod, 2048);
    far_too_large["cluster"]["link"]["algorithm"] = "direct";
    far_too_large["cluster"]["link"]["topology"].erase("nccl");
    CHECK(scenario_error(far_too_large).empty());
    far_too_large["cluster"]["link"]["topology"]["slow_ranks"] = {{{"rank", 1}}};
    // 2 x 2048 x 2047.
    CHECK(scenario_error(far_too_large) ==
          "s.json: /cluster/link/topology: expected a collective of at most 140000 messages where "
          "they "
          "are simulated one by one, got 8384512");
}

TEST_CASE("a ring on each level asks for full groups") {
    // 33 nodes: one leaf of 32 is full, the other has one.
    Json uneven = scenario_on(h100_pod, 264);
    CHECK(scenario_error(uneven).empty());
    for (const char* algorithm : {"hierarchical", "nvls"}) {
        uneven["cluster"]["link"]["algorithm"] = algorithm;
        CHECK(scenario_error(uneven) ==
              "s.json: /cluster/link/topology/tiers: expected tiers whose groups are full, each of "
              "256 ranks, for an algorithm with a ring on each level, got a last one of 8");
    }
    uneven["cluster"]["ranks"] = 64 * 8;
    CHECK(scenario_error(uneven).empty());
}

TEST_CASE("costs beyond ten days stay there, and a step of them is refused") {
    Json slow = scenario_on(two_hosts, 2);
    for (Json& link : slow["cluster"]["link"]["topology"]["links"]) {
        link["bandwidth_gb_per_s"] = 1e-6;
    }
    const Scenario hosts = parse(slow);
    CHECK(collective_time(CollectiveKind::all_reduce, {std::int64_t{1} << 50}, hosts.group,
                          hosts.link) <= longest_duration);
    Json pod = scenario_on(h100_pod, 2048);
    pod["cluster"]["link"]["topology"]["nics"]["bandwidth_gb_per_s"] = 1e-6;
    for (const char* algorithm : {"nccl", "ring", "direct", "hierarchical", "nvls",
                                  "recursive_halving_doubling", "double_binary_tree"}) {
        pod["cluster"]["link"]["algorithm"] = algorithm;
        const Scenario scenario = parse(pod);
        const Duration time = collective_time(CollectiveKind::all_reduce, {std::int64_t{1} << 50},
                                              scenario.group, scenario.link);
        CAPTURE(algorithm);
        CHECK(time >= longest_duration);
        CHECK(time <= longest_duration + duration_from_us(3));  // launch_us
    }
}

TEST_CASE("as many messages are counted as a schedule sends") {
    for (const std::int64_t ranks : {2, 4, 8, 16, 32}) {
        for (const Algorithm algorithm :
             {Algorithm::ring, Algorithm::direct, Algorithm::recursive_halving_doubling,
              Algorithm::hierarchical, Algorithm::double_binary_tree}) {
            const ScheduleRequest request =
                schedule_on(CollectiveKind::all_reduce, algorithm, {1 << 20}, ranks,
                            testing::narrow_tree(), false);
            const std::uint64_t sent = CollectiveSchedule(request).messages();
            const std::uint64_t counted = messages_of(request);
            CAPTURE(ranks, name_of(algorithm), sent, counted);
            // An upper bound where not all ranks send alike.
            CHECK(counted >= sent);
            CHECK((counted == sent || algorithm == Algorithm::recursive_halving_doubling ||
                   algorithm == Algorithm::double_binary_tree));
            CHECK(counted <= 2 * sent + 256);
        }
    }
}

TEST_CASE("where messages are simulated, a step sees their time at every size") {
    const Scenario scenario = parse(scenario_on(two_hosts, 2));
    const auto us = [&](CollectiveKind kind, std::int64_t bytes) {
        return to_us(collective_time(kind, {bytes}, scenario.group, scenario.link));
    };
    // Two steps of half the bytes at 5 GB/s and 3 us. In eight pieces, so that what is large keeps
    // the link busy all the time, and only the last piece's latency shows: n / 5 GB/s + 3 us. Small
    // messages show both: 6 us.
    CHECK(us(CollectiveKind::all_reduce, 1'000'000) == Approx(203));
    CHECK(us(CollectiveKind::all_reduce, 1L << 33) == Approx(3 + 8'589'934'592 / 5e3));
    CHECK(us(CollectiveKind::all_reduce, 2) == Approx(6).epsilon(1e-3));
    CHECK(us(CollectiveKind::broadcast, 1'000'000) == Approx(203.0 / 2));
}

TEST_CASE("on one switch the closed forms of topologies are those of a link") {
    const Topology topology = testing::one_node(8);
    LinkParameters link;
    link.segments = {{.latency = duration_from_us(1), .bandwidth = bandwidth_from_gb_per_s(100)}};
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::direct,
                                      Algorithm::recursive_halving_doubling, Algorithm::nvls}) {
        link.algorithm = algorithm;
        for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::all_gather}) {
            const bool bruck = algorithm == Algorithm::recursive_halving_doubling &&
                               kind == CollectiveKind::all_gather;
            if (!bruck) {  // on a topology a ring gathers
                CHECK(topology_time(kind, algorithm, {1 << 20}, 8, *topology.regular) ==
                      collective_time(kind, {1 << 20}, {8, 8}, link));
            }
        }
    }
}

TEST_CASE("a ring crosses every level as often as there are groups to cross") {
    // 8 nodes of 4, leaves of 2 nodes. A round: 24 hops within nodes of 1 us, 4 within leaves of 4
    // us, 4 between leaves of 6 us; twice, but for two of the cheapest. 1 MiB over 100 GB/s (a
    // node's 4 NICs; a leaf's uplinks have 100 GB/s, too): 2 x 31/32 x 10.48576 us.
    CHECK(to_us(topology_time(CollectiveKind::all_reduce, Algorithm::ring, {1 << 20}, 32,
                              *testing::narrow_tree().regular)) ==
          Approx(2 * (24 * 1 + 4 * 4 + 4 * 6 - 1) + 2 * 31.0 / 32 * 10.48576));
}

// By hand from the published constants, hopper, one node of 8: 370 GB/s, 16 channels, each of 8 of
// the search twice.
TEST_CASE("NCCL's estimates are what its constants give") {
    const LinkParameters link = read(Json::parse(h100_pod));
    const auto estimate = [&](Bytes bytes, std::int64_t ranks, NcclAlgorithm algorithm,
                              NcclProtocol protocol) {
        for (const NcclEstimate& e :
             nccl_estimates(CollectiveKind::all_reduce, bytes, ranks, *link.topology->regular,
                            *link.topology->nccl)) {
            if (e.algorithm == algorithm && e.protocol == protocol) {
                return to_us(e.time);
            }
        }
        return -1.0;
    };
    constexpr Bytes mb{1'000'000};
    // Ring LL: 6.6 + 14 x 0.6 us; min(370 / 2, 141) x 8/14 = 80.571 GB/s.
    CHECK(estimate(mb, 8, NcclAlgorithm::ring, NcclProtocol::ll) ==
          Approx(6.6 + 8.4 + 1000 / (141.0 * 8 / 14)));
    // Ring LL128: 14 + 14 x 1.9; min(0.92 x 370, 8 x 36.7) = 293.6.
    CHECK(estimate(mb, 8, NcclAlgorithm::ring, NcclProtocol::ll128) ==
          Approx(14 + 26.6 + 1000 / (293.6 * 8 / 14)));
    // Tree Simple: 8.4 + 2 x 7 x 4; min(0.92 x 370, 8 x 38.7) / 2; 1 MB leaves half of it.
    CHECK(estimate(mb, 8, NcclAlgorithm::tree, NcclProtocol::simple) ==
          Approx(8.4 + 56 + 1000 / (309.6 / 2 / 2)));
    // NVLS: 25 us; 370 / 9 x 0.85 x 7/8 x 2 is more than 60. No NVLS tree on one node.
    CHECK(estimate(mb, 8, NcclAlgorithm::nvls, NcclProtocol::simple) ==
          Approx(25 + 1000 / (8 * 60 * 8.0 / 14)));
    CHECK(estimate(mb, 8, NcclAlgorithm::nvls_tree, NcclProtocol::simple) == -1);
    // Two nodes, ring Simple: 30 steps, 2 of them between nodes; NICs and both switches 3.5 us,
    // twice; x 1.4 as 1 MB / (16 x 16) is more than 64 bytes; 370 GB/s are less than 8 x 48.
    CHECK(estimate(mb, 16, NcclAlgorithm::ring, NcclProtocol::simple) ==
          Approx(1.4 * (8.4 + 28 * 3.4 + 2 * (14 + 7)) + 1000 / (370 * 16.0 / 30)));
    // 64 nodes, a leaf of 32 with a tenth of its NICs' 12,288 GB/s up: no less than a node's 384
    // GB/s; 370 of these count. With a hundredth, 122.88 GB/s, all is narrower.
    RegularTopology narrow = *link.topology->regular;
    const auto cheapest_us = [&](double oversubscription) {
        narrow.tiers[0].oversubscription = oversubscription;
        return to_us(
            nccl_estimates(CollectiveKind::all_reduce, {1 << 30}, 512, narrow, *link.topology->nccl)
                .front()
                .time);
    };
    CHECK(cheapest_us(10) == cheapest_us(1));
    CHECK(cheapest_us(100) > 1.07e9 / 122.88e3);
    // The cheapest comes first, and the link charges what the clock says of it.
    const auto all = nccl_estimates(CollectiveKind::all_reduce, mb, 16, *link.topology->regular,
                                    *link.topology->nccl);
    CHECK(std::is_sorted(all.begin(), all.end(),
                         [](const auto& a, const auto& b) { return a.time < b.time; }));
    CHECK(collective_time(CollectiveKind::all_reduce, mb, {16, 16}, link) ==
          duration_from_us(3) +
              nccl_clock_time(all.front(), mb,
                              nccl_machine(16, *link.topology->regular, *link.topology->nccl)));
    LinkParameters literal = link;
    literal.topology->nccl->clock = {.ring_ll = 1, .nvls = 1, .network = 1};
    CHECK(collective_time(CollectiveKind::all_reduce, mb, {16, 16}, literal) ==
          duration_from_us(3) + all.front().time);
}

}  // namespace
}  // namespace bucketwise
