// One rank of `bucketwise measure`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cli/ranks/measure_options.h"
#include "cli/ranks/timed_run.h"

namespace bucketwise {

// Meets the others, measures, and, on rank 0, writes the records. Returns the exit code; reports
// errors to our launcher, or else on standard error. `director` plans a run with a limit of time,
// on rank 0, from the file's earlier records.
using MakeDirector = std::function<std::unique_ptr<RoundDirector>(
    const MeasureOptions& options, const std::vector<Measurement>& earlier)>;
int run_measure_rank(const MeasureOptions& options, const RankIdentity& identity,
                     const MakeDirector& director);

// --- resuming the file of an earlier run ---

// The item that the record is of. Records do not say the PyTorch version, on which
// reduces_in_own_dtype depends: it is the scenario's.
Item item_of(const StepRecord& step, const Scenario& scenario);

// Throws InputError unless the records begin with an environment and are of a run with the same
// ranks, transport, link rate, seed and scenario.
void check_same_run(const MeasureOptions& options, const std::vector<Measurement>& records);

// 1 for every item without a record in a round, else 0: round by round, items in their order.
std::vector<std::int64_t> open_positions(const MeasureOptions& options,
                                         const std::vector<Measurement>& records);

}  // namespace bucketwise
