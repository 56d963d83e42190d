// Adds instructions and collectives to a program, for steps of every kind.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/base/units.h"
#include "sim/link/collective.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"
#include "sim/workload/workload.h"

namespace bucketwise {

enum class StepPart : std::uint8_t { opening, micro_step, last_forward, closing };

// The part that the step's first instruction is in.
inline StepPart first_part(const StepInput& input, const SyncSettings& sync) {
    const Workload& workload = input.workload;
    if (sync.broadcasts_buffers && !workload.buffer_groups.empty()) {
        return StepPart::opening;
    }
    if (input.step.accumulation > 1 && !(workload.forward.empty() && workload.backward.empty())) {
        return StepPart::micro_step;
    }
    return workload.forward.empty() ? StepPart::closing : StepPart::last_forward;
}

class InstructionWriter {
  public:
    InstructionWriter(const StepInput& input, Program& program)
        : input_(input),
          workload_(input.workload),
          program_(program),
          one_queue_(input.step.one_hardware_queue && !input.workload.host_is_device) {
        program_.host_is_device = workload_.host_is_device;
    }

    // The next instruction begins the step.
    void begin_step() { launches_graph_ = input_.step.graph_launch.has_value(); }

  protected:
    // Two instructions for n updates of equal host and device time, each starting after its
    // launch. Both end when the device has run all n since it was free, or the last one since its
    // launch.
    void updates() {
        const Duration device = input_.step.optimizer / updating_ranks_;
        const Duration host = input_.step.optimizer_launch;
        if (device <= Duration{0} && host <= Duration{0}) {
            return;
        }
        if (host <= Duration{0}) {
            return add(InstructionKind::optimizer, Phase::optimizer, 0, Duration{0}, device);
        }
        const auto updates = std::max<std::int64_t>(std::ssize(workload_.gradients), 1);
        add(InstructionKind::optimizer, Phase::optimizer, 0, host / updates,
            device - device / updates);
        add(InstructionKind::optimizer, Phase::optimizer, 1, host - host / updates,
            device / updates);
    }

    void clip() {
        if (!input_.step.clipping) {
            return;
        }
        const Clipping& clipping = *input_.step.clipping;
        add(InstructionKind::clip, Phase::optimizer, 0, clipping.norm_launch,
            clipping.norm / updating_ranks_);
        if (parts_among_ || updating_ranks_ > 1) {
            wait_in(Phase::optimizer,
                    launch(CollectiveKind::all_reduce, Phase::optimizer,
                           NumbersOf{SharedNumbers::gradient_norm}, element_size(DType::float32),
                           parts_among_.value_or(CollectiveRanks{})));
        }
        program_.instructions.back().host_waits = clipping.host_waits;
        add(InstructionKind::clip, Phase::optimizer, 1, clipping.multiplication_launch,
            clipping.multiplication / updating_ranks_);
    }

    // Clips, then the optimizer's operations, or updates of one time where there are none.
    void update_parameters() {
        clip();
        const std::vector<TimedOperation>& operations = input_.step.optimizer_operations;
        for (std::size_t i = 0; i < operations.size(); ++i) {
            add(InstructionKind::optimizer, Phase::optimizer, static_cast<std::int32_t>(i),
                operations[i]);
            program_.instructions.back().device /= updating_ranks_;
        }
        if (operations.empty()) {
            updates();
        }
    }

    // A step that starts idle ends when every stream is idle.
    void join_side_streams() {
        const auto operations = std::ssize(input_.step.optimizer_operations);
        Instruction join{.kind = InstructionKind::optimizer, .phase = Phase::optimizer};
        join.subject = static_cast<std::int32_t>(std::max<std::int64_t>(operations, 1) - 1);
        join.order.after = static_cast<std::uint8_t>((2U << workload_.side_streams.size()) - 2);
        program_.instructions.push_back(join);
    }

    // Adds a collective and its launch.
    std::int32_t launch(CollectiveKind kind, Phase phase, const Cargo& cargo, Bytes bytes,
                        const CollectiveRanks& among = {}) {
        const LinkParameters& link = input_.link_of(among);
        const auto index = static_cast<std::int32_t>(program_.collectives.size());
        program_.collectives.push_back({kind, cargo, bytes,
                                        collective_time(kind, bytes, input_.group_of(among), link),
                                        interference_for(kind, link, bytes)});
        program_.collectives.back().among = among;
        add(InstructionKind::launch, phase, index, link.host_issue, Duration{0});
        return index;
    }

