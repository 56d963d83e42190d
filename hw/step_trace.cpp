#include "hw/step_trace.h"

#include "sim/invariant.h"

namespace bucketwise {

MeasuredStep summarize(const Program& program, const StepTrace& trace) {
    invariant(trace.instructions.size() == program.instructions.size(),
              "a trace has an interval per instruction");
    MeasuredStep measured;
    Duration previous{0};
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        const Instruction& instruction = program.instructions[i];
        const Interval& interval = trace.instructions[i];
        const Duration elapsed = interval.end - previous;
        previous = interval.end;
        switch (instruction.phase) {
            case Phase::forward:
                measured.forward += elapsed;
                break;
            case Phase::backward:
                measured.backward += elapsed;
                break;
            case Phase::optimizer:
                measured.optimizer += elapsed;
                break;
        }
        if (instruction.kind == InstructionKind::wait) {
            measured.waiting += interval.length();
        }
    }
    return measured;
}

}  // namespace bucketwise
