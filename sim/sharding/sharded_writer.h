// The common part of sharded steps: the walk through the modules, and collectives of groups.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/base/units.h"
#include "sim/link/collective.h"
#include "sim/program/instruction_writer.h"
#include "sim/program/program.h"
#include "sim/sharding/shard_plan.h"
#include "sim/sharding/sharded_input.h"

namespace bucketwise {

class ShardedWriter : public InstructionWriter {
  protected:
    using Call = std::vector<GroupCall>::const_iterator;

    ShardedWriter(const StepInput& input, const ShardPlan& plan, MicroStepPlace place,
                  ShardedProgram& built)
        : InstructionWriter(input, built.program),
          plan_(plan),
          place_(place),
          memory_(built.memory) {
        if (!is_alone()) {  // replicas hold the same shards, and have the same norm
            parts_among_ = {.communicator = Among::sharing};
        }
    }

    [[nodiscard]] bool is_first() const {
        return place_ == MicroStepPlace::only || place_ == MicroStepPlace::first;
    }
    [[nodiscard]] bool is_last() const {
        return place_ == MicroStepPlace::only || place_ == MicroStepPlace::last;
    }
    // Whether an earlier micro-step left gradients to add to.
    [[nodiscard]] bool adds_to_earlier() const { return !is_first(); }
    [[nodiscard]] bool is_alone() const { return input_.group.ranks == 1; }

    // Runs the operations of a pass, enters and leaves groups on the way, and hands over each
    // gradient that becomes ready.
    template <typename Enter, typename Leave, typename Ready>
    void walk(Phase phase, const Enter& enter, const Leave& leave, const Ready& is_ready) {
        phase_ = phase;
        const bool forward = phase == Phase::forward;
        const std::vector<TimedOperation>& operations =
            forward ? workload_.forward : workload_.backward;
        const std::vector<GroupCall>& calls = forward ? plan_.forward : plan_.backward;
        auto next = calls.begin();
        std::vector<GroupCall> open;
        std::size_t ready = 0;
        for (std::size_t i = 0; i <= operations.size(); ++i) {
            while (!open.empty() && open.back().end <= i) {
                leave(open.back().group);
                open.pop_back();
            }
            if (i == operations.size()) {
                return;
            }
            for (; next != calls.end() && next->first == i; ++next) {
                enter(next);
                open.push_back(*next);
                std::ranges::stable_sort(open, std::ranges::greater{}, &GroupCall::end);
            }
            add(forward ? InstructionKind::forward : InstructionKind::backward, phase,
                static_cast<std::int32_t>(i), operations[i]);
            for (std::int32_t k = 0; !forward && k < operations[i].ready_count; ++k) {
                is_ready(static_cast<std::size_t>(workload_.readiness[ready++]));
            }
        }
    }

    std::int32_t launch(CollectiveKind kind, const ShardsOf& shards, Bytes bytes,
                        const CollectiveRanks& among = {.communicator = Among::sharing}) {
        return InstructionWriter::launch(kind, phase_, shards, bytes, among);
    }

    const ShardPlan& plan_;
    MicroStepPlace place_;
    ShardedMemory& memory_;
    Phase phase_ = Phase::forward;
};

}  // namespace bucketwise
