// What `bucketwise measure` was asked for.
#pragma once

#include <chrono>
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

}  // namespace bucketwise
