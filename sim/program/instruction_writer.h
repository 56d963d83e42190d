// Adds instructions and collectives to a program: what every step is put together with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "sim/base/units.h"
#include "sim/link/collective.h"
#include "sim/program/program.h"
#include "sim/workload/workload.h"

namespace bucketwise {

class InstructionWriter {
  public:
    InstructionWriter(const StepInput& input, Program& program)
        : input_(input), workload_(input.workload), program_(program) {
        program_.host_is_device = workload_.host_is_device;
    }

    // What is added next begins the step.
    void begin_step() { launches_graph_ = input_.step.graph_launch.has_value(); }

  protected:
    // n updates of equal host and device time, each no earlier than it is launched, end as these
    // two do: when the device has run all n since it was free, or the last one since it was
    // launched.
    void updates() {
        const Duration device = input_.step.optimizer;
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

    // The optimizer's operations, or else updates of one time.
    void update_parameters() {
        const std::vector<TimedOperation>& operations = input_.step.optimizer_operations;
        for (std::size_t i = 0; i < operations.size(); ++i) {
            add(InstructionKind::optimizer, Phase::optimizer, static_cast<std::int32_t>(i),
                operations[i]);
        }
        if (operations.empty()) {
            updates();
        }
    }

    // A step that starts idle ends when nothing is left of it anywhere.
    void join_side_streams() {
        const auto operations = std::ssize(input_.step.optimizer_operations);
        Instruction join{InstructionKind::optimizer, Phase::optimizer,
                         static_cast<std::int32_t>(std::max<std::int64_t>(operations, 1) - 1)};
        join.order.after = static_cast<std::uint8_t>((2U << workload_.side_streams.size()) - 2);
        program_.instructions.push_back(join);
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

    // Field by field, in place: whole ones put together elsewhere take a sweep a sixth longer.
    void add(InstructionKind kind, Phase phase, std::int32_t subject, Duration host,
             Duration device) {
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

    // Nothing where copies cost nothing.
    void add_copy(InstructionKind kind, Phase phase, std::int32_t subject, Bytes payload) {
        if (input_.copy_bandwidth) {
            add(kind, phase, subject, workload_.copy_launch, copy_time(payload));
        }
    }
    [[nodiscard]] Duration copy_time(Bytes payload) const {
        return input_.copy_fixed + transfer_time(payload, *input_.copy_bandwidth);
    }

    const StepInput& input_;
    const Workload& workload_;
    Program& program_;
    bool finishing_ = false;  // what is added

  private:
    bool launches_graph_ = false;  // with the next instruction
};

}  // namespace bucketwise
