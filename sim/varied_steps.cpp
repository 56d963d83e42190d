#include "sim/varied_steps.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace bucketwise {

double Normal::operator()() {
    constexpr double two_pi = 6.283185307179586;
    constexpr double furthest_sigmas = 4.0;
    const double radius = std::sqrt(-2 * std::log(uniform()));
    const double deviate = radius * std::cos(two_pi * uniform());
    return std::clamp(deviate, -furthest_sigmas, furthest_sigmas);
}

double Normal::uniform() {
    constexpr unsigned unused_bits = 11;
    return (static_cast<double>(bits_() >> unused_bits) + 1) * 0x1.0p-53;
}

void scale_computing(StepInput& input, double factor) {
    for (auto* pass : {&input.workload.forward, &input.workload.backward}) {
        for (TimedOperation& operation : *pass) {
            operation.device = scaled(operation.device, factor);
        }
    }
    input.step.optimizer = scaled(input.step.optimizer, factor);
}

void vary_operations(StepInput& input, const Variation& variation, Normal& normal) {
    scale_computing(input, 1 + variation.compute_spread * normal());
    for (auto* pass : {&input.workload.forward, &input.workload.backward}) {
        for (TimedOperation& operation : *pass) {
            operation.device = scaled(operation.device, 1 + variation.operation_spread * normal());
        }
    }
}

void vary_collectives(Program& program, const Variation& variation, Normal& normal) {
    for (Collective& collective : program.collectives) {
        collective.time = scaled(collective.time, 1 + variation.collective_spread * normal());
    }
}

VariedSteps::VariedSteps(StepInput input, SyncSettings sync, BucketPlan plan)
    : input_(std::move(input)),
      sync_(std::move(sync)),
      plan_(std::move(plan)),
      normal_(input_.variation.value_or(Variation{}).seed) {}

Program VariedSteps::next() {
    if (!input_.variation) {
        return build_program(input_, sync_, plan_);
    }
    StepInput varied = input_;
    vary_operations(varied, *input_.variation, normal_);
    Program program = build_program(varied, sync_, plan_);
    vary_collectives(program, *input_.variation, normal_);
    return program;
}

}  // namespace bucketwise
