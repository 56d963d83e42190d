#include "hw/rank/replayed_step.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "sim/base/invariant.h"
#include "sim/program/framework.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

void set_as_replayed(const Scenario& scenario, StepInput& input) {
    if (!input.copy_bandwidth) {
        input.copy_bandwidth = bandwidth_from_gb_per_s(1);
    }
    input.step.optimizer_launch = Duration{0};  // real launches take what they take
    if (std::holds_alternative<Optimizer>(scenario.step.optimizer)) {
        // Parts of it, too.
        input.step.optimizer = std::max(input.step.optimizer, Duration{input.group.ranks});
    }
}

}  // namespace

StepInput replay_input(const Scenario& scenario) {
    StepInput input = step_input(scenario);
    set_as_replayed(scenario, input);
    return input;
}

ShardedInput sharded_replay_input(const Scenario& scenario, const ShardingRequest& setting,
                                  bool on_host) {
    ShardedInput input = sharded_input(scenario);
    set_as_replayed(scenario, input.step);
    input.step.workload.host_is_device = on_host;
    input.request = setting;
    return input;
}

SyncSettings without_synchronisation() {
    SyncRequest none;
    none.strategy = Strategy::none;
    return settings_of_replay(none);
}

ReplayedStep replayed_step(const Scenario& scenario, const StepInput& input, Cap cap,
                           MakePlan make_plan) {
    ReplayedStep step{.sync = settings_of_replay(with_cap(scenario.sync, cap), input)};
    step.plan = make_plan(input, step.sync);
    step.program = build_program(input, step.sync, step.plan);
    return step;
}

ReplayedStep sharded_replay(const ShardedInput& input) {
    invariant(input.step.group.ranks > 1, "ranks that share parameters are not alone");
    ReplayedStep step{.request = input.request, .shards = make_shard_plan(input)};
    ShardedProgram built = build_sharded_program(input, step.shards);
    step.program = std::move(built.program);
    step.moves = std::move(built.moves);
    step.moves_share_buffers = built.moves_share_buffers;
    return step;
}

ReplayedStep computing_of(ReplayedStep computing) {
    computing.program.collectives.clear();
    std::erase_if(computing.program.instructions, [](const Instruction& instruction) {
        return is_copy(instruction.kind) || !is_compute(instruction.kind);
    });
    return computing;
}

}  // namespace bucketwise
