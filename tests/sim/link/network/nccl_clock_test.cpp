// From NCCL's cost model to the clock: what each factor is of, and what it leaves alone.
#include "sim/link/network/nccl_clock.h"

#include <cmath>

#include "tests/catch.h"

namespace bucketwise {
namespace {

constexpr NcclClock as_expected{.ring_ll = 1, .nvls = 1, .network = 1};
constexpr Bytes one_mib{1 << 20};

NcclEstimate expected(NcclAlgorithm algorithm, NcclProtocol protocol) {
    return {algorithm, protocol, duration_from_us(100), duration_from_us(30)};
}

NcclMachine machine_on(std::int64_t nodes, const NcclClock& clock, NicPath path = NicPath::pxb) {
    NcclMachine machine;
    machine.settings.clock = clock;
    machine.nodes = nodes;
    machine.nic_path = path;
    return machine;
}

double factor(const NcclEstimate& estimate, Bytes bytes, std::int64_t nodes,
              const NcclClock& clock) {
    return to_us(nccl_clock_time(estimate, bytes, machine_on(nodes, clock))) / to_us(estimate.time);
}

TEST_CASE("with all factors 1 the clock says what NCCL expects") {
    for (const NcclAlgorithm algorithm : every<NcclAlgorithm>) {
        for (const NcclProtocol protocol : every<NcclProtocol>) {
            for (const std::int64_t nodes : {1, 2, 1000}) {
                for (const std::int64_t bytes : {1LL, 1LL << 20, 1LL << 40}) {
                    const NcclEstimate estimate = expected(algorithm, protocol);
                    CHECK(nccl_clock_time(estimate, {bytes}, machine_on(nodes, as_expected)) ==
                          estimate.time);
                }
            }
        }
    }
}

TEST_CASE("ring_ll is of the bytes of a ring by LL in a node, and of nothing else") {
    NcclClock clock = as_expected;
    clock.ring_ll = 0.5;
    const NcclEstimate ring = expected(NcclAlgorithm::ring, NcclProtocol::ll);
    CHECK(factor(ring, one_mib, 1, clock) == Approx(0.65));
    CHECK(factor(ring, one_mib, 2, clock) == 1);
    CHECK(factor(expected(NcclAlgorithm::ring, NcclProtocol::simple), one_mib, 1, clock) == 1);
    CHECK(factor(expected(NcclAlgorithm::tree, NcclProtocol::ll), one_mib, 1, clock) == 1);
}

TEST_CASE("nvls is of one node's, most at 8 MiB, and gone from 2 GiB on") {
    NcclClock clock = as_expected;
    clock.nvls = 1.5;
    const NcclEstimate nvls = expected(NcclAlgorithm::nvls, NcclProtocol::simple);
    CHECK(factor(nvls, {8 << 20}, 1, clock) == Approx(1.5));
    CHECK(factor(nvls, {2LL << 30}, 1, clock) == 1);
    CHECK(factor(nvls, {1LL << 40}, 1, clock) == 1);
    CHECK(factor(nvls, {8 << 20}, 2, clock) == 1);
    CHECK(factor(nvls, {64 << 20}, 1, clock) == Approx(std::pow(1.5, 0.65)));
    // Between two points of the shape.
    const double between = factor(nvls, {48 << 20}, 1, clock);
    CHECK(between < factor(nvls, {32 << 20}, 1, clock));
    CHECK(between > factor(nvls, {64 << 20}, 1, clock));
}

TEST_CASE("network is of two nodes, and what it is beyond 1 grows with the doublings' root") {
    NcclClock clock = as_expected;
    clock.network = 1.6;
    const NcclEstimate tree = expected(NcclAlgorithm::tree, NcclProtocol::ll128);
    CHECK(factor(tree, one_mib, 1, clock) == 1);
    CHECK(factor(tree, one_mib, 2, clock) == Approx(1.6));
    CHECK(factor(tree, one_mib, 16, clock) == Approx(2.2));
    CHECK(factor(tree, {512}, 16, clock) == 1);
    CHECK(factor(tree, {1LL << 30}, 2, clock) == Approx(std::pow(1.6, 0.25)));
    // A ring's latency stays longer when its bytes no longer suffer: 30 of 100 us.
    CHECK(factor(expected(NcclAlgorithm::ring, NcclProtocol::simple), {1LL << 30}, 2, clock) ==
          Approx(0.3 * 1.6 + 0.7));
    // A tree has its bandwidth earlier where its NICs are no further than PCIe switches.
    const auto at_64_mib = [&](NcclAlgorithm algorithm, NicPath path) {
        return to_us(nccl_clock_time(expected(algorithm, NcclProtocol::simple), {64 << 20},
                                     machine_on(2, clock, path))) /
               100;
    };
    CHECK(at_64_mib(NcclAlgorithm::tree, NicPath::pxb) == Approx(std::pow(1.6, 0.5)));
    CHECK(at_64_mib(NcclAlgorithm::tree, NicPath::phb) == Approx(std::pow(1.6, 0.75)));
    CHECK(at_64_mib(NcclAlgorithm::tree, NicPath::p2c) == Approx(std::pow(1.6, 0.75)));
    CHECK(at_64_mib(NcclAlgorithm::nvls_tree, NicPath::pxb) == Approx(std::pow(1.6, 1.25)));
    CHECK(at_64_mib(NcclAlgorithm::ring, NicPath::phb) ==
          Approx(0.3 * 1.6 + 0.7 * std::pow(1.6, -0.2)));
    // A network that is faster than expected does not turn a time negative.
    clock.network = 0.1;
    CHECK(factor(tree, one_mib, 1LL << 40, clock) == Approx(0.1));
    for (const NcclAlgorithm untold :
         {NcclAlgorithm::collnet_direct, NcclAlgorithm::collnet_chain}) {
        CHECK(factor(expected(untold, NcclProtocol::simple), one_mib, 16, clock) == 1);
    }
}

TEST_CASE("what NVLSTree suffers beyond the others does not grow with the nodes") {
    NcclClock clock = as_expected;
    clock.network = 1.5;
    const NcclEstimate tree = expected(NcclAlgorithm::nvls_tree, NcclProtocol::simple);
    CHECK(factor(tree, {32 << 20}, 2, clock) == Approx(std::pow(1.5, 1.4)));
    CHECK(factor(tree, {32 << 20}, 16, clock) == Approx(2 * std::pow(1.5, 0.4)));
}

// Four GH200 a node: NCCL changes from trees to rings and back, which the clock sees apart.
RegularTopology slingshot() {
    RegularTopology topology;
    topology.node = {.gpus = 4, .bandwidth = bandwidth_from_gb_per_s(340)};
    topology.nics = {.per_node = 4,
                     .latency = duration_from_us(2.4),
                     .bandwidth = bandwidth_from_gb_per_s(23.5),
                     .path = NicPath::p2c};
    return topology;
}

// By a fifth at most, where NCCL's own correction of trees steps from one power of two to the next.
TEST_CASE("times do not jump where NCCL's choice changes") {
    const RegularTopology topology = slingshot();
    const NcclSettings settings{.channels = 24, .cpu = HostCpu::arm, .clock = {.network = 1.6}};
    for (const std::int64_t ranks : {8, 64, 128, 1024}) {
        double before = 0;
        for (double bytes = 1 << 16; bytes < 8e9; bytes *= 1.01) {
            const Bytes size{static_cast<std::int64_t>(bytes)};
            const double us =
                to_us(nccl_time(CollectiveKind::all_reduce, size, ranks, topology, settings));
            CAPTURE(ranks, size.count);
            CHECK(us > 0.8 * before);
            CHECK((before == 0 || us < 1.25 * before));
            before = us;
        }
    }
}

TEST_CASE("an all-gather of many nodes takes no less time as it grows") {
    const RegularTopology topology = slingshot();
    const NcclSettings settings{.channels = 24, .cpu = HostCpu::arm, .clock = {.network = 1.6}};
    double before = 0;
    for (std::int64_t bytes = 1 << 24; bytes <= 1LL << 32; bytes *= 2) {
        const double us =
            to_us(nccl_time(CollectiveKind::all_gather, {bytes}, 2048, topology, settings));
        CAPTURE(bytes);
        CHECK(us > 0.98 * before);
        before = us;
    }
}

TEST_CASE("the clock never exceeds the longest duration") {
    NcclEstimate tree = expected(NcclAlgorithm::tree, NcclProtocol::simple);
    tree.time = longest_duration;
    CHECK(nccl_clock_time(tree, one_mib, machine_on(2, {.network = 100})) <= longest_duration);
}

TEST_CASE("the pair that NCCL chooses is timed, and what it hardly tells from it") {
    RegularTopology topology;
    topology.node = {.gpus = 8, .bandwidth = bandwidth_from_gb_per_s(235)};
    topology.nics = {
        .per_node = 8, .latency = duration_from_us(2), .bandwidth = bandwidth_from_gb_per_s(23.5)};
    const NcclSettings settings{.generation = GpuGeneration::ampere, .channels = 24};
    const auto all = CollectiveKind::all_reduce;
    const NcclEstimate choice = nccl_choice(all, one_mib, 20, topology, settings);
    const auto broadcast = CollectiveKind::broadcast;
    CHECK(nccl_time(broadcast, one_mib, 20, topology, settings) ==
          nccl_choice(broadcast, one_mib, 20, topology, settings).time);
    // A node that is not full counts.
    const double one = to_us(nccl_time(all, one_mib, 20, topology, settings));
    CHECK(one >= to_us(nccl_clock_time(choice, one_mib, machine_on(3, settings.clock))) * 0.9);
    CHECK(one <= to_us(nccl_clock_time(choice, one_mib, machine_on(3, settings.clock))) * 1.1);
    NcclSettings literal = settings;
    literal.clock = as_expected;
    CHECK(nccl_time(all, one_mib, 20, topology, literal) == choice.time);
}

TEST_CASE("fewer thread blocks than NCCL takes move no more than a channel each") {
    RegularTopology topology;
    topology.node = {.gpus = 8, .bandwidth = bandwidth_from_gb_per_s(370)};
    const NcclSettings settings{.generation = GpuGeneration::hopper, .channels = 24};
    const auto all = CollectiveKind::all_reduce;
    constexpr Bytes size{1LL << 30};
    const auto us = [&](std::optional<std::int64_t> most_blocks) {
        return to_us(nccl_time(all, size, 8, topology, settings, most_blocks));
    };
    CHECK(us(24) == us({}));
    CHECK(us(1000) == us({}));
    // 38.7 GB/s of each, on a bus that moves 7/4 of the bytes.
    const double moved = 1.75 * static_cast<double>(size.count) / 1e3;
    CHECK(us(2) == Approx(moved / (2 * 38.7)).epsilon(0.02));
    CHECK(us(4) == Approx(moved / (4 * 38.7)).epsilon(0.02));
    CHECK(us(16) == us({}));
    // Small messages take fewer.
    CHECK(nccl_time(all, {1024}, 8, topology, settings, 1) ==
          nccl_time(all, {1024}, 8, topology, settings));
}

}  // namespace
}  // namespace bucketwise
