// Single steps under the variation that was measured from step to step.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"
#include "sim/workload/variation.h"

namespace bucketwise {

// Standard normal deviates within 4 sigmas, the same with every standard library (Box and Muller
// 1958).
class Normal {
  public:
    explicit Normal(std::uint64_t seed) : bits_(seed) {}
    double operator()();
    double uniform();  // above 0, up to 1

  private:
    std::mt19937_64 bits_;
};

// All computing, the optimizer included, but nothing of side streams, takes `factor` times as long.
void scale_computing(StepInput& input, double factor);

// How much slower than alone the slowest of `ranks` ranks computes in a step, drawn exactly: each
// rank's factor is 1 + rank_spread z, with z standard normal, and with straggler_probability
// straggler_slowdown times that. The largest of p such factors is below x with the probability
// F(x)^p, so that one uniform number, inverted, is a draw of it, and 100,000 ranks cost as much as
// two.
//
// Why the slowest stands for all: ranks meet in collectives only, and each moment of a step is a
// maximum of sums of what came before it, so a rank whose every operation takes longer is the last
// at every collective, and the step is the one that all ranks would take if they were as slow. What
// is assumed with it: no interference, where a collective in flight is slowed by any rank that
// computes (all of them begin to compute at the same moments, so that the slowest is the one still
// computing, but for what the host's launches shift); operation_spread, which each rank draws on
// its own, is drawn for the slowest rank only; and a rank's speed in one step says nothing of the
// next. In a loop whose
// steps do not start from idle, who is slow before the last collective need not be so after it: the
// slowest of both is too slow by up to what ranks differ in the optimizer and the next forward.
double slowest_factor(std::int64_t ranks, const Variation& variation, double uniform);

// The classes in one step of `ranks` ranks (none: they are all alike), each with its slowest rank
// drawn. Nothing changes where ranks do not vary.
std::vector<RankClass> varied_classes(std::vector<RankClass> classes, std::int64_t ranks,
                                      const Variation& variation, Normal& normal);

// One step's computing, as a whole, operation by operation, and rank by rank.
void vary_operations(StepInput& input, const Variation& variation, Normal& normal);
void vary_collectives(Program& program, const Variation& variation, Normal& normal);

// One step after another, all of the slowest rank's program: the same input gives the same steps.
// Without a variation they are all alike.
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
