// Small sharded steps, reckoned by hand.
#include "sim/sharding/sharded_step.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "sim/engine/step_loop.h"
#include "tests/catch.h"
#include "tests/sim/sharding/random_sharded_step.h"

namespace bucketwise {
namespace {

Duration ms(std::int64_t count) {
    return std::chrono::milliseconds{count};
}

// Two layers of 2,000,000 bytes each. At 1 GB/s two ranks gather one in 1 ms, and reduce it in as
// long: half of it travels.
StepInput two_layers() {
    StepInput input;
    for (const char* name : {"layers.0.weight", "layers.1.weight"}) {
        input.workload.gradients.push_back({name, 500'000, DType::float32, false, 500'000});
    }
    input.workload.forward = {{.name = "layers.0", .device = ms(3)},
                              {.name = "layers.1", .device = ms(3)}};
    input.workload.backward = {{.name = "layers.1", .device = ms(6), .ready_count = 1},
                               {.name = "layers.0", .device = ms(6), .ready_count = 1}};
    input.workload.readiness = {1, 0};
    input.group.ranks = 2;
    input.link.segments = {{std::nullopt, Duration{0}, bandwidth_from_gb_per_s(1)}};
    return input;
}

StepTimes times_of(const ShardedInput& input) {
    return settled_times(build_sharded_program(input, make_shard_plan(input)).program, {});
}

TEST_CASE("an all-gather is hidden behind the layer before it", "[sharding]") {
    // Forward waits for the first layer's, 1 ms. The second layer, gathered last in forward, is
    // freed and gathered again as soon as the host says so, beside what is left of forward. The
    // first layer's is hidden by 6 ms of backward, and so is the second's reduce-scatter; the
    // first's is not.
    const StepTimes times = times_of({two_layers(), {}});
    CHECK(times.forward == ms(1 + 3 + 3));
    CHECK(times.backward == ms(6 + 6 + 1));
}

TEST_CASE("kept after forward, nothing is gathered in backward", "[sharding]") {
    ShardedInput input{two_layers(), {}};
    input.request.reshard_after_forward = false;
    CHECK(times_of(input).step() == ms(7 + 6 + 6 + 1));
}

TEST_CASE("where the host is the device every collective is waited for", "[sharding]") {
    ShardedInput input{two_layers(), {}};
    input.step.workload.host_is_device = true;
    // Six of a millisecond each: two in forward, two in backward, two reductions.
    CHECK(times_of(input).step() == ms(18 + 6));
    // But all-gathers that are asked for ahead of time: the second in forward, the first in
    // backward. Backward's second has nothing to hide behind.
    input.request.asynchronous_unshard = true;
    input.request.forward_prefetch = 1;
    CHECK(times_of(input).step() == ms(18 + 4));
}

TEST_CASE("hsdp's all-reduces follow their reduce-scatters and hinder no other", "[sharding]") {
    ShardedInput input{two_layers(), {}};
    input.request.strategy = ShardedStrategy::hsdp;
    input.step.replicas.group = {2, 1};
    // A shard of 1,000,000 bytes among two at 0.25 GB/s: 2 (p-1)/p of it, 4 ms.
    input.step.replicas.link.segments = {
        {std::nullopt, Duration{0}, bandwidth_from_gb_per_s(0.25)}};
    // The second layer's from 13 + 1 to 18 ms, while the first computes until 19; then a
    // millisecond of reduce-scatter and four of all-reduce.
    CHECK(times_of(input).step() == ms(7 + 6 + 6 + 1 + 4));
    // With 8 ms each the second layer's ends at 22, and the first's, ready at 20, follows it.
    input.step.replicas.link.segments = {
        {std::nullopt, Duration{0}, bandwidth_from_gb_per_s(0.125)}};
    CHECK(times_of(input).step() == ms(7 + 6 + 1 + 8 + 8));
    const ShardedProgram built = build_sharded_program(input, make_shard_plan(input));
    CHECK(built.program.collectives.size() == 4 + 2 + 2);
}

TEST_CASE("zero3 gathers ahead as far as it may, and frees what is not used again soon",
          "[sharding]") {
    ShardedInput input{two_layers(), {}};
    input.request.strategy = ShardedStrategy::zero3;
    Zero3Settings& zero3 = input.request.zero3;
    zero3 = {.prefetch_elements = 0,
             .persistence_threshold = 0,
             .max_live_parameters = 1'000'000'000,
             .max_reuse_distance = 0,
             .reduce_bucket_elements = 500'000};
    // Nothing is prefetched, but the host asks for all in turn and its stream waits for no
    // computing: 1 ms for the first; all else is there when it is needed. A bucket is reduced when
    // the next gradient comes, so both are after the end of backward.
    CHECK(times_of(input).step() == ms(1 + 6 + 12 + 2));
    // Parameters used again within all elements stay: two all-gathers instead of four.
    const auto gathers = [&] {
        const Program program = build_sharded_program(input, make_shard_plan(input)).program;
        return std::ranges::count(program.collectives, CollectiveKind::all_gather,
                                  &Collective::kind);
    };
    CHECK(gathers() == 4);
    zero3.max_reuse_distance = 2'000'000;
    CHECK(gathers() == 2);
    // One bucket for both: one reduction of 2 ms after backward.
    zero3.reduce_bucket_elements = 1'000'000;
    CHECK(times_of(input).step() == ms(1 + 6 + 12 + 2));
    // Small ones are always there, and gathered after the optimizer, both in one: 2 ms.
    zero3.persistence_threshold = 500'000;
    CHECK(times_of(input).step() == ms(6 + 12 + 2 + 2));
}

TEST_CASE("zero3 prefetches both layers in one all-gather where they fit", "[sharding]") {
    ShardedInput input{two_layers(), {}};
    input.request.strategy = ShardedStrategy::zero3;
    input.request.zero3 = {.prefetch_elements = 1'000'000,
                           .persistence_threshold = 0,
                           .max_live_parameters = 500'000,
                           .max_reuse_distance = 0,
                           .reduce_bucket_elements = 1};
    const Program tight = build_sharded_program(input, make_shard_plan(input)).program;
    // No room beside the layer that is there.
    CHECK(tight.collectives.front().bytes == Bytes{2'000'000});
    CHECK(std::ranges::count(tight.collectives, CollectiveKind::all_gather, &Collective::kind) ==
          4);
}

// So many collectives of a kind.
std::ptrdiff_t count_of(CollectiveKind kind, const StepInput& input) {
    const ShardedInput sharded{input, {}};
    const Program program = build_sharded_program(sharded, make_shard_plan(sharded)).program;
    return std::ranges::count(program.collectives, kind, &Collective::kind);
}

TEST_CASE("each group is gathered and reduced though gradients become ready at one moment",
          "[sharding]") {
    StepInput input = two_layers();
    const auto gradient = [&](std::size_t i) { return input.workload.gradients[i]; };
    const Workload both_at_once =
        workload_from_readiness({{gradient(0), ms(5)}, {gradient(1), ms(5)}}, ms(4), ms(6));
    input.workload = with_passes_by_gradient(both_at_once);
    CHECK(count_of(CollectiveKind::reduce_scatter, input) == 2);
    CHECK(count_of(CollectiveKind::all_gather, input) == 4);
    Duration forward{0};
    Duration backward{0};
    for (const TimedOperation& operation : input.workload.forward) {
        forward += operation.device;
    }
    for (const TimedOperation& operation : input.workload.backward) {
        backward += operation.device;
    }
    CHECK(forward == ms(4));
    CHECK(backward == ms(6));
}

TEST_CASE("a group whose gradients do not follow one another is reduced once, with all of them",
          "[sharding]") {
    StepInput input = two_layers();
    input.workload.gradients.push_back({"layers.1.bias", 500, DType::float32, false, 500});
    // The second layer's bias is ready after the first layer's weight.
    input.workload.backward.push_back({.name = "layers.1 bias", .device = ms(1), .ready_count = 1});
    input.workload.readiness = {1, 0, 2};
    CHECK(count_of(CollectiveKind::reduce_scatter, input) == 2);
    const ShardedInput sharded{input, {}};
    const ShardedMemory memory = sharded_memory(sharded, make_shard_plan(sharded));
    for (const Bytes held : memory.now) {
        CHECK(held >= Bytes{0});
    }
    CHECK(memory.now[static_cast<std::size_t>(ShardedTensor::gradients)] == Bytes{0});
    CHECK(memory.now[static_cast<std::size_t>(ShardedTensor::reduced)] == Bytes{0});
}

TEST_CASE("a sharded program priced anew on other links is the one built for them", "[sharding]") {
    std::mt19937 random(29);
    for (int round = 0; round < 200; ++round) {
        ShardedInput input{testing::random_blocks(random), testing::random_sharding(random)};
        input.request.strategy = static_cast<ShardedStrategy>(round % 3);
        input.step.group.ranks = 4;
        if (input.request.strategy == ShardedStrategy::hsdp) {
            input.step.replicas = {{3, 1}, input.step.link};
        } else if (round % 2 == 0 && input.request.reshard_after_forward) {
            input.request.reshard_ranks = 2;
        }
        Program program = build_sharded_program(input, make_shard_plan(input)).program;
        input.step.link.segments.front().bandwidth = bandwidth_from_gb_per_s(3);
        input.step.link.interference = constant_interference({2'000'000, 3'000'000});
        input.step.replicas.link.launch = Duration{7};
        set_collective_costs(program, input.step);
        CHECK(program == build_sharded_program(input, make_shard_plan(input)).program);
    }
}

TEST_CASE("interference conserves the work of sharded steps, on 500 of them", "[sharding]") {
    std::mt19937 random(23);
    for (int round = 0; round < 500; ++round) {
        ShardedInput input{testing::random_blocks(random), testing::random_sharding(random)};
        const auto ppm = [&] {
            return std::uniform_int_distribution<std::int64_t>(1'000'000, 3'000'000)(random);
        };
        input.step.link.interference = constant_interference({ppm(), ppm()});
        if (round % 2 == 0) {
            input.request.strategy = ShardedStrategy::hsdp;
            input.step.replicas = {{3, 1}, input.step.link};
        }
        const Program program = build_sharded_program(input, make_shard_plan(input)).program;
        const Simulation simulation = simulate({&program, 1}, Record::timeline);
        Duration alone{0};
        Duration in_flight{0};
        Duration computing{0};
        Duration computed{0};
        std::vector<Duration> last_end(communication_streams, Duration{0});
        std::vector<Duration> ends(program.collectives.size());
        for (const Span& span : simulation.timeline.spans) {
            const auto subject = static_cast<std::size_t>(span.subject);
            if (span.track == Track::communication) {
                const Collective& collective = program.collectives[subject];
                const auto stream = static_cast<std::size_t>(collective.stream);
                CHECK(span.start >= last_end[stream]);
                CHECK(span.end - span.start >= collective.time);
                if (collective.follows) {
                    CHECK(span.start >= ends[static_cast<std::size_t>(*collective.follows)]);
                }
                last_end[stream] = ends[subject] = span.end;
                alone += collective.time;
                in_flight += span.end - span.start;
            } else if (span.track == Track::compute) {
                computing += program.instructions[subject].device;
                computed += span.end - span.start;
            }
        }
        const Interference slowdown = input.step.link.interference.front().slowdown;
        CHECK(in_flight <= stretched(alone, slowdown.communication_slowdown_ppm) +
                               Duration{2 * std::ssize(simulation.timeline.spans)});
        CHECK(computed >= computing);
        CHECK(computed <= stretched(computing, slowdown.compute_slowdown_ppm) +
                              Duration{2 * std::ssize(simulation.timeline.spans)});
        CHECK(std::ranges::count(simulation.timeline.spans, Track::communication, &Span::track) ==
              std::ssize(program.collectives));
    }
}

}  // namespace
}  // namespace bucketwise
