// The division by the number of ranks, the dtype on the wire, and the memory that a collective
// moves.
#include <variant>

#include "hw/compute/arena.h"
#include "hw/compute/gradient_pattern.h"
#include "hw/measure/measurer.h"
#include "hw/rank/replay_rank.h"
#include "sim/program/step_programs.h"
#include "tests/catch.h"
#include "tests/hw/rank/small_scenario.h"

namespace bucketwise {
namespace {

SyncSettings with_hook(CommHook hook, bool copies_in) {
    SyncSettings sync;
    sync.comm_hook = hook;
    sync.copies_in = copies_in;
    return sync;
}

TEST_CASE("a hook casts what is wider than 16 bits, and nothing else changes its dtype") {
    for (const DType dtype : every<DType>) {
        CHECK(wire_dtype(CommHook::none, dtype) == dtype);
    }
    for (const DType dtype : {DType::float16, DType::bfloat16}) {
        CHECK(wire_dtype(CommHook::fp16, dtype) == dtype);
        CHECK(wire_dtype(CommHook::bf16, dtype) == dtype);
    }
    for (const DType dtype : {DType::float32, DType::float64}) {
        CHECK(wire_dtype(CommHook::fp16, dtype) == DType::float16);
        CHECK(wire_dtype(CommHook::bf16, dtype) == DType::bfloat16);
    }
}

TEST_CASE("every gradient is divided by the number of ranks exactly once") {
    for (const CommHook hook : {CommHook::none, CommHook::fp16, CommHook::bf16}) {
        for (const bool copies_in : {false, true}) {
            const ReplayRules rules(with_hook(hook, copies_in), 4);
            for (const DType dtype : every<DType>) {
                const double cast = rules.casts(dtype) ? rules.mean_factor() : 1;
                const double copy = copies_in ? rules.copy_in_factor(dtype) : 1;
                const double collective = rules.collective_averages(dtype) ? 0.25 : 1;
                CHECK(cast * copy * collective == 0.25);
            }
        }
    }
}

TEST_CASE("what travels in 16 bits may be further from the mean") {
    const ReplayRules rules(with_hook(CommHook::fp16, true), 2);
    CHECK(rules.tolerance(DType::float32, 3) == rounding_tolerance(2, 3, DType::float16));
    CHECK(rules.tolerance(DType::bfloat16, 3) == rounding_tolerance(2, 3, DType::bfloat16));
}

TEST_CASE("a collective moves buffers, the map of unused parameters, or a bucket as it travels") {
    Scenario scenario = testing::small_scenario(2);
    std::get<ModelWorkload>(scenario.workload).model = "resnet18";
    std::get<ModelWorkload>(scenario.workload).input = {.batch = 1, .image_size = 32};
    scenario.sync.comm_hook = CommHook::bf16;
    scenario.sync.find_unused_parameters = true;
    const StepInput input = replay_input(scenario);
    const SyncSettings sync = settings_of_replay(scenario.sync);
    const BucketPlan plan =
        make_plan(input.workload.gradients, input.workload.readiness, sync.policy);
    const Program program = build_program(input, sync, plan);
    ReplayMemory<Arena> memory(input.workload, sync);
    memory.buffers.arrange(plan);
    std::size_t groups = 0;
    std::int32_t buckets = 0;
    int maps = 0;
    for (std::size_t i = 0; i < program.collectives.size(); ++i) {
        const RankExchange exchange = memory.exchange_of(program, static_cast<std::int32_t>(i),
                                                         plan, {}, ReplayRules(sync, 2));
        if (exchange.kind == CollectiveKind::broadcast) {
            CHECK(exchange == RankExchange{.kind = CollectiveKind::broadcast,
                                           .own = memory.broadcast.at(groups).at(0),
                                           .size = input.workload.buffer_groups[groups].size});
            ++groups;
        } else if (exchange.own != memory.unused_map.at(0)) {
            // bfloat16 takes half of a float32 bucket's bytes.
            const Bytes size = plan.buckets[static_cast<std::size_t>(buckets)].size;
            CHECK(exchange == RankExchange{.own = memory.buffers.compressed(buckets),
                                           .size = {size.count / 2},
                                           .dtype = DType::bfloat16});
            ++buckets;
        } else {
            CHECK(exchange.elements() == std::ssize(input.workload.gradients));
            ++maps;
        }
    }
    CHECK(groups == input.workload.buffer_groups.size());
    CHECK(buckets == std::ssize(plan.buckets));
    CHECK(maps == 1);
}

}  // namespace
}  // namespace bucketwise
