#include "sim/link/network/chunk_engine.h"

#include "sim/link/collective.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <tuple>

#include "sim/link/network/topology_cost.h"
#include "tests/catch.h"
#include "tests/sim/link/network/network_topologies.h"

namespace bucketwise {
namespace {

CollectiveRun run_alone(const Topology& topology, const ScheduleRequest& schedule) {
    const Network network(topology, schedule.ranks);
    return simulate_collectives(topology, network, {CollectiveJob{.schedule = schedule}});
}

Duration end_of(const Topology& topology, const ScheduleRequest& schedule) {
    return run_alone(topology, schedule).jobs.front().end;
}

ScheduleRequest all_reduce(Algorithm algorithm, std::int64_t bytes, std::int64_t ranks) {
    return {.algorithm = algorithm, .bytes = {bytes}, .ranks = ranks};
}

// Each message is rounded to whole picoseconds, and bytes to whole pieces, on its own.
bool equal_but_for_rounding(Duration a, Duration b, std::int64_t steps) {
    return std::abs((a - b).count()) <= 2 * steps + 2;
}

LinkParameters one_switch_link(Algorithm algorithm) {
    LinkParameters link;
    link.algorithm = algorithm;
    link.segments = {{.latency = duration_from_us(1), .bandwidth = bandwidth_from_gb_per_s(100)}};
    return link;
}

TEST_CASE("on one switch, ring, direct, and halving and doubling take what their formulas say") {
    std::mt19937_64 random(1);
    for (int i = 0; i < 300; ++i) {
        const auto ranks = static_cast<std::int64_t>(2 + random() % 32);
        // Pieces of whole bytes, also after five halvings.
        const std::int64_t bytes = ranks * 64 * static_cast<std::int64_t>(1 + random() % 10'000);
        for (const Algorithm algorithm :
             {Algorithm::ring, Algorithm::direct, Algorithm::recursive_halving_doubling}) {
            const Duration formula = collective_time(CollectiveKind::all_reduce, {bytes},
                                                     {ranks, ranks}, one_switch_link(algorithm));
            const Duration simulated =
                end_of(testing::one_node(ranks), all_reduce(algorithm, bytes, ranks));
            CAPTURE(ranks, bytes, name_of(algorithm), simulated.count(), formula.count());
            const bool folds = algorithm == Algorithm::recursive_halving_doubling &&
                               !std::has_single_bit(static_cast<std::uint64_t>(ranks));
            if (folds) {
                // A rank with nothing to wait for sends at once, and shares the way into a rank
                // whose partner still hands over its vector.
                CHECK(simulated >= formula - Duration{100});
                CHECK(simulated < 2.5 * formula);
            } else {
                CHECK(equal_but_for_rounding(simulated, formula, 2 * ranks));
            }
        }
    }
}

TEST_CASE("the halves of an all-reduce take half of it, by ring and directly") {
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::direct}) {
        for (const CollectiveKind kind :
             {CollectiveKind::reduce_scatter, CollectiveKind::all_gather}) {
            ScheduleRequest half = all_reduce(algorithm, 28'672, 7);
            half.kind = kind;
            const Duration whole = end_of(testing::one_node(7), all_reduce(algorithm, 28'672, 7));
            CHECK(equal_but_for_rounding(2 * end_of(testing::one_node(7), half), whole, 14));
        }
    }
}

// The latencies of a tree's levels twice, and with many pieces the bandwidth of its busiest rank.
TEST_CASE("two trees reach everybody in 2 ceil(log2 p) latencies, and pipeline what is large") {
    for (const std::int64_t ranks : {2, 3, 4, 5, 8, 13, 16, 31, 32}) {
        const Topology topology = testing::one_node(ranks);
        const auto depth = static_cast<std::int64_t>(std::ceil(std::log2(ranks)));
        const Duration small =
            end_of(topology, all_reduce(Algorithm::double_binary_tree, 2, ranks));
        CAPTURE(ranks, small.count());
        // One byte a message: 10 ps each, and of two children the link is shared.
        CHECK(small >= 2 * depth * duration_from_us(1));
        CHECK(small <= 2 * depth * (duration_from_us(1) + Duration{100}));
        constexpr std::int64_t large = 1 << 26;
        ScheduleRequest pipelined = all_reduce(Algorithm::double_binary_tree, large, ranks);
        pipelined.chunks = 32;
        const double formula = 2.0 * large / 100e9;  // s: 2 n at 100 GB/s
        const double simulated = to_us(end_of(topology, pipelined)) * 1e-6;
        CHECK(simulated > formula * (ranks == 2 ? 0.49 : 0.7));
        CHECK(simulated < formula * 1.3);
    }
}

TEST_CASE("rings on two and on three levels take the sum of their stages") {
    for (const auto& [topology, ranks] : {std::pair(testing::nodes_of_four(), std::int64_t{24}),
                                          std::pair(testing::narrow_tree(), std::int64_t{32}),
                                          std::pair(testing::ring_of_sites(), std::int64_t{64})}) {
        const std::int64_t bytes = ranks * 4096;
        const ScheduleRequest schedule = schedule_on(
            CollectiveKind::all_reduce, Algorithm::hierarchical, {bytes}, ranks, topology, false);
        const Duration formula = topology_time(CollectiveKind::all_reduce, Algorithm::hierarchical,
                                               {bytes}, ranks, *topology.regular);
        CAPTURE(ranks);
        CHECK(equal_but_for_rounding(end_of(topology, schedule), formula, 4 * ranks));
    }
    // Three levels of the narrow tree, by hand: 4 GPUs, 2 nodes, 4 leaves; 128 KiB.
    //   node: 3 steps of 32 KiB at 100 GB/s, 1 us: 3.98304 us
    //   leaf: 1 step of 16 KiB at 25 GB/s, 3 + 1 us: 4.65536 us
    //   spine: 3 steps of 4 KiB at 12.5 GB/s each, 3 + 1 + 2 us: 18.98304 us; all of it twice
    const Duration by_hand = topology_time(CollectiveKind::all_reduce, Algorithm::hierarchical,
                                           {131072}, 32, *testing::narrow_tree().regular);
    CHECK(to_us(by_hand) == Approx(2 * (3.98304 + 4.65536 + 18.98304)));
}

TEST_CASE("direct exchange takes what its fullest links take, on tiers and around sites") {
    for (const auto& [topology, ranks] : {std::pair(testing::nodes_of_four(), std::int64_t{24}),
                                          std::pair(testing::narrow_tree(), std::int64_t{32}),
                                          std::pair(testing::ring_of_sites(), std::int64_t{64})}) {
        constexpr std::int64_t piece = 1 << 20;  // so large that latencies hardly count
        const double simulated =
            to_us(end_of(topology, all_reduce(Algorithm::direct, ranks * piece, ranks)));
        const double formula = to_us(topology_time(CollectiveKind::all_reduce, Algorithm::direct,
                                                   {ranks * piece}, ranks, *topology.regular));
        CAPTURE(ranks, simulated, formula);
        CHECK(simulated == Approx(formula).epsilon(0.01));
    }
}

// Messages and formulas, each with its own idea of where the narrowest link is.
TEST_CASE("between sites a few NICs can be narrower than the line, and odd nodes split pairs") {
    Topology sites = testing::one_node(8);
    sites.regular->nics = {
        .per_node = 1, .latency = duration_from_us(3), .bandwidth = bandwidth_from_gb_per_s(10)};
    sites.regular->sites = SitesTopology{
        .count = 2, .latency = duration_from_us(1000), .bandwidth = bandwidth_from_gb_per_s(200)};
    Topology threes = testing::one_node(3);
    threes.regular->nics = {
        .per_node = 3, .latency = duration_from_us(100), .bandwidth = bandwidth_from_gb_per_s(25)};
    constexpr std::int64_t bytes = 1 << 28;
    for (const Algorithm algorithm :
         {Algorithm::ring, Algorithm::hierarchical, Algorithm::recursive_halving_doubling,
          Algorithm::double_binary_tree, Algorithm::direct}) {
        for (const auto& [topology, ranks] :
             {std::pair(sites, std::int64_t{16}), std::pair(sites, std::int64_t{32}),
              std::pair(threes, std::int64_t{12})}) {
            const Network network = network_for(algorithm, topology, ranks);
            const CollectiveRun run =
                simulate_collectives(topology, network,
                                     {{schedule_on(CollectiveKind::all_reduce, algorithm, {bytes},
                                                   ranks, topology, true)}});
            const double simulated = to_us(run.jobs.front().end);
            const double formula = to_us(topology_time(CollectiveKind::all_reduce, algorithm,
                                                       {bytes}, ranks, *topology.regular));
            CAPTURE(name_of(algorithm), ranks, simulated, formula);
            const bool folds = algorithm == Algorithm::recursive_halving_doubling && ranks == 12;
            // Two nodes send each half up one tree and half down the other; the formula is of inner
            // nodes, which send twice as much.
            const bool two_nodes = algorithm == Algorithm::double_binary_tree && ranks == 16;
            CHECK(simulated ==
                  Approx(two_nodes ? formula / 2 : formula).epsilon(folds ? 1.0 : 0.25));
        }
    }
}

TEST_CASE("what takes too much sharing out is given up") {
    const Topology topology = testing::one_node(16);
    const Network network(topology, 16);
    const CollectiveJob job{.schedule = all_reduce(Algorithm::direct, 1 << 20, 16)};
    // All 240 messages of a round start at once, and all that end at once leave nothing to share.
    CHECK(simulate_collectives(topology, network, {job}, 480).complete);
    CHECK(!simulate_collectives(topology, network, {job}, 479).complete);
}

TEST_CASE("a direct exchange of little takes the latency of its farthest message, twice") {
    Topology one_site = testing::ring_of_sites();
    one_site.regular->node.gpus = 8;
    one_site.regular->nics->per_node = 8;
    for (const auto& [topology, ranks, farthest_us] :
         {std::tuple(one_site, std::int64_t{8}, 1.0),                  // within the node
          std::tuple(testing::nodes_of_four(), std::int64_t{8}, 4.0),  // 3 us, 1 us across a node
          std::tuple(testing::ring_of_sites(), std::int64_t{64}, 2007.0)}) {
        const Duration simulated = end_of(topology, all_reduce(Algorithm::direct, 64, ranks));
        const Duration formula = topology_time(CollectiveKind::all_reduce, Algorithm::direct, {64},
                                               ranks, *topology.regular);
        CHECK(to_us(formula) == Approx(2 * farthest_us).epsilon(1e-3));
        CHECK(to_us(simulated) == Approx(2 * farthest_us).epsilon(1e-3));
    }
}

TEST_CASE("ranks that look alike can be simulated as one, to the picosecond") {
    for (const auto& [topology, ranks] : {std::pair(testing::one_node(64), std::int64_t{64}),
                                          std::pair(testing::nodes_of_four(), std::int64_t{96}),
                                          std::pair(testing::narrow_tree(), std::int64_t{32}),
                                          std::pair(testing::ring_of_sites(), std::int64_t{64})}) {
        for (const Algorithm algorithm : {Algorithm::ring, Algorithm::hierarchical}) {
            for (const std::int64_t bytes : {1L, 12'345L, 1L << 24}) {
                const Network network = network_for(algorithm, topology, ranks);
                std::vector<CollectiveRun> runs;
                for (const bool classes : {false, true}) {
                    const ScheduleRequest request = schedule_on(
                        CollectiveKind::all_reduce, algorithm, {bytes}, ranks, topology, classes);
                    runs.push_back(simulate_collectives(topology, network, {{request}}));
                }
                const CollectiveRun& full = runs.front();
                const CollectiveRun& folded = runs.back();
                CHECK(full.jobs.front().end == folded.jobs.front().end);
                CHECK(folded.messages < full.messages);
            }
        }
    }
}

TEST_CASE("a hundred thousand ranks take a ring of a class of them") {
    Topology topology = testing::one_node(100'000);
    const ScheduleRequest schedule = schedule_on(CollectiveKind::all_reduce, Algorithm::ring,
                                                 {100'000'000}, 100'000, topology, true);
    const CollectiveRun run = run_alone(topology, schedule);
    CHECK(run.messages == 199'998);
    // 199,998 steps of 1 us and 1000 B at 100 GB/s, 10 ns.
    CHECK(run.jobs.front().end == 199'998 * (duration_from_us(1) + duration_from_us(0.01)));
}

TEST_CASE("a ring is held up by whoever starts late, and by nothing else") {
    const Topology topology = testing::one_node(8);
    const Network network(topology, 8);
    CollectiveJob job{.schedule = all_reduce(Algorithm::ring, 32'768, 8)};
    const Duration together = simulate_collectives(topology, network, {job}).jobs.front().end;
    job.starts.assign(8, Duration{0});
    job.starts[3] = duration_from_us(50);
    const Duration late = simulate_collectives(topology, network, {job}).jobs.front().end;
    CHECK(late == together + duration_from_us(50));
}

TEST_CASE("a slow rank slows every round of a ring, a faster one none") {
    Topology topology = testing::one_node(2);
    topology.slow_ranks = {{.rank = 1, .bandwidth_factor = 0.25}};
    // Two steps of half the bytes, both over a link of rank 1, out or in: 25 GB/s.
    const Duration step = duration_from_us(1) + transfer_time({4096}, {25'000'000'000});
    CHECK(end_of(topology, all_reduce(Algorithm::ring, 8192, 2)) == 2 * step);
    topology.slow_ranks = {{.rank = 1, .extra_latency = duration_from_us(5)}};
    // Rank 1's second message leaves when rank 0's first one is there: 1 us and 6 us, in either
    // order; the last arrival is the one that waited for rank 1.
    const Duration transfer = transfer_time({4096}, {100'000'000'000});
    CHECK(end_of(topology, all_reduce(Algorithm::ring, 8192, 2)) ==
          duration_from_us(1 + 6) + 2 * transfer);
}

TEST_CASE("background traffic takes its fair share of the links it crosses") {
    Topology topology = testing::one_node(4);
    // From rank 0 to rank 2: it crosses the way out of rank 0 and the way into rank 2. As the ring
    // sends one message at a time there, each gets half of 100 GB/s.
    topology.background = {{0, 2, bandwidth_from_gb_per_s(400)}};
    // Pieces of 100 KB take 1 us, over the shared links 2. In every step a rank waits for the one
    // before it: the slow messages 0 -> 1 and 1 -> 2 hold up the ring. A piece crosses 6 hops in a
    // row, of each round's four two slow ones; the last to arrive crosses four slow ones.
    const Duration end = end_of(topology, all_reduce(Algorithm::ring, 400'000, 4));
    CHECK(equal_but_for_rounding(end, 4 * duration_from_us(3) + 2 * duration_from_us(2), 12));
    // At most 20 GB/s: 80 are left.
    topology.background = {{0, 1, bandwidth_from_gb_per_s(20)}};
    const Duration mild = end_of(topology, all_reduce(Algorithm::ring, 400'000, 4));
    CHECK(equal_but_for_rounding(mild, 2 * duration_from_us(2.25) + 4 * duration_from_us(2), 12));
}

TEST_CASE("two jobs on the same ranks take twice the transfer, on others nothing") {
    const Topology topology = testing::one_node(8);
    const Network network(topology, 8);
    CollectiveJob first{.schedule = all_reduce(Algorithm::ring, 400'000, 4)};
    CollectiveJob second = first;
    second.placement = {4, 5, 6, 7};
    const Duration alone = 6 * (duration_from_us(1) + duration_from_us(1));
    const auto ends = [&](const std::vector<CollectiveJob>& jobs) {
        std::vector<Duration> all;
        for (const JobRun& job : simulate_collectives(topology, network, jobs).jobs) {
            all.push_back(job.end);
        }
        return all;
    };
    CHECK(ends({first, second}) == std::vector<Duration>(2, alone));
    second.placement = {0, 1, 2, 3};
    for (const Duration end : ends({first, second})) {
        CHECK(equal_but_for_rounding(end, 6 * (duration_from_us(1) + duration_from_us(2)), 12));
    }
    // One that goes on without end is cut off.
    second.repetitions = 0;
    const std::vector<Duration> with_neighbour = ends({first, second});
    CHECK(with_neighbour.front() > alone);
    CHECK(with_neighbour.front() <= 6 * (duration_from_us(1) + duration_from_us(2)) + Duration{30});
}

TEST_CASE("one after another, collectives take as often as long") {
    const Topology topology = testing::one_node(5);
    const Network network(topology, 5);
    CollectiveJob job{.schedule = all_reduce(Algorithm::ring, 5000, 5)};
    const CollectiveRun once = simulate_collectives(topology, network, {job});
    job.repetitions = 3;
    const CollectiveRun thrice = simulate_collectives(topology, network, {job});
    CHECK(thrice.jobs.front().end == 3 * once.jobs.front().end);
    CHECK(thrice.messages == 3 * once.messages);
    CHECK(once.messages == 40);
}

TEST_CASE("memory grows with the ranks, not with the messages") {
    const auto memory = [](std::int64_t ranks) {
        return run_alone(testing::one_node(ranks), all_reduce(Algorithm::ring, ranks, ranks))
            .memory_bytes;
    };
    // 16 times the ranks, 256 times the messages.
    CHECK(memory(1024) < 20 * memory(64));
}

TEST_CASE("a lone rank has nothing to send") {
    CHECK(end_of(testing::one_node(1), all_reduce(Algorithm::ring, 1000, 1)) == Duration{0});
    CHECK(end_of(testing::one_node(1), all_reduce(Algorithm::direct, 1000, 1)) == Duration{0});
    CHECK(end_of(testing::one_node(1),
                 all_reduce(Algorithm::recursive_halving_doubling, 1000, 1)) == Duration{0});
    CHECK(end_of(testing::one_node(1), all_reduce(Algorithm::double_binary_tree, 1000, 1)) ==
          Duration{0});
}

}  // namespace
}  // namespace bucketwise
