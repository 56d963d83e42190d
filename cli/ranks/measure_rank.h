// What `bucketwise measure` was asked for, and one rank of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/ranks/rank_job.h"
#include "hw/measure/measurer.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

struct MeasureOptions {
    RankJob job;
    Scenario scenario;
    std::string scenario_text;  // the document the scenario was read from, links put in place
    StepInput input;            // what is replayed
    std::vector<Item> items;    // that each round measures
    std::string output;
    bool resume = false;
    // None: as many rounds as the job's order says, of everything. Else at most so many, of what
    // is worth measuring (timed_run.h).
    std::optional<std::chrono::duration<double>> time_limit = {};
};

// Meets the others, measures, and, on rank 0, writes the records. Returns the exit code; says why
// it failed to the launcher, or on standard error where it has none of ours.
int run_measure_rank(const MeasureOptions& options, const RankIdentity& identity);

// --- going on with a file that an earlier run left ---

// Throws InputError unless the records are of a run like the one that is asked for, one environment
// at least: the same ranks, transport, link rate, seed and scenario.
void check_same_run(const MeasureOptions& options, const std::vector<Measurement>& records);

// What is left to do: 1 for every item that has no record in a round yet, else 0, round by round,
// items in their order.
std::vector<std::int64_t> open_positions(const MeasureOptions& options,
                                         const std::vector<Measurement>& records);

}  // namespace bucketwise
