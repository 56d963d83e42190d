#include "sim/engine/varied_steps.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/program/step_programs.h"

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

namespace {

// The probability of a standard normal deviate above z.
double above(double z) {
    return 0.5 * std::erfc(z / std::sqrt(2.0));
}

// The probability that one rank's factor is above x. Precondition: there is a rank_spread.
double factor_above(double x, const Variation& variation) {
    const auto alone_above = [&](double factor) {
        return above((factor - 1) / variation.rank_spread);
    };
    const double probability = variation.straggler_probability;
    return (1 - probability) * alone_above(x) +
           probability * alone_above(x / variation.straggler_slowdown);
}

}  // namespace

double slowest_factor(std::int64_t ranks, const Variation& variation, double uniform) {
    if (!ranks_vary(variation)) {
        return 1;
    }
    // 1 - u^(1/p), precise also where tiny.
    const double tail = -std::expm1(std::log(uniform) / static_cast<double>(ranks));
    if (variation.rank_spread <= 0) {
        return tail < variation.straggler_probability ? variation.straggler_slowdown : 1;
    }
    // The furthest deviate that a double's uniform number gives.
    constexpr double furthest_sigmas = 40;
    double low = 0;
    double high = variation.straggler_slowdown * (1 + furthest_sigmas * variation.rank_spread);
    constexpr int halvings = 64;
    for (int i = 0; i < halvings && low < high; ++i) {
        const double middle = (low + high) / 2;
        (factor_above(middle, variation) > tail ? low : high) = middle;
    }
    return high;
}

std::vector<RankClass> varied_classes(std::vector<RankClass> classes, std::int64_t ranks,
                                      const Variation& variation, Normal& normal) {
    if (!ranks_vary(variation)) {
        return classes;
    }
    if (classes.empty()) {
        classes = {{.ranks = ranks}};
    }
    for (RankClass& alike : classes) {
        alike.compute_slowdown *= slowest_factor(alike.ranks, variation, normal.uniform());
    }
    return classes;
}

void scale_computing(StepInput& input, double factor) {
    for (auto* pass :
         {&input.workload.forward, &input.workload.backward, &input.step.optimizer_operations}) {
        for (TimedOperation& operation : *pass) {
            if (!operation.order.is_beside()) {
                operation.device = scaled(operation.device, factor);
            }
        }
    }
    input.step.optimizer = scaled(input.step.optimizer, factor);
}

void vary_operations(StepInput& input, const Variation& variation, Normal& normal) {
    scale_computing(input, 1 + variation.compute_spread * normal());
    for (auto* pass : {&input.workload.forward, &input.workload.backward}) {
        for (TimedOperation& operation : *pass) {
            if (!operation.order.is_beside()) {
                operation.device =
                    scaled(operation.device, 1 + variation.operation_spread * normal());
            }
        }
    }
    input.classes = varied_classes(std::move(input.classes), input.all_ranks(), variation, normal);
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
        return on_slowest_rank(build_program(input_, sync_, plan_), input_.classes);
    }
    StepInput varied = input_;
    vary_operations(varied, *input_.variation, normal_);
    Program program = build_program(varied, sync_, plan_);
    vary_collectives(program, *input_.variation, normal_);
    return on_slowest_rank(std::move(program), varied.classes);
}

}  // namespace bucketwise
