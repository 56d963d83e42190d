// The traced ranks of one run, and of each the steps that are taken: those that do the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "import/source/findings.h"
#include "import/trace/steps.h"
#include "sim/base/statistics.h"
#include "sim/base/units.h"

namespace bucketwise {

// A trace without its events.
struct TracedRank : TraceHead {
    std::vector<TracedStep> steps;
    bool uses_fp8 = false;  // scaled matrix products, by their names
    bool operator==(const TracedRank&) const = default;
};

// Throws InputError as traced_steps() does.
TracedRank traced_rank(const ProfilerTrace& trace);

using Steps = std::vector<const TracedStep*>;

struct TracedRun {
    std::vector<TracedRank> ranks;
    std::vector<Steps> steps = {};  // by rank, those of `ranks` that are taken
    std::size_t primary = 0;        // the rank that the others wait for, whose steps are replayed
    std::string group = {};         // the process group that reduces gradients
    // Standard deviation of a rank's computing from step to step, each rank on its own, as a share;
    // none: it is not told.
    std::optional<double> rank_spread = {};
    bool unused_map = false;  // DDP's map of unused parameters comes after the last bucket

    [[nodiscard]] const TracedRank& rank() const { return ranks[primary]; }
    [[nodiscard]] const Steps& alike() const { return steps[primary]; }
    [[nodiscard]] const TracedStep& first() const { return *alike().front(); }
    // Its median over these steps.
    [[nodiscard]] Duration typical(Duration TracedStep::*part) const {
        return median_of(alike(), [&](const TracedStep* step) { return step->*part; });
    }
};

// How many gradients became ready in the step.
std::size_t gradients_of(const TracedStep& step);

// Throws InputError for traces that are not of different ranks of one run.
void check_ranks(const std::vector<TracedRank>& ranks);

// Fills in the run's steps and primary rank: of each rank, the steps that most steps are like.
void choose_steps(TracedRun& run, Findings& findings);

}  // namespace bucketwise
