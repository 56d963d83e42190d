// What `bucketwise measure` was asked for, and one rank of it.
#pragma once

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
};

// Meets the others, measures, and, on rank 0, writes the records. Returns the exit code; says why
// it failed to the launcher, or on standard error where it has none of ours.
int run_measure_rank(const MeasureOptions& options, const RankIdentity& identity);

}  // namespace bucketwise
