#include "sim/program/step_programs.h"

#include "sim/base/invariant.h"
#include "sim/program/program_builder.h"

namespace bucketwise {
namespace {

// Gradients stay where they are. What BatchNorm exchanges, it exchanges in every micro-step, as
// no_sync() does not reach it.
SyncSettings no_synchronisation(const SyncSettings& sync) {
    SyncSettings settings;
    settings.communicates = false;
    settings.exchanges_statistics = sync.exchanges_statistics;
    settings.broadcasts_buffers = sync.broadcasts_buffers;  // where the step begins
    return settings;
}

template <typename Build>
Program without_buckets(const StepInput& input, const SyncSettings& sync, const Build& build) {
    Program program;
    const BucketPlan no_buckets;
    ProgramBuilder builder(input, sync, no_buckets, program);
    build(builder);
    return program;
}

}  // namespace

Program build_opening(const StepInput& input, const SyncSettings& sync) {
    return without_buckets(input, sync, [](ProgramBuilder& builder) {
        builder.begin(StepPart::opening);
        builder.opening();
    });
}

Program build_micro_step(const StepInput& input, const SyncSettings& sync, std::int64_t number) {
    return without_buckets(input, no_synchronisation(sync), [&](ProgramBuilder& builder) {
        if (number == 0) {
            builder.begin(StepPart::micro_step);
        }
        builder.forward();
        builder.backward_without_synchronisation();
    });
}

Program build_last_forward(const StepInput& input, const SyncSettings& sync) {
    return without_buckets(input, no_synchronisation(sync), [](ProgramBuilder& builder) {
        builder.begin(StepPart::last_forward);
        builder.forward();
    });
}

void build_closing(const StepInput& input, const SyncSettings& sync, const BucketPlan& plan,
                   Program& program) {
    program.instructions.clear();
    program.collectives.clear();
    ProgramBuilder builder(input, sync, plan, program);
    builder.begin(StepPart::closing);
    builder.closing();
}

Program build_program(const StepInput& input, const SyncSettings& sync, const BucketPlan& plan) {
    invariant(input.step.accumulation >= 1, "a step has a micro-step");
    Program program;
    ProgramBuilder builder(input, sync, plan, program);
    builder.begin_step();
    builder.opening();
    for (std::int64_t i = 1; i < input.step.accumulation; ++i) {
        builder.forward();
        builder.backward_without_synchronisation();
    }
    builder.forward();
    builder.closing();
    return program;
}

}  // namespace bucketwise
