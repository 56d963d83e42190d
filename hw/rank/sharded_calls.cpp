#include "hw/rank/sharded_calls.h"

#include <optional>
#include <set>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

class CallReader {
  public:
    CallReader(const Program& program, const ShardingRequest& request)
        : program_(program), request_(request) {}

    std::vector<ShardedCall> calls() && {
        for (; at_ < program_.instructions.size(); ++at_) {
            begin_micro_step();
            calls_.push_back(call());
        }
        return std::move(calls_);
    }

  private:
    [[nodiscard]] const Instruction& instruction() const { return program_.instructions[at_]; }
    [[nodiscard]] const Collective& collective(std::int32_t index) const {
        return program_.collectives[static_cast<std::size_t>(index)];
    }

    void begin_micro_step() {
        const bool is_next = at_ > 0 && instruction().phase == Phase::forward &&
                             program_.instructions[at_ - 1].phase != Phase::forward;
        if (is_next) {
            ++micro_step_;
            reduced_.clear();
        }
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
                return made(sent_next() == CollectiveKind::all_gather ? ShardedAct::gather_in
                                                                      : ShardedAct::reduce_in,
                            subject);
            case InstructionKind::unpack:
                return made(ShardedAct::gather_out, subject);
            case InstructionKind::copy_back: {
                ShardedCall placing = made(ShardedAct::place, subject);
                placing.adds = micro_step_ > 0 && request_.gradient_sync == MicroSteps::every;
                return placing;
            }
            case InstructionKind::wait:
                return made(ShardedAct::wait, *collective(subject).group);
            case InstructionKind::launch:
                return launch(subject, *collective(subject).group);
            default:
                break;
        }
        invariant(false, "an instruction of a step that is sharded");
        return {};
    }

    [[nodiscard]] ShardedCall made(ShardedAct act, std::int32_t group) const {
        return {.act = act,
                .subject = instruction().subject,
                .group = group,
                .micro_step = micro_step_};
    }

    // Where the host is the device, what is packed is sent at once.
    [[nodiscard]] CollectiveKind sent_next() const {
        invariant(at_ + 1 < program_.instructions.size() &&
                      program_.instructions[at_ + 1].kind == InstructionKind::launch,
                  "what is packed is sent");
        return collective(program_.instructions[at_ + 1].subject).kind;
    }

    ShardedCall launch(std::int32_t subject, std::int32_t group) {
        if (collective(subject).kind == CollectiveKind::all_gather) {
            return made(ShardedAct::gather, group);
        }
        invariant(collective(subject).kind == CollectiveKind::reduce_scatter,
                  "groups are gathered or reduced");
        if (!reduced_.insert(group).second) {
            throw InputError("scenario", "/sync/sharding",
                             "groups that real ranks reduce at once in each backward",
                             "one that is reduced in parts, as its modules do not run together");
        }
        ShardedCall reducing = made(ShardedAct::reduce, group);
        reducing.is_placed = !is_placed_later(group);
        return reducing;
    }

    // Before anything else is sent.
    [[nodiscard]] bool is_placed_later(std::int32_t group) const {
        for (std::size_t next = at_ + 1; next < program_.instructions.size(); ++next) {
            const Instruction& later = program_.instructions[next];
            if (later.kind == InstructionKind::launch) {
                return false;
            }
            if (later.kind == InstructionKind::copy_back && later.subject == group) {
                return true;
            }
        }
        return false;
    }

    const Program& program_;
    const ShardingRequest& request_;
    std::vector<ShardedCall> calls_;
    std::size_t at_ = 0;
    std::int64_t micro_step_ = 0;
    std::set<std::int32_t> reduced_;  // groups, in this micro-step
};

}  // namespace

std::vector<ShardedCall> sharded_calls(const Program& program, const ShardingRequest& request) {
    return CallReader(program, request).calls();
}

ShardedReplay sharded_replay(const ShardedInput& input) {
    invariant(input.step.workload.host_is_device && input.step.group.ranks > 1,
              "ranks that compute and communicate by themselves, and not alone");
    ShardedReplay replay{.request = input.request, .plan = make_shard_plan(input)};
    replay.program = build_sharded_program(input, replay.plan).program;
    replay.calls = sharded_calls(replay.program, replay.request);
    return replay;
}

Program computing_of(const Program& program) {
    Program computing;
    computing.host_is_device = program.host_is_device;
    for (const Instruction& instruction : program.instructions) {
        if (is_compute(instruction.kind) && !is_copy(instruction.kind)) {
            computing.instructions.push_back(instruction);
        }
    }
    return computing;
}

}  // namespace bucketwise
