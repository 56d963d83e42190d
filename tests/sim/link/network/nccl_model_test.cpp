#include "sim/link/network/nccl_model.h"

#include <fstream>

#include <nlohmann/json.hpp>

#include "sim/base/json_input.h"
#include "sim/link/network/topology_input.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

// NCCL stores most numbers as float, 24 bits: some five roundings of 6e-8 each, and ours to a
// picosecond.
constexpr double float_error = 2e-6;

struct OnMachine {
    std::int64_t ranks = 2;
    RegularTopology topology;
    NcclSettings settings;
};

OnMachine machine_of(const Json& machine, const std::string& version) {
    Json topology = machine.at("topology");
    topology["nccl"]["version"] = version;
    const Topology read = topology_type().read({&topology, "machine", ""});
    return {machine.at("ranks").get<std::int64_t>(), *read.regular, *read.nccl};
}

CollectiveKind kind_of(const std::string& name) {
    for (const CollectiveKind kind : every<CollectiveKind>) {
        if (name == name_of(kind)) {
            return kind;
        }
    }
    FAIL("no collective: " << name);
    return {};
}

void check_case(const Json& example, const OnMachine& machine) {
    const CollectiveKind kind = kind_of(example.at("collective"));
    const Bytes bytes{example.at("bytes").get<std::int64_t>()};
    const auto estimates =
        nccl_estimates(kind, bytes, machine.ranks, machine.topology, machine.settings);
    const Json& pairs = example.at("pairs");
    CAPTURE(example.dump());
    REQUIRE(estimates.size() == pairs.size());
    CHECK(estimates.front() ==
          nccl_choice(kind, bytes, machine.ranks, machine.topology, machine.settings));
    const NcclMachine seen = nccl_machine(machine.ranks, machine.topology, machine.settings);
    for (const NcclEstimate& estimate : estimates) {
        const std::string name = std::string(name_of(estimate.algorithm)) + " " +
                                 std::string(name_of(estimate.protocol));
        CAPTURE(name);
        REQUIRE(pairs.contains(name));
        const Json& expected = pairs.at(name);
        CHECK(to_us(estimate.time) == Approx(expected.at(0).get<double>()).epsilon(float_error));
        const NcclBlocks taken = nccl_blocks(kind, bytes, estimate, seen);
        CHECK(taken.blocks == expected.at(1).get<std::int64_t>());
        CHECK(taken.threads == expected.at(2).get<std::int64_t>());
        CHECK(estimates.front().time <= estimate.time);
    }
}

// Worked out by nccl_model.py, which another test holds to the stored table.
TEST_CASE("what NCCL expects is what its sources say, on every machine, version and collective") {
    std::ifstream file(BUCKETWISE_TEST_DATA_DIR "/nccl/model_times.json");
    const Json table = Json::parse(file);
    std::size_t points = 0;
    for (const Json& example : table.at("cases")) {
        const Json& machine = table.at("machines").at(example.at("machine").get<std::string>());
        check_case(example, machine_of(machine, example.at("version")));
        points += example.at("pairs").size();
    }
    CHECK(points > 2000);
}

OnMachine nodes_of_eight(std::int64_t ranks, double gpu_gb_per_s, double nic_gb_per_s,
                         const NcclSettings& settings) {
    OnMachine machine{ranks, {}, settings};
    machine.topology.node = {.gpus = 8,
                             .multicast = settings.generation >= GpuGeneration::hopper,
                             .bandwidth = bandwidth_from_gb_per_s(gpu_gb_per_s)};
    machine.topology.nics = {.per_node = 8,
                             .latency = duration_from_us(2),
                             .bandwidth = bandwidth_from_gb_per_s(nic_gb_per_s)};
    return machine;
}

