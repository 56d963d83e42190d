// A data-parallel training run: its options, its rows on real ranks, and its simulation from a
// scenario's device and link, or from the time of every operation and all-reduce by itself.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "bench/bench.h"
#include "hw/training/trainer.h"
#include "sim/base/names.h"
#include "sim/predict/training.h"

namespace bucketwise {

enum class TrainingImplementation : std::uint8_t {
    ddp,       // buckets and launches follow the scenario's strategy
    reference  // one all-reduce of everything after backward
};

template <>
inline constexpr auto names_of<TrainingImplementation> = names("ddp", "reference");

struct TrainingOptions : BenchOptions {
    std::optional<std::vector<std::int64_t>> layers;  // but the classes
    std::optional<std::int64_t> classes;
    std::optional<std::int64_t> accumulation;
    std::optional<Bytes> bucket_cap;
    std::int64_t epochs = 0;
    std::int64_t samples = 0;  // to train on
    std::int64_t test_samples = 0;
    double learning_rate = 0;
    std::vector<TrainingImplementation> implementations;
    Scenario scenario;

    [[nodiscard]] const MlpShape& shape() const {
        return std::get<MlpShape>(std::get<ModelWorkload>(scenario.workload).model);
    }
    [[nodiscard]] SyncRequest sync_of(TrainingImplementation implementation) const;
    [[nodiscard]] TrainingTask task_of(TrainingImplementation implementation) const;
    [[nodiscard]] ImageDataRequest data() const;
};

// --- rows: one for each implementation and rank ---

// Collective. Trains and predicts each implementation; the rows are rank 0's. Each implementation's
// first has "losses", the mean over its samples by epoch.
BenchRows train_on_ranks(const TrainingOptions& options, RankSession& session);

// A row with the cells of its simulation; `full_step`: the median of full steps, on an undisturbed
// machine equal to the mean in `time`.
BenchRow simulated_row(const TrainingOptions& options, TrainingImplementation implementation,
                       std::int64_t rank, const TrainingTime& time, Duration full_step,
                       std::int64_t memory_bytes);

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
