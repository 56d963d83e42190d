#include "sim/link/collective.h"

#include <cmath>

#include "tests/catch.h"

namespace bucketwise {
namespace {

LinkParameters link_of(Algorithm algorithm) {
    LinkParameters link;
    link.name = "test";
    link.algorithm = algorithm;
    link.segments = {{Bytes{1000}, duration_from_us(10), {1'000'000'000}},
                     {std::nullopt, duration_from_us(20), {2'000'000'000}}};
    link.launch = duration_from_us(3);
    return link;
}

double us(CollectiveKind kind, Algorithm algorithm, std::int64_t bytes, std::int64_t ranks) {
    return to_us(collective_time(kind, {bytes}, {ranks, ranks}, link_of(algorithm)));
}

TEST_CASE("ring all-reduce takes 2(p-1) steps and 2(p-1)/p of the bytes") {
    // p = 4, n = 4000 > 1000: 3 + 6 x 20 + 1.5 x 4000 / 2 GB/s (= 3 us) = 126 us.
    CHECK(us(CollectiveKind::all_reduce, Algorithm::ring, 4000, 4) == Approx(126.0));
    // n = 1000 is still in the first segment: 3 + 6 x 10 + 1.5 x 1000 / 1 GB/s (= 1.5 us) = 64.5
    // us.
    CHECK(us(CollectiveKind::all_reduce, Algorithm::ring, 1000, 4) == Approx(64.5));
}

TEST_CASE("direct all-reduce takes two rounds whatever the number of ranks") {
    // p = 4, n = 4000: 3 + 2 x 20 + 3 = 46 us. The bytes are the ring's.
    CHECK(us(CollectiveKind::all_reduce, Algorithm::direct, 4000, 4) == Approx(46.0));
    CHECK(wire_cost(CollectiveKind::all_reduce, Algorithm::direct, 1000).steps == 2);
}

TEST_CASE(
    "recursive halving and doubling takes 2 log2 p steps, and folds what exceeds a power of two") {
    // p = 8, n = 8000: steps 6, bytes 2 x 7/8 x 8000 = 14,000 at 2 GB/s = 7 us: 3 + 120 + 7 = 130
    // us.
    CHECK(us(CollectiveKind::all_reduce, Algorithm::recursive_halving_doubling, 8000, 8) ==
          Approx(130.0));
    // p = 6, q = 4: steps 4 + 2, bytes 2 x 3/4 n + 2 n = 3.5 x 8000 = 28,000 = 14 us: 3 + 120 + 14
    // = 137.
    CHECK(us(CollectiveKind::all_reduce, Algorithm::recursive_halving_doubling, 8000, 6) ==
          Approx(137.0));
    // Reduce-scatter, p = 6: steps 2 + 2, bytes 3/4 n + n + n/6 = 23/12 x 8000 = 15,333 B = 7.667
    // us.
    CHECK(us(CollectiveKind::reduce_scatter, Algorithm::recursive_halving_doubling, 8000, 6) ==
          Approx(3 + 80 + 23.0 / 12 * 4));
}

TEST_CASE("double binary tree all-reduce takes 2 ceil(log2 p) steps and twice the bytes") {
    // p = 5: ceil(log2 5) = 3, 6 steps: 3 + 120 + 2 x 8000 / 2 GB/s (= 8 us) = 131 us.
    CHECK(us(CollectiveKind::all_reduce, Algorithm::double_binary_tree, 8000, 5) == Approx(131.0));
}

TEST_CASE("reduce-scatter and all-gather are the two halves of an all-reduce") {
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::direct}) {
        for (const std::int64_t p : {2, 3, 4, 7, 64}) {
            const WireCost whole = wire_cost(CollectiveKind::all_reduce, algorithm, p);
            const WireCost first = wire_cost(CollectiveKind::reduce_scatter, algorithm, p);
            const WireCost second = wire_cost(CollectiveKind::all_gather, algorithm, p);
            CHECK(first.steps + second.steps == whole.steps);
            CHECK(first.messages + second.messages == whole.messages);
            CHECK((first.wire.numerator + second.wire.numerator) * whole.wire.denominator ==
                  whole.wire.numerator * first.wire.denominator);
        }
    }
}

TEST_CASE("no all-reduce moves less than the lower bound of 2(p-1)/p") {
    for (const Algorithm algorithm :
         {Algorithm::ring, Algorithm::direct, Algorithm::recursive_halving_doubling,
          Algorithm::double_binary_tree}) {
        for (std::int64_t p = 2; p <= 130; ++p) {
            const Share wire = wire_cost(CollectiveKind::all_reduce, algorithm, p).wire;
            CHECK(wire.numerator * p >= 2 * (p - 1) * wire.denominator);
        }
    }
}

TEST_CASE("what a message takes of its sender is paid for each, and a meeting once") {
    const auto us_with = [](Algorithm algorithm, CollectiveKind kind, std::int64_t ranks) {
        LinkParameters link = link_of(algorithm);
        const Duration before = collective_time(kind, {8000}, {ranks, ranks}, link);
        link.meeting = duration_from_us(100);
        link.message = duration_from_us(1);
        return to_us(collective_time(kind, {8000}, {ranks, ranks}, link) - before);
    };
    constexpr auto all_reduce = CollectiveKind::all_reduce;
    // p = 8: 100 for the meeting. Direct: 7 messages in each of 2 steps; ring: 1 in each of 14.
    CHECK(us_with(Algorithm::direct, all_reduce, 8) == Approx(100 + 14));
    CHECK(us_with(Algorithm::ring, all_reduce, 8) == Approx(100 + 14));
    // p = 6: 4 steps of halving and doubling, 2 of folding.
    CHECK(us_with(Algorithm::recursive_halving_doubling, all_reduce, 6) == Approx(100 + 6));
    // p = 5: 3 levels, 1 message up and 2 down at each.
    CHECK(us_with(Algorithm::double_binary_tree, all_reduce, 5) == Approx(100 + 9));
    CHECK(us_with(Algorithm::double_binary_tree, CollectiveKind::broadcast, 5) == Approx(100 + 6));
    CHECK(us_with(Algorithm::direct, CollectiveKind::broadcast, 8) == Approx(100 + 7));
    CHECK(us_with(Algorithm::ring, CollectiveKind::all_gather, 8) == Approx(100 + 7));
    // Nobody to meet, nothing to send.
    CHECK(us_with(Algorithm::direct, all_reduce, 1) == 0);
}

TEST_CASE("ranks that share the processors of one machine take turns on them") {
    LinkParameters link = link_of(Algorithm::ring);
    link.meeting = duration_from_us(100);
    link.processors = 4;
    const auto time = [&](std::int64_t ranks) {
        return to_us(collective_time(CollectiveKind::all_reduce, {4000}, {ranks, ranks}, link));
    };
    // Equally many ranks and processors: 3 + 100 + 6 x 20 + 3 = 226 us, as without.
    CHECK(time(4) == Approx(226));
    // 6 ranks: 10 x 20 + 10/6 x 2 = 203.333 us take 6/4 times as long, launch and meeting do not.
    CHECK(time(6) == Approx(103 + 305));
    CHECK(time(1) == Approx(3));
}

OwnNumbers own_of(double launch_us, double latency_us, std::int64_t bytes_per_second) {
    return {
        .segments = {{.latency = duration_from_us(latency_us), .bandwidth = {bytes_per_second}}},
        .launch = duration_from_us(launch_us)};
}

TEST_CASE("all-gathers and reduce-scatters cost by their own numbers where there are some") {
    LinkParameters link = link_of(Algorithm::ring);
    link.meeting = duration_from_us(100);
    link.all_gather = own_of(7, 2, 4'000'000'000);
    const auto time = [&](CollectiveKind kind, std::int64_t ranks = 4) {
        return to_us(collective_time(kind, {8000}, {ranks, ranks}, link));
    };
    // p = 4, 3 steps and 6,000 bytes: 7 + 100 + 3 x 2 + 6000 / 4 GB/s (= 1.5) = 114.5 us.
    CHECK(time(CollectiveKind::all_gather) == Approx(114.5));
    // By the link's own: 3 + 100 + 3 x 20 + 6000 / 2 GB/s (= 3) = 166; twice the steps and bytes;
    // of a broadcast 8,000 bytes.
    CHECK(time(CollectiveKind::reduce_scatter) == Approx(166));
    CHECK(time(CollectiveKind::all_reduce) == Approx(103 + 120 + 6));
    CHECK(time(CollectiveKind::broadcast) == Approx(103 + 60 + 4));
    link.reduce_scatter = own_of(0, 1, 1'000'000'000);
    CHECK(time(CollectiveKind::reduce_scatter) == Approx(100 + 3 + 6));
    // Messages and processors stay the link's: 3 messages of 5 us, and all of it twice as long.
    link.message = duration_from_us(5);
    link.processors = 2;
    CHECK(time(CollectiveKind::all_gather) == Approx(107 + 2 * (6 + 15 + 1.5)));
    CHECK(time(CollectiveKind::all_gather, 1) == 7);
}

TEST_CASE("what tiers measured of reduce-scatters and all-gathers serves the stages of all") {
    LinkParameters link;
    link.algorithm = Algorithm::hierarchical;
    link.tiers = {link_of(Algorithm::ring), link_of(Algorithm::ring)};
    link.tiers[0].all_gather = own_of(1, 2, 4'000'000'000);
    const auto time = [&](CollectiveKind kind) {
        return to_us(collective_time(kind, {8000}, {8, 2}, link));
    };
    // 4 nodes of 2. Within a node 1 step and 4,000 bytes: by the link's numbers 3 + 20 + 2 = 25 us,
    // of an all-gather 1 + 2 + 1 = 4. Between nodes, 4,000 bytes: 6 steps and 6,000 bytes of an
    // all-reduce, 3 + 120 + 3 = 126; half of it but for the launch of an all-gather, 64.5.
    CHECK(time(CollectiveKind::all_reduce) == Approx(25 + 126 + 4));
    CHECK(time(CollectiveKind::all_gather) == Approx(4 + 64.5));
    CHECK(time(CollectiveKind::reduce_scatter) == Approx(25 + 64.5));
}

TEST_CASE("own interference is of its kind only") {
    LinkParameters link = link_of(Algorithm::ring);
    link.interference = constant_interference({1'100'000, 1'200'000});
    link.reduce_scatter.interference = constant_interference({1'300'000, 1'400'000});
    const auto of = [&](CollectiveKind kind) { return interference_for(kind, link, {8}); };
    CHECK(of(CollectiveKind::all_reduce) == Interference{1'100'000, 1'200'000});
    CHECK(of(CollectiveKind::all_gather) == Interference{1'100'000, 1'200'000});
    CHECK(of(CollectiveKind::broadcast) == Interference{1'100'000, 1'200'000});
    CHECK(of(CollectiveKind::reduce_scatter) == Interference{1'300'000, 1'400'000});
    link.interference.clear();
    CHECK(of(CollectiveKind::all_gather) == Interference{});
    CHECK(interferes(link));
}

TEST_CASE("a direct exchange grows with the ranks only by its messages, a ring by its steps too") {
    LinkParameters link = link_of(Algorithm::direct);
    link.message = duration_from_us(1);
    const auto time = [&](Algorithm algorithm, std::int64_t ranks) {
        link.algorithm = algorithm;
        return to_us(collective_time(CollectiveKind::all_reduce, {0}, {ranks, ranks}, link));
    };
    // Two ranks: both are one exchange to and fro, 3 + 2 x (10 + 1) us.
    CHECK(time(Algorithm::direct, 2) == Approx(25));
    CHECK(time(Algorithm::ring, 2) == Approx(25));
    // 4,096 ranks: 3 + 2 x 10 + 8,190 x 1 = 8,213 us and 3 + 8,190 x 11 = 90,093 us.
    CHECK(time(Algorithm::direct, 4096) == Approx(8213));
    CHECK(time(Algorithm::ring, 4096) == Approx(90093));
}

TEST_CASE("one rank takes no steps and only pays the launch") {
    for (const Algorithm algorithm :
         {Algorithm::ring, Algorithm::direct, Algorithm::recursive_halving_doubling,
          Algorithm::double_binary_tree}) {
        CHECK(us(CollectiveKind::all_reduce, algorithm, 1 << 20, 1) == 3.0);
    }
}

TEST_CASE("broadcast follows its algorithm") {
    // p = 8, n = 8000 at 2 GB/s = 4 us per n.
    CHECK(us(CollectiveKind::broadcast, Algorithm::ring, 8000, 8) == Approx(3 + 7 * 20 + 4));
    CHECK(us(CollectiveKind::broadcast, Algorithm::direct, 8000, 8) == Approx(3 + 20 + 7 * 4));
    CHECK(us(CollectiveKind::broadcast, Algorithm::recursive_halving_doubling, 8000, 8) ==
          Approx(3 + 60 + 3 * 4));
    CHECK(us(CollectiveKind::broadcast, Algorithm::double_binary_tree, 8000, 8) ==
          Approx(3 + 60 + 4));
}

TEST_CASE(
    "hierarchical all-reduce: reduce-scatter in the node, all-reduce of a shard, all-gather") {
    LinkParameters link;
    link.algorithm = Algorithm::hierarchical;
    link.tiers = {link_of(Algorithm::ring), link_of(Algorithm::double_binary_tree)};
    link.launch = duration_from_us(5);
    // 4 nodes of 2, n = 8000. Intra ring of 2, each way: 3 + 1 x 20 + 1/2 x 4 = 25 us.
    // Inter tree of 4 on 4000 bytes: 3 + 4 x 20 + 2 x 4000 / 2 GB/s (= 4) = 87 us. 5 + 25 + 87 + 25
    // = 142.
    CHECK(to_us(collective_time(CollectiveKind::all_reduce, {8000}, {8, 2}, link)) ==
          Approx(142.0));
    // One node: no inter stage. 5 + 2 x (3 + 7 x 20 + 7/8 x 4) = 298 us for 8 ranks.
    CHECK(to_us(collective_time(CollectiveKind::all_reduce, {8000}, {8, 8}, link)) ==
          Approx(298.0));
    // One rank per node: only the inter stage, of all bytes. 5 + 3 + 6 x 20 + 2 x 4 = 136 us.
    CHECK(to_us(collective_time(CollectiveKind::all_reduce, {8000}, {8, 1}, link)) ==
          Approx(136.0));
}

}  // namespace
}  // namespace bucketwise
