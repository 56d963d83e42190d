#include "hw/record/step_trace.h"

#include <array>

#include "sim/base/invariant.h"

namespace bucketwise {

namespace {

Duration finishing_on_host(const Program& program, const StepTrace& trace) {
    const std::vector<Interval>& host = trace.host.empty() ? trace.instructions : trace.host;
    invariant(host.size() == program.instructions.size(),
              "a host that is not the device has an interval per instruction");
    std::optional<Duration> begin;
    Duration end{0};
    for (std::size_t i = 0; i < host.size(); ++i) {
        if (program.instructions[i].finishing) {
            begin = begin.value_or(host[i].begin);
            end = host[i].end;
        }
    }
    return begin ? end - *begin : Duration{0};
}

}  // namespace

MeasuredStep summarize(const Program& program, const StepTrace& trace) {
    invariant(trace.instructions.size() == program.instructions.size(),
              "a trace has an interval per instruction");
    // In the order of Phase.
    constexpr std::array of_phase{&MeasuredStep::forward, &MeasuredStep::backward,
                                  &MeasuredStep::optimizer};
    MeasuredStep measured;
    Duration previous{0};
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        const Instruction& instruction = program.instructions[i];
        const Interval& interval = trace.instructions[i];
        const Duration elapsed = interval.end - previous;
        previous = interval.end;
        measured.*of_phase.at(static_cast<std::size_t>(instruction.phase)) += elapsed;
        if (instruction.kind == InstructionKind::wait) {
            measured.waiting += interval.length();
        }
        if (instruction.finishing) {
            measured.finishing += elapsed;
        }
    }
    measured.finishing_host = finishing_on_host(program, trace);
    return measured;
}

}  // namespace bucketwise
