// One rank of `bucketwise measure`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cli/ranks/measure_options.h"
#include "cli/ranks/timed_run.h"

namespace bucketwise {

// Meets the others, measures, and, on rank 0, writes the records. Returns the exit code; says why
// it failed to the launcher, or on standard error where it has none of ours.
// `director`: who plans a run with a limit of time, on rank 0, by what the file held before.
using MakeDirector = std::function<std::unique_ptr<RoundDirector>(
    const MeasureOptions& options, const std::vector<Measurement>& earlier)>;
int run_measure_rank(const MeasureOptions& options, const RankIdentity& identity,
                     const MakeDirector& director);

// --- going on with a file that an earlier run left ---

// Throws InputError unless the records are of a run like the one that is asked for, one environment
// at least: the same ranks, transport, link rate, seed and scenario.
void check_same_run(const MeasureOptions& options, const std::vector<Measurement>& records);

// What is left to do: 1 for every item that has no record in a round yet, else 0, round by round,
// items in their order.
std::vector<std::int64_t> open_positions(const MeasureOptions& options,
                                         const std::vector<Measurement>& records);

}  // namespace bucketwise
