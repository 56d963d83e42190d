// Single steps under the measured variation from step to step.
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

// All computing, including the optimizer but not side streams, takes `factor` times as long.
void scale_computing(StepInput& input, double factor);

// The slowdown of the slowest of `ranks` ranks in one step, drawn exactly. Each rank's factor is 1
// + rank_spread z, with z standard normal, and with straggler_probability straggler_slowdown times
// that. The largest of p factors is below x with probability F(x)^p, so one inverted uniform number
// draws it, and 100,000 ranks cost as much as two.
//
// The slowest rank stands for all: ranks meet in collectives only, and each moment of a step is a
// maximum of sums of earlier ones. A rank whose every operation takes longer is therefore the last
// at every collective, and the step is that of ranks that are all as slow. Assumptions: no
// interference, where any computing rank slows a collective (all ranks begin to compute at the same
// moments, so the slowest is the one still computing, apart from shifts by the host's launches);
// operation_spread, which each rank draws on its own, is drawn for the slowest rank only; a rank's
// speed in one step is independent of the next. In a loop that does not start from idle, the rank
// that is slow before the last collective may be another one after it: the result is then too slow
// by at most the ranks' differences in the optimizer and the next forward.
double slowest_factor(std::int64_t ranks, const Variation& variation, double uniform);

// The classes (empty: equal ranks) in one step of `ranks` ranks, each with its slowest rank drawn.
// Unchanged if ranks do not vary.
std::vector<RankClass> varied_classes(std::vector<RankClass> classes, std::int64_t ranks,
                                      const Variation& variation, Normal& normal);

// Varies one step's computing as a whole, by operation, and by rank.
void vary_operations(StepInput& input, const Variation& variation, Normal& normal);
void vary_collectives(Program& program, const Variation& variation, Normal& normal);

// The slowest rank's program of one step after another; the same input gives the same steps. Equal
// steps without a variation.
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
