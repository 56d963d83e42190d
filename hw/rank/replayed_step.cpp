#include "hw/rank/replayed_step.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "sim/base/error.h"
#include "sim/base/invariant.h"
#include "sim/base/transformed.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

bool begins_micro_step(const std::vector<Instruction>& all, std::size_t at) {
    return at > 0 && all[at].phase == Phase::forward && all[at - 1].phase != Phase::forward;
}

std::int64_t micro_steps_of(const Program& program) {
    std::int64_t steps = 1;
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        steps += begins_micro_step(program.instructions, i) ? 1 : 0;
    }
    return steps;
}

class CallReader {
  public:
    CallReader(const Program& program, const ShardingRequest& request, const ShardPlan& plan)
        : program_(program),
          request_(request),
          plan_(plan),
          micro_steps_(micro_steps_of(program)),
          all_reduces_(has_all_reduce(program)) {}

    std::vector<ShardedCall> calls() && {
        for (; at_ < program_.instructions.size(); ++at_) {
            if (begins_micro_step(program_.instructions, at_)) {
                ++micro_step_;
                reduced_.clear();
            }
            calls_.push_back(call());
        }
        return std::move(calls_);
    }

  private:
    static bool has_all_reduce(const Program& program) {
        return std::ranges::find(program.collectives, CollectiveKind::all_reduce,
                                 &Collective::kind) != program.collectives.end();
    }

    [[nodiscard]] const Instruction& instruction() const { return program_.instructions[at_]; }
    [[nodiscard]] const Collective& collective(std::int32_t index) const {
        return program_.collectives[static_cast<std::size_t>(index)];
    }
    [[nodiscard]] bool is_by_module() const { return request_.strategy == ShardedStrategy::zero3; }
    // In zero3 each collective is a move of its own.
    [[nodiscard]] std::int32_t move_of(std::int32_t collective_index) const {
        return is_by_module() ? collective_index : *collective(collective_index).group;
    }

    ShardedCall call() {
        const std::int32_t subject = instruction().subject;
        switch (instruction().kind) {
            case InstructionKind::forward:
                return made(ShardedAct::forward, -1);
            case InstructionKind::backward:
                return made(ShardedAct::backward, -1);
            case InstructionKind::optimizer:
                return made(ShardedAct::optimizer, -1);
            case InstructionKind::pack:
                return sent_next() == CollectiveKind::all_gather
                           ? gathering(ShardedAct::gather_in, subject)
                           : made(ShardedAct::reduce_in, subject);
            case InstructionKind::unpack:
                return gathering(ShardedAct::gather_out, subject);
            case InstructionKind::copy_back:
                return placed(made(ShardedAct::place, subject));
            case InstructionKind::wait:
                return made(ShardedAct::wait, move_of(subject));
            case InstructionKind::launch:
                return launch(subject);
            default:
                break;
        }
        invariant(false, "an instruction of a step that is sharded");
        return {};
    }

    [[nodiscard]] ShardedCall made(ShardedAct act, std::int32_t move) const {
        return {
            .act = act, .subject = instruction().subject, .move = move, .micro_step = micro_step_};
    }

    // Backward gathers among the fewer ranks that have kept the parameters of forward.
    [[nodiscard]] ShardedCall gathering(ShardedAct act, std::int32_t move) const {
        ShardedCall gathering = made(act, move);
        gathering.among_fewer = instruction().phase == Phase::backward && request_.reshard_ranks &&
                                !is_by_module() &&
                                !plan_.groups[static_cast<std::size_t>(move)].is_root();
        return gathering;
    }

    // A pack is followed by its launch.
    [[nodiscard]] CollectiveKind sent_next() const {
        invariant(at_ + 1 < program_.instructions.size() &&
                      program_.instructions[at_ + 1].kind == InstructionKind::launch,
                  "a pack is followed by its launch");
        return collective(program_.instructions[at_ + 1].subject).kind;
    }

    ShardedCall launch(std::int32_t subject) {
        const std::int32_t move = move_of(subject);
        switch (collective(subject).kind) {
            case CollectiveKind::all_gather: {
                ShardedCall gather = gathering(ShardedAct::gather, move);
                gather.copies_in = is_by_module() || instruction().is_launched_ahead();
                gather.copies_out = is_by_module();
                return gather;
            }
            case CollectiveKind::reduce_scatter: {
                refuse_parts(move);
                ShardedCall reduce = made(ShardedAct::reduce, move);
                reduce.copies_in = is_by_module();
                return is_gone_on_with(move) ? reduce : placed(reduce);
            }
            case CollectiveKind::all_reduce: {
                ShardedCall all_reduce = made(ShardedAct::all_reduce, move);
                all_reduce.takes_kept = keeps() && micro_step_ > 0;
                return is_gone_on_with(move) ? all_reduce : placed(all_reduce);
            }
            case CollectiveKind::broadcast:
                break;
        }
        invariant(false, "a collective of a step that is sharded");
        return {};
    }

