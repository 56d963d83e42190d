// How fast the chunk-level engine handles messages: ring all-reduces of 16 to 4,096 ranks on one
// switch, beside the least that a simulation of the same messages must do. Reports, asserts
// nothing.
//   build/release/tests/bench/bucketwise_bench --benchmark_filter=ring
#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <tuple>
#include <vector>

#include <benchmark/benchmark.h>

#include "sim/link/network/chunk_engine.h"
#include "sim/link/network/network.h"

namespace bucketwise {
namespace {

constexpr std::int64_t bytes_per_message = 65536;

Topology one_switch(std::int64_t ranks) {
    Topology topology;
    topology.regular = RegularTopology{};
    topology.regular->node = {
        .gpus = ranks, .latency = duration_from_us(2), .bandwidth = bandwidth_from_gb_per_s(100)};
    return topology;
}

// All-reduces one after another, so that every run handles about as many messages and none is spent
// on setting up.
std::int64_t repetitions(std::int64_t ranks) {
    constexpr std::int64_t messages_of_a_run = 2'000'000;
    return std::max<std::int64_t>(messages_of_a_run / (2 * ranks * (ranks - 1)), 1);
}

void chunk_level_ring(benchmark::State& state) {
    const std::int64_t ranks = state.range(0);
    const Topology topology = one_switch(ranks);
    const Network network(topology, ranks);
    const CollectiveJob job{.schedule = {.bytes = {ranks * bytes_per_message}, .ranks = ranks},
                            .repetitions = repetitions(ranks)};
    std::uint64_t messages = 0;
    std::size_t memory = 0;
    for (auto _ : state) {
        const CollectiveRun run = simulate_collectives(topology, network, {job});
        messages += run.messages;
        memory = run.memory_bytes;
        benchmark::DoNotOptimize(run.jobs.front().end);
    }
    state.counters["messages"] =
        benchmark::Counter(static_cast<double>(messages), benchmark::Counter::kIsRate);
    state.counters["memory_kib"] = static_cast<double>(memory) / 1024;
}
BENCHMARK(chunk_level_ring)->RangeMultiplier(4)->Range(16, 4096)->Unit(benchmark::kMillisecond);

// The floor: a priority queue, one event for each message, and nothing that knows of links, sizes
// or what a rank waits for.
void priority_queue_ring(benchmark::State& state) {
    const auto ranks = static_cast<std::uint32_t>(state.range(0));
    const std::uint64_t steps =
        2 * (ranks - std::uint64_t{1}) * static_cast<std::uint64_t>(repetitions(ranks));
    struct Arrival {
        std::int64_t time;
        std::uint64_t sequence;
        std::uint32_t rank;
        std::uint32_t step;
        bool operator>(const Arrival& other) const {
            return time != other.time ? time > other.time : sequence > other.sequence;
        }
    };
    constexpr std::int64_t message_time = 2'655'360;
    std::uint64_t messages = 0;
    for (auto _ : state) {
        std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> queue;
        std::uint64_t sequence = 0;
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            queue.push({message_time, sequence++, (rank + 1) % ranks, 1});
        }
        while (!queue.empty()) {
            const Arrival arrival = queue.top();
            queue.pop();
            ++messages;
            if (arrival.step < steps) {
                const std::uint32_t next = arrival.rank + 1 < ranks ? arrival.rank + 1 : 0;
                queue.push({arrival.time + message_time, sequence++, next, arrival.step + 1});
            }
        }
        benchmark::DoNotOptimize(sequence);
    }
    state.counters["messages"] =
        benchmark::Counter(static_cast<double>(messages), benchmark::Counter::kIsRate);
}
BENCHMARK(priority_queue_ring)->RangeMultiplier(4)->Range(16, 4096)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace bucketwise
