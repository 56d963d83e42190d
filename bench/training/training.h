// A data-parallel training run: its options, its results on real ranks, and its simulation from a
// scenario's device and link, or from the time of every operation and all-reduce by itself.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/bench.h"
#include "hw/training/trainer.h"
#include "sim/base/names.h"
#include "sim/predict/training.h"
#include "sim/scenario/scenario.h"

// In picoseconds, exactly.
template <>
struct nlohmann::adl_serializer<bucketwise::Duration> {
    static void to_json(json& document, bucketwise::Duration time) { document = time.count(); }
    static void from_json(const json& document, bucketwise::Duration& time) {
        time = bucketwise::Duration{document.get<bucketwise::Duration::rep>()};
    }
};

namespace bucketwise {

enum class TrainingImplementation : std::uint8_t {
    ddp,       // buckets and launches follow the scenario's strategy
    reference  // one all-reduce of everything after backward
};

template <>
inline constexpr auto names_of<TrainingImplementation> = names("ddp", "reference");

struct TrainingOptions : BenchOptions {
    Scenario scenario;
    std::int64_t epochs = 0;
    std::int64_t samples = 0;  // to train on
    std::int64_t test_samples = 0;
    double learning_rate = 0;
    std::vector<TrainingImplementation> implementations;
    TableFormat format = TableFormat::text;
    std::string published;  // empty: nothing to compare with

    [[nodiscard]] SyncRequest sync_of(TrainingImplementation implementation) const;
    [[nodiscard]] TrainingTask task_of(TrainingImplementation implementation) const;
    [[nodiscard]] ImageDataRequest data() const;
};

// --- results ---

struct TrainedRank {
    double time_s = 0;       // all steps
    double full_step_s = 0;  // median of the full ones
    std::int64_t max_memory_bytes = 0;
    std::int64_t process_peak_bytes = 0;  // of all implementations together, and libraries
};

struct TrainedImplementation {
    TrainingImplementation implementation = TrainingImplementation::ddp;
    TrainingTime simulated;
    // The median of full steps; on an undisturbed machine equal to the mean in `simulated`.
    Duration simulated_full_step{0};
    std::vector<std::int64_t> simulated_memory_bytes = {};  // by rank
    std::vector<TrainedRank> ranks = {};                    // empty: none ran
    std::vector<double> losses = {};                        // by epoch: mean over its samples
    double accuracy = 0;                                    // on the test images, at the end
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TrainingTime, full_step, last_step, full_steps)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TrainedRank, time_s, full_step_s, max_memory_bytes,
                                   process_peak_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TrainedImplementation, implementation, simulated,
                                   simulated_full_step, simulated_memory_bytes, ranks, losses,
                                   accuracy)

// Collective. Trains and predicts each implementation; the results are rank 0's.
std::vector<TrainedImplementation> train_on_ranks(const TrainingOptions& options,
                                                  RankSession& session);

// Prints the table: `about` says for people where it ran, `head` for programs. Throws InputError
// for a file of published results that cannot be read.
void print_training(const TrainingOptions& options,
                    const std::vector<TrainedImplementation>& results, const std::string& about,
                    Json head);

// Throws InputError for a file of published results that print_training() could not read; none for
// an empty name.
void check_published(const std::string& file);

// --- prediction ---

using MicroStepKind = std::pair<std::int64_t, bool>;  // samples; adds to gradients that are there

// One implementation's operations alone, and the all-reduces of its buckets. Means over ranks.
struct TrainingMeasurement {
    std::map<MicroStepKind, TrainingTimes> operations;
    std::map<std::int64_t, Duration> all_reduces;  // by bytes; of the slowest rank
    Duration issue{0};                             // host time to launch one
    double compute_slowdown = 1;                   // while all-reduces run
    double communication_slowdown = 1;             // while a rank computes
    bool host_is_device = false;
};

// The kinds of micro-steps of rank 0 in an epoch.
std::vector<MicroStepKind> micro_step_kinds(const TrainingSchedule& schedule);

// `workload`: the trainer's; its times are ignored. An all-reduce takes the measured time of its
// very size; nothing is fitted.
TrainingTime predict_training(const TrainingTask& task, const Workload& workload,
                              const TrainingMeasurement& measured);

// `scenario`: of a perceptron whose batch is a full micro-step. The batch's samples are copied from
// the whole set at the device's copy bandwidth, if it has one. Measured times scale with the
// samples.
TrainingTime predict_training(const TrainingTask& task, const Scenario& scenario);

// The memory model's bytes, by rank. `alignment` and `workspace`: of the device.
std::vector<std::int64_t> predict_memory(const TrainingTask& task, std::int64_t test_samples,
                                         Bytes alignment, Bytes workspace);

}  // namespace bucketwise
