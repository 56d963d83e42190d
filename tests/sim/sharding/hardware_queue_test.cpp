// Steps on one hardware queue against a queue of our own, which takes the instructions of a step
// with queues enough one by one.
#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/program/step_programs.h"
#include "sim/sharding/sharded_step.h"
#include "tests/catch.h"
#include "tests/sim/engine/random_step.h"
#include "tests/sim/sharding/random_sharded_step.h"

namespace bucketwise {
namespace {

// The first in the queue holds up all others until it begins. Copies before a gather ahead hold
// up nothing, and are held up by operations alone; a result is in place before others begin.
Duration end_on_one_queue(const Program& program) {
    Duration host{0};
    Duration begun{0};  // the last that the queue gave out
    Duration operation_begun{0};
    Duration computed{0};
    std::array<Duration, communication_streams> communicated{};
    std::vector<Duration> collective_ends(program.collectives.size());
    std::vector<Duration> ends;
    for (const Instruction& instruction : program.instructions) {
        host += instruction.host;
        const auto subject = static_cast<std::size_t>(instruction.subject);
        if (instruction.kind == InstructionKind::launch) {
            const Collective& collective = program.collectives[subject];
            Duration& free = communicated[static_cast<std::size_t>(collective.stream)];
            if (collective.follows) {
                free =
                    std::max(free, collective_ends[static_cast<std::size_t>(*collective.follows)]);
            }
            Duration ready = std::max(host, computed);
            if (instruction.is_launched_ahead()) {
                const std::int32_t after = instruction.launched_after;
                ready = std::max(host, operation_begun);
                ready = after < 0 ? ready : std::max(ready, ends[static_cast<std::size_t>(after)]);
                begun = std::max({begun, ready, free});
                ready += instruction.device;
            } else {
                begun = std::max({begun, ready, free});
            }
            free = std::max(ready, free) + collective.time;
            collective_ends[subject] = free;
            if (collective.placing > Duration{0}) {
                begun = std::max(begun, free + collective.placing);
            }
            ends.push_back(ready);
            continue;
        }
        begun = std::max({begun, host, computed});
        if (instruction.kind == InstructionKind::wait) {
            begun =
                std::max(begun, collective_ends[subject] + program.collectives[subject].placing);
        }
        operation_begun = begun;
        computed = begun + instruction.device;
        ends.push_back(computed);
    }
    return computed;
}

TEST_CASE("DDP on one hardware queue is what a queue gives, on 1,000 random steps", "[queue]") {
    std::mt19937 random(11);
    int longer = 0;
    for (int round = 0; round < 1000; ++round) {
        RandomStep step = random_step(random);
        step.input.workload.host_is_device = false;
        const Program queues = build_program(step.input, step.sync, step.plan);
        step.input.step.one_hardware_queue = true;
        const Program one = build_program(step.input, step.sync, step.plan);
        const Duration expected = end_on_one_queue(queues);
        REQUIRE(simulate_times(one, {}).step() == expected);
        REQUIRE(simulate({&one, 1}, Record::times_only).progress.front().times.step() == expected);
        longer += expected > simulate_times(queues, {}).step() ? 1 : 0;
    }
    // A late start of computing matters little while collectives are behind anyway.
    CHECK(longer > 10);
    CHECK(longer < 500);
}

TEST_CASE("FSDP2 on one hardware queue is what a queue gives, on 1,000 random steps", "[queue]") {
    std::mt19937 random(12);
    int longer = 0;
    for (int round = 0; round < 1000; ++round) {
        StepInput input = testing::random_blocks(random);
        input.step.accumulation = 1;
        const ShardingRequest request = testing::random_sharding(random);
        const auto built = [&] {
            const ShardPlan plan = make_shard_plan(input.workload, request, input.group.ranks);
            return build_sharded_micro_step(input, request, plan, MicroStepPlace::only).program;
        };
        const Program queues = built();
        input.step.one_hardware_queue = true;
        const Program one = built();
        const Duration expected = end_on_one_queue(queues);
        CAPTURE(round);
        REQUIRE(simulate_times(one, {}).step() == expected);
        REQUIRE(simulate({&one, 1}, Record::times_only).progress.front().times.step() == expected);
        longer += expected > simulate_times(queues, {}).step() ? 1 : 0;
    }
    CHECK(longer > 300);
}

TEST_CASE("on a host that is the device there is no queue") {
    std::mt19937 random(13);
    RandomStep step = random_step(random);
    step.input.workload.host_is_device = true;
    const Program before = build_program(step.input, step.sync, step.plan);
    step.input.step.one_hardware_queue = true;
    CHECK(build_program(step.input, step.sync, step.plan) == before);
}

}  // namespace
}  // namespace bucketwise