    void refuse_parts(std::int32_t move) {
        if (!reduced_.insert(move).second) {
            throw InputError("scenario", "/sync/sharding",
                             "groups that real ranks reduce at once in each backward",
                             "one that is reduced in parts, as its modules do not run together");
        }
    }

    // Whether another call works on the reduced part.
    [[nodiscard]] bool is_gone_on_with(std::int32_t move) const {
        std::size_t next = at_ + 1;
        while (next < program_.instructions.size() &&
               program_.instructions[next].kind == InstructionKind::wait) {
            ++next;
        }
        if (next == program_.instructions.size() || is_by_module()) {
            return false;
        }
        const Instruction& later = program_.instructions[next];
        return (later.kind == InstructionKind::copy_back && later.subject == move) ||
               (later.kind == InstructionKind::launch &&
                collective(later.subject).kind == CollectiveKind::all_reduce &&
                move_of(later.subject) == move);
    }

    // Whether the last micro-step all-reduces what earlier ones reduced.
    [[nodiscard]] bool keeps() const {
        return all_reduces_ && request_.all_reduce == MicroSteps::last &&
               request_.gradient_sync == MicroSteps::every;
    }

    [[nodiscard]] ShardedCall placed(ShardedCall call) const {
        if (keeps()) {
            call.placing = micro_step_ + 1 < micro_steps_ ? Placing::keeps : Placing::sets;
            return call;
        }
        const bool adds =
            micro_step_ > 0 && (is_by_module() || request_.gradient_sync == MicroSteps::every);
        call.placing = adds ? Placing::adds : Placing::sets;
        return call;
    }

    const Program& program_;
    const ShardingRequest& request_;
    const ShardPlan& plan_;
    std::int64_t micro_steps_;
    bool all_reduces_;
    std::vector<ShardedCall> calls_;
    std::size_t at_ = 0;
    std::int64_t micro_step_ = 0;
    std::set<std::int32_t> reduced_;  // moves, in this micro-step
};

void set_as_replayed(const Scenario& scenario, StepInput& input) {
    if (!input.copy_bandwidth) {
        input.copy_bandwidth = bandwidth_from_gb_per_s(1);
    }
    input.step.optimizer_launch = Duration{0};  // real launches take what they take
    if (std::holds_alternative<Optimizer>(scenario.step.optimizer)) {
        input.step.optimizer = std::max(input.step.optimizer, Duration{1});
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

ReplayedStep replayed_step(const Scenario& scenario, const StepInput& input, Cap cap) {
    ReplayedStep step{.sync = settings_of_replay(with_cap(scenario.sync, cap))};
    step.plan = make_plan(input.workload, step.sync.policy);
    step.program = build_program(input, step.sync, step.plan);
    return step;
}

ReplayedStep sharded_replay(ShardedProgram program, ShardPlan plan,
                            const ShardingRequest& request) {
    ReplayedStep step{.request = request, .shards = std::move(plan)};
    step.program = std::move(program.program);
    step.calls = CallReader(step.program, step.request, step.shards).calls();
    step.moves = request.strategy == ShardedStrategy::zero3
                     ? std::move(program.moved)
                     : transformed(step.shards.groups, &ShardGroup::parameters);
    return step;
}

ReplayedStep sharded_replay(const ShardedInput& input) {
    invariant(input.step.group.ranks > 1, "ranks that share parameters are not alone");
    ShardPlan plan = make_shard_plan(input);
    ShardedProgram built = build_sharded_program(input, plan);
    return sharded_replay(std::move(built), std::move(plan), input.request);
}

ReplayedStep computing_of(const ReplayedStep& sharded) {
    ReplayedStep computing{
        .request = sharded.request, .shards = sharded.shards, .moves = sharded.moves};
    computing.program.host_is_device = sharded.program.host_is_device;
    for (std::size_t i = 0; i < sharded.calls.size(); ++i) {
        if (sharded.calls[i].move < 0) {
            computing.program.instructions.push_back(sharded.program.instructions[i]);
            computing.calls.push_back(sharded.calls[i]);
        }
    }
    return computing;
}

}  // namespace bucketwise
