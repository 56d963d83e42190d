#include "hw/record/step_trace.h"

#include "tests/catch.h"

namespace bucketwise {
namespace {

Duration us(std::int64_t count) {
    return std::chrono::microseconds(count);
}

// Backward, then the call that finishes synchronisation: a launch and a wait, then the optimizer.
Program program_of_a_step() {
    Program program;
    program.instructions = {
        {.kind = InstructionKind::forward, .phase = Phase::forward},
        {.kind = InstructionKind::backward, .phase = Phase::backward},
        {.kind = InstructionKind::launch, .phase = Phase::backward, .finishing = true},
        {.kind = InstructionKind::wait, .phase = Phase::backward, .finishing = true},
        {.kind = InstructionKind::optimizer, .phase = Phase::optimizer}};
    program.collectives.resize(1);
    return program;
}

TEST_CASE(
    "finishing is what the device takes after backward, and what the host spends in the call") {
    StepTrace trace;
    trace.instructions = {
        {us(0), us(10)}, {us(10), us(30)}, {us(31), us(32)}, {us(33), us(50)}, {us(50), us(55)}};
    trace.collectives = {{us(32), us(50)}};
    // The host runs the instructions itself: from its first launch to the end of its wait.
    MeasuredStep step = summarize(program_of_a_step(), trace);
    CHECK(step.finishing == us(20));       // 30 to 50
    CHECK(step.finishing_host == us(19));  // 31 to 50
    CHECK(step.backward == us(40));        // which it is a part of
    CHECK(step.waiting == us(17));
    // A host that runs ahead of a GPU: it only enqueues, in 3 us.
    trace.host = {{us(0), us(1)}, {us(1), us(2)}, {us(2), us(4)}, {us(4), us(5)}, {us(5), us(6)}};
    step = summarize(program_of_a_step(), trace);
    CHECK(step.finishing == us(20));
    CHECK(step.finishing_host == us(3));
}

}  // namespace
}  // namespace bucketwise
