// Single steps under the variation that was measured from step to step.
#pragma once

#include <cstdint>
#include <random>

#include "sim/plan.h"
#include "sim/program.h"
#include "sim/strategy.h"
#include "sim/variation.h"

namespace bucketwise {

// Standard normal deviates within 4 sigmas, the same with every standard library (Box and Muller
// 1958).
class Normal {
  public:
    explicit Normal(std::uint64_t seed) : bits_(seed) {}
    double operator()();

  private:
    double uniform();  // above 0, up to 1

    std::mt19937_64 bits_;
};

// All computing, the optimizer included, takes `factor` times as long.
void scale_computing(StepInput& input, double factor);

// One step's computing, as a whole and operation by operation.
void vary_operations(StepInput& input, const Variation& variation, Normal& normal);
void vary_collectives(Program& program, const Variation& variation, Normal& normal);

// One step after another, all of one rank's program: the same input gives the same steps. Without a
// variation they are all alike.
class VariedSteps {
  public:
    VariedSteps(StepInput input, SyncSettings sync, BucketPlan plan);
    Program next();

  private:
    StepInput input_;
    SyncSettings sync_;
    BucketPlan plan_;
    Normal normal_;
};

}  // namespace bucketwise
