// The traced ranks of one run and, for each rank, the steps that do the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "import/source/findings.h"
#include "import/trace/steps.h"
#include "sim/base/dtype.h"
#include "sim/base/statistics.h"
#include "sim/base/units.h"
#include "sim/link/network/algorithm.h"

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
    std::vector<Steps> steps = {};  // by rank: the steps of `ranks` that are used
    std::size_t primary = 0;        // the rank that the others wait for; its steps are replayed
    std::string group = {};         // the process group that reduces gradients
    // Standard deviation of a rank's own computing from step to step, as a share of it.
    std::optional<double> rank_spread = {};
    bool unused_map = false;  // DDP's map of unused parameters follows the last bucket

    [[nodiscard]] const TracedRank& rank() const { return ranks[primary]; }
    [[nodiscard]] const Steps& alike() const { return steps[primary]; }
    [[nodiscard]] const TracedStep& first() const { return *alike().front(); }
    // The median over these steps.
    [[nodiscard]] Duration typical(Duration TracedStep::*part) const {
        return median_of(alike(), [&](const TracedStep* step) { return step->*part; });
    }
};

// A collective that every step has: an all-reduce of gradients, or one of FSDP2's.
struct TypicalCollective {
    CollectiveKind kind = CollectiveKind::all_reduce;
    Bytes bytes;  // of all ranks that take part
    std::int64_t elements = 0;
    DType dtype = DType::float32;
    Duration start{0};                 // from the start of the step; the median over the steps
    std::vector<double> wire_us = {};  // estimates of its time on the wire; empty: unknown
    std::int32_t blocks = -1;          // thread blocks of its kernel; -1: unknown
    Duration on_link{0};               // its time on the link fitted to FSDP2's collectives
    bool operator==(const TypicalCollective&) const = default;
};

// The time of a rank in collectives, waiting for others included; the median over the steps.
Duration time_in_collectives(const Steps& steps);

// The number of gradients that became ready in the step.
std::size_t gradients_of(const TracedStep& step);

// Throws InputError for traces that are not of different ranks of one run.
void check_ranks(const std::vector<TracedRank>& ranks);

// Sets the run's steps, the most common kind of step on each rank, and its primary rank.
void choose_steps(TracedRun& run, Findings& findings);

// Whether all ranks traced the same steps.
bool same_steps(const TracedRun& run);

}  // namespace bucketwise
