// What a training run came to, simulated and measured, as a table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/training/options.h"
#include "cli/shell/result_table.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/predict/training.h"

namespace bucketwise {

struct TrainedRank {
    double time_s = 0;       // all steps
    double full_step_s = 0;  // median of the full ones
    std::int64_t max_memory_bytes = 0;
    std::int64_t process_peak_bytes = 0;  // of all implementations together, and libraries
};

struct TrainedImplementation {
    TrainingImplementation implementation = TrainingImplementation::ddp;
    TrainingTime simulated;
    // The median of full steps; of an undisturbed machine the same as `simulated` says.
    Duration simulated_full_step{0};
    std::vector<std::int64_t> simulated_memory_bytes = {};  // by rank
    // What ran; empty: nothing did.
    std::vector<TrainedRank> ranks = {};
    std::vector<double> losses = {};  // by epoch: mean over its samples
    double accuracy = 0;              // on the test images, at the end
};

// Throws InputError for a file of published results that the report could not print; none for an
// empty name.
void check_published(const std::string& file);

// `about`: where it ran, for people; `head`: for programs. Throws InputError for a file of
// published results that cannot be read.
std::string bench_training_report(const BenchTrainingOptions& options,
                                  const std::vector<TrainedImplementation>& results,
                                  const std::string& about, const Json& head);

}  // namespace bucketwise