    void wait_in(Phase phase, std::int32_t collective) {
        add(InstructionKind::wait, phase, collective, input_.link.host_wait, Duration{0});
    }

    void add(InstructionKind kind, Phase phase, std::int32_t subject,
             const TimedOperation& operation) {
        add(kind, phase, subject, operation.host, operation.device);
        Instruction& added = program_.instructions.back();
        added.host_waits = operation.host_waits;
        added.order = operation.order;
    }

    // Sets fields in place: building instructions elsewhere makes a sweep a sixth slower.
    void add(InstructionKind kind, Phase phase, std::int32_t subject, Duration host,
             Duration device) {
        if (one_queue_ && kind != InstructionKind::launch) [[unlikely]] {
            let_launches_begin();
        }
        Instruction& added = program_.instructions.emplace_back();
        added.kind = kind;
        added.phase = phase;
        added.subject = subject;
        added.host = host;
        added.device = device;
        added.finishing = finishing_;
        if (input_.step.graph_launch) {
            added.host =
                std::exchange(launches_graph_, false) ? *input_.step.graph_launch : Duration{0};
        }
    }

    // The last launch is made ahead of its place: after that instruction, and on one hardware queue
    // once the last operation before it has begun, as the one before that has ended.
    void launch_after(std::int32_t instruction) {
        auto before = static_cast<std::int32_t>(std::ssize(program_.instructions)) - 2;
        for (bool begins = true; one_queue_ && before >= 0; --before) {
            const Instruction& earlier = program_.instructions[static_cast<std::size_t>(before)];
            const bool is_in_stream =
                !earlier.order.is_beside() && earlier.kind != InstructionKind::launch;
            if (is_in_stream && !(is_compute(earlier.kind) && std::exchange(begins, false))) {
                instruction = std::max(instruction, before);
                break;
            }
        }
        program_.instructions.back().launched_after = instruction;
    }

    // Adds nothing where copies cost nothing.
    void add_copy(Copy copy, Phase phase, std::int32_t subject, Bytes payload,
                  InstructionKind kind = InstructionKind::copy) {
        if (input_.copy_bandwidth) {
            add(kind, phase, subject, workload_.copy_launch, copy_time(payload));
            program_.instructions.back().copy = copy;
        }
    }
    [[nodiscard]] Duration copy_time(Bytes payload) const {
        return input_.copy_fixed + transfer_time(payload, *input_.copy_bandwidth);
    }

    const StepInput& input_;
    const Workload& workload_;
    Program& program_;
    bool finishing_ = false;           // of instructions that are added
    std::int64_t updating_ranks_ = 1;  // that share the optimizer's updates
    // Ranks that hold a part of the gradients each, where they share them out.
    std::optional<CollectiveRanks> parts_among_ = {};

  private:
    // On one hardware queue the compute stream goes on once the launched collectives have begun:
    // the one before on their stream, and the one that they follow, have ended. Placing a
    // result stands behind its collective in the queue, and begins with its end; here the wait is
    // a little too long, until the result is in place.
    void let_launches_begin() {
        while (begun_ < std::ssize(program_.collectives)) {
            const auto at = begun_++;
            const Collective& launched = program_.collectives[static_cast<std::size_t>(at)];
            if (launched.placing > Duration{0}) {
                wait_unnoticed(static_cast<std::int32_t>(at));
                continue;
            }
            if (launched.follows) {
                wait_unnoticed(*launched.follows);
            }
            for (std::ptrdiff_t before = at - 1; before >= 0; --before) {
                if (program_.collectives[static_cast<std::size_t>(before)].stream ==
                    launched.stream) {
                    wait_unnoticed(static_cast<std::int32_t>(before));
                    break;
                }
            }
        }
    }

    // By the device's queue: costs no host time.
    void wait_unnoticed(std::int32_t collective) {
        Instruction wait{.kind = InstructionKind::wait,
                         .phase = program_.instructions.back().phase,
                         .subject = collective};
        wait.finishing = finishing_;
        program_.instructions.push_back(wait);
    }

    bool one_queue_;
    std::ptrdiff_t begun_ = 0;     // collectives, on one hardware queue
    bool launches_graph_ = false;  // with the next instruction
};

}  // namespace bucketwise
