#include "sim/program/step_programs.h"

#include "sim/base/invariant.h"
#include "sim/program/program_builder.h"

namespace bucketwise {
namespace {

// Gradients stay where they are. BatchNorm exchanges statistics in every micro-step: no_sync() does
// not apply to it.
SyncSettings no_synchronisation(const SyncSettings& sync) {
    SyncSettings settings;
    settings.communicates = false;
    settings.exchanges_statistics = sync.exchanges_statistics;
    settings.broadcasts_buffers = sync.broadcasts_buffers;  // where the step begins
    settings.framework.gathers_in_forward = sync.framework.gathers_in_forward;
    return settings;
}

template <typename Build>
Program part_of(const StepInput& input, const SyncSettings& sync, const BucketPlan& plan,
                const Build& build) {
    Program program;
    ProgramBuilder builder(input, sync, plan, program);
    build(builder);
    return program;
}

}  // namespace

Program build_opening(const StepInput& input, const SyncSettings& sync) {
    return part_of(input, sync, {}, [](ProgramBuilder& builder) {
        builder.begin(StepPart::opening);
        builder.opening();
    });
}

Program build_micro_step(const StepInput& input, const SyncSettings& sync, std::int64_t number,
                         const BucketPlan& plan) {
    const bool synchronises = sync.framework.every_micro_step;
    return part_of(input, synchronises ? sync : no_synchronisation(sync), plan,
                   [&](ProgramBuilder& builder) {
                       if (number == 0) {
                           builder.begin(StepPart::micro_step);
                       } else {
                           builder.stop_gathering();
                       }
                       builder.forward();
                       if (synchronises) {
                           builder.synchronised_backward();
                       } else {
                           builder.backward_without_synchronisation();
                       }
                   });
}

Program build_last_forward(const StepInput& input, const SyncSettings& sync,
                           const BucketPlan& plan) {
    return part_of(input, no_synchronisation(sync), plan, [&](ProgramBuilder& builder) {
        builder.begin(StepPart::last_forward);
        if (input.step.accumulation > 1) {
            builder.stop_gathering();
        }
        builder.forward();
    });
}

bool depends_on_plan(const StepInput& input, const SyncSettings& sync) {
    return sync.framework.gathers_in_forward ||
           (sync.framework.every_micro_step && input.step.accumulation > 1);
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
        if (sync.framework.every_micro_step) {
            builder.synchronised_backward();
        } else {
            builder.backward_without_synchronisation();
        }
    }
    builder.forward();
    builder.closing();
    return program;
}

}  // namespace bucketwise