double us_of(const OnMachine& machine, CollectiveKind kind, std::int64_t bytes,
             NcclAlgorithm algorithm, NcclProtocol protocol) {
    for (const NcclEstimate& estimate :
         nccl_estimates(kind, {bytes}, machine.ranks, machine.topology, machine.settings)) {
        if (estimate.algorithm == algorithm && estimate.protocol == protocol) {
            return to_us(estimate.time);
        }
    }
    return -1;  // as NCCL says it
}

TEST_CASE("a few of NCCL's estimates, by hand") {
    const NcclSettings h100{.generation = GpuGeneration::hopper, .channels = 16};
    const NcclSettings a100{
        .generation = GpuGeneration::ampere, .channels = 24, .cpu = HostCpu::amd};
    constexpr std::int64_t mib = 1 << 20;
    const auto all_reduce = [](const OnMachine& machine, std::int64_t bytes,
                               NcclAlgorithm algorithm, NcclProtocol protocol) {
        return us_of(machine, CollectiveKind::all_reduce, bytes, algorithm, protocol);
    };
    // One node, 365 GB/s, in 8 channels of the search. A ring by LL: half of it is more than LL's
    // 141; 141 x 8/14 = 80.571 GB/s of the buffer; 6.6 + 14 x 0.6 = 15 us; 1 MiB / 80.571 = 13.014
    // us.
    const OnMachine node = nodes_of_eight(8, 365, 47, h100);
    CHECK(all_reduce(node, mib, NcclAlgorithm::ring, NcclProtocol::ll) == Approx(28.0143));
    // NVLS: 365 / (8 + 1) = 40.556 a head; x 0.85 x 7/8 x 2 = 60.33, above the 60 that a head has
    // beyond the node; 8 x 60 x 8/14 = 274.286; 25 us + 1 GiB / 274.286 = 3914.68.
    CHECK(all_reduce(node, 1024 * mib, NcclAlgorithm::nvls, NcclProtocol::simple) ==
          Approx(3939.68));
    // Eight nodes, 8 NICs of 47. A tree by LL128: min(365, 376) x 0.92 is above 8 x 36 = 288; x
    // 120/128 = 270, above 8 x 29 = 232; half of it is 116; 1 MiB is 2^14 x 64 bytes, which leaves
    // 0.6, 69.6. 14 + 2 (7 x 1.25 + 3 (8.5 + 2)) = 94.5 us, + 1 MiB / 69.6 = 15.066.
    const OnMachine nodes = nodes_of_eight(64, 365, 47, h100);
    CHECK(all_reduce(nodes, mib, NcclAlgorithm::tree, NcclProtocol::ll128) == Approx(109.5657));
    // Two nodes of AMD hosts: every hop at least 3 x 2 us; 28 x 6 + 2 (14 + 2 x 2) + 8.4 = 212.4,
    // x 1.4 as 64 MiB are more than 64 bytes for each channel and rank = 297.36; 188 x 16/30 =
    // 100.267; 64 MiB / 100.267 = 669.304.
    const OnMachine two = nodes_of_eight(16, 235, 23.5, a100);
    CHECK(all_reduce(two, 64 * mib, NcclAlgorithm::ring, NcclProtocol::simple) == Approx(966.664));
    // PAT, one GPU on each of 16 nodes: 47 x 0.75 = 35.25; 8 + log2(16) (14 + 2 x 2) / 3.5 +
    // 16 x 2.8 = 73.371; 1 MiB / 35.25 = 29.747.
    OnMachine apart = nodes_of_eight(16, 365, 47, h100);
    apart.topology.node.gpus = apart.topology.nics->per_node = 1;
    for (const CollectiveKind kind : {CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
        CHECK(us_of(apart, kind, mib, NcclAlgorithm::pat, NcclProtocol::simple) == Approx(103.118));
        // NVLS of these on one node: 40.556 x 0.85 x 7/8 a head, with 7/8 of others' data, 26.393,
        // below 60; 8 x 26.393 = 211.142; 25 us + 1 MiB / 211.142 = 4.966.
        CHECK(us_of(node, kind, mib, NcclAlgorithm::nvls, NcclProtocol::simple) == Approx(29.966));
    }
}

TEST_CASE("newer versions of NCCL bring what older ones lack") {
    const auto has = [](NcclVersion version, GpuGeneration generation, std::int64_t ranks,
                        CollectiveKind kind, NcclAlgorithm algorithm) {
        const OnMachine machine = nodes_of_eight(
            ranks, 365, 47, {.generation = generation, .channels = 16, .version = version});
        return us_of(machine, kind, 1 << 20, algorithm, NcclProtocol::simple) >= 0;
    };
    using enum NcclVersion;
    const auto hopper = GpuGeneration::hopper;
    // NVLS: of all-gathers since 2.19, on two GPUs since 2.28.
    CHECK_FALSE(has(v2_18, hopper, 8, CollectiveKind::all_gather, NcclAlgorithm::nvls));
    CHECK(has(v2_20, hopper, 8, CollectiveKind::all_gather, NcclAlgorithm::nvls));
    CHECK_FALSE(has(v2_27, hopper, 2, CollectiveKind::all_reduce, NcclAlgorithm::nvls));
    CHECK(has(v2_28, hopper, 2, CollectiveKind::all_reduce, NcclAlgorithm::nvls));
    // PAT: since 2.23, of one GPU a node, and not of all-reduces.
    const auto has_pat = [](NcclVersion version, std::int64_t gpus, CollectiveKind kind) {
        OnMachine machine =
            nodes_of_eight(16, 365, 47, {.generation = GpuGeneration::hopper, .version = version});
        machine.topology.node.gpus = machine.topology.nics->per_node = gpus;
        return us_of(machine, kind, 1 << 20, NcclAlgorithm::pat, NcclProtocol::simple) >= 0;
    };
    CHECK_FALSE(has_pat(v2_20, 1, CollectiveKind::reduce_scatter));
    CHECK(has_pat(v2_23, 1, CollectiveKind::reduce_scatter));
    CHECK(has_pat(v2_28, 1, CollectiveKind::all_gather));
    CHECK_FALSE(has_pat(v2_28, 2, CollectiveKind::all_gather));
    CHECK_FALSE(has_pat(v2_28, 1, CollectiveKind::all_reduce));
    // On several nodes only with switches that sum; NVLSTree without.
    CHECK_FALSE(has(v2_30, hopper, 16, CollectiveKind::all_reduce, NcclAlgorithm::nvls));
    CHECK(has(v2_30, hopper, 16, CollectiveKind::all_reduce, NcclAlgorithm::nvls_tree));
    // A switch without GPUs that can use it.
    CHECK_FALSE(
        has(v2_28, GpuGeneration::ampere, 8, CollectiveKind::all_reduce, NcclAlgorithm::nvls));
}

TEST_CASE("small messages take fewer channels and threads") {
    const OnMachine node =
        nodes_of_eight(8, 365, 47, {.generation = GpuGeneration::hopper, .channels = 16});
    const NcclMachine machine = nccl_machine(node.ranks, node.topology, node.settings);
    const auto ring = [&](std::int64_t bytes) {
        return nccl_blocks(CollectiveKind::all_reduce, {bytes},
                           {NcclAlgorithm::ring, NcclProtocol::simple}, machine);
    };
    // 512 threads of 64 bytes are 32 KiB a channel, and a warp beside them synchronises.
    CHECK(ring(1 << 20) == NcclBlocks{16, 544});
    CHECK(ring(100 << 10) == NcclBlocks{3, 544});
    // 8 KiB are work for 128 threads of one channel, 4 KiB for 64.
    CHECK(ring(8 << 10) == NcclBlocks{1, 160});
    CHECK(ring(4 << 10) == NcclBlocks{1, 96});
    const NcclEstimate nvls{NcclAlgorithm::nvls, NcclProtocol::simple};
    CHECK(nccl_blocks(CollectiveKind::all_reduce, {1 << 30}, nvls, machine) == NcclBlocks{16, 640});
}

}  // namespace
}  // namespace bucketwise
