// The division by the number of ranks, the dtype on the wire, and the memory that a collective
// moves.
#include <variant>

#include "hw/compute/arena.h"
#include "hw/measure/measurer.h"
#include "hw/rank/rank_memory.h"
#include "sim/engine/bucket_planner.h"
#include "tests/catch.h"
#include "tests/hw/rank/small_scenario.h"

namespace bucketwise {
namespace {

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

// How often each gradient of the first bucket is divided on its way.
std::vector<int> divisions(const Scenario& scenario) {
    const ReplayedStep step = replayed_step(scenario, replay_input(scenario), {}, plan_of);
    const Bucket& bucket = step.plan.buckets.front();
    const Collective& collective = step.program.collectives.front();
    const int collectives = collective.averages || collective.before.how == Copying::averaging;
    std::vector<int> of_gradient(bucket.gradients.size(), collectives);
    for (const Instruction& instruction : step.program.instructions) {
        if (instruction.copy.how != Copying::averaging) {
            continue;
        }
        const bool is_one = instruction.copy.route == CopyRoute::gradient_to_bucket;
        for (std::size_t i = 0; i < of_gradient.size(); ++i) {
            of_gradient[i] += instruction.subject == (is_one ? bucket.gradients[i] : 0) ? 1 : 0;
        }
    }
    return of_gradient;
}

TEST_CASE("every gradient is divided by the number of ranks exactly once") {
    for (const Strategy strategy : every<Strategy>) {
        for (const CommHook hook : every<CommHook>) {
            for (const DType dtype : every<DType>) {
                for (const int copies : {0, 1, 2}) {
                    Scenario scenario = testing::small_scenario(4);
                    std::get<ModelWorkload>(scenario.workload).dtype = dtype;
                    scenario.sync.strategy = strategy;
                    scenario.sync.comm_hook = hook;
                    scenario.sync.fused_copies = copies == 1;
                    scenario.sync.batched_grad_copy = copies == 2;
                    if (strategy != Strategy::none) {
                        const std::vector<int> found = divisions(scenario);
                        CHECK(found == std::vector<int>(found.size(), 1));
                    }
                }
            }
        }
    }
}

TEST_CASE("a collective moves buffers, the map of unused parameters, or a bucket as it travels") {
    Scenario scenario = testing::small_scenario(2);
    std::get<ModelWorkload>(scenario.workload).model = "resnet18";
    std::get<ModelWorkload>(scenario.workload).input = {.batch = 1, .image_size = 32};
    scenario.sync.comm_hook = CommHook::bf16;
    scenario.sync.find_unused_parameters = true;
    const StepInput input = replay_input(scenario);
    const ReplayedStep step = replayed_step(scenario, input, {}, plan_of);
    TensorSource source{.make = shared_block};
    const RankMemory memory(scenario, input.workload, step.sync, rank_place(scenario, 0, 2),
                            source);
    std::int32_t groups = 0;
    std::int32_t buckets = 0;
    int maps = 0;
    for (std::size_t i = 0; i < step.program.collectives.size(); ++i) {
        const RankExchange exchange =
            memory.exchange(step.program, static_cast<std::int32_t>(i), {});
        if (exchange.kind == CollectiveKind::broadcast) {
            const Transfer out = memory.transfer(CopyRoute::received_to_buffers, groups);
            CHECK(exchange.own == out.from(out.tensors.front()));
            CHECK(exchange.size ==
                  input.workload.buffer_groups[static_cast<std::size_t>(groups)].size);
            ++groups;
        } else if (exchange.own != memory.unused_map()) {
            // bfloat16 takes half of a float32 bucket's bytes.
            const Bytes size = step.plan.buckets[static_cast<std::size_t>(buckets)].size;
            CHECK(exchange == RankExchange{.own = memory.gradients().compressed(buckets),
                                           .size = {size.count / 2},
                                           .dtype = DType::bfloat16});
            ++buckets;
        } else {
            CHECK(exchange.elements() == std::ssize(input.workload.gradients));
            ++maps;
        }
    }
    CHECK(groups == std::ssize(input.workload.buffer_groups));
    CHECK(buckets == std::ssize(step.plan.buckets));
    CHECK(maps == 1);
}

}  // namespace
}  // namespace bucketwise
