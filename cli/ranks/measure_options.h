// The request behind `bucketwise measure`.
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
    StepInput input;            // the step to replay
    std::vector<Item> items;    // of each round
    std::string output;
    bool resume = false;
    // Empty: the rounds of the job's order, each of all items. Else at most so many rounds, of the
    // items worth measuring (timed_run.h).
    std::optional<std::chrono::duration<double>> time_limit = {};
};

}  // namespace bucketwise
