// Real training on GPUs, against a reference that shares no code with it.
#include <cmath>
#include <string>
#include <vector>

#include "hw/nccl/gpu_devices.h"
#include "hw/training/trainer.h"
#include "sim/predict/training.h"
#include "tests/catch.h"
#include "tests/hw/nccl/gpu_ranks.h"
#include "tests/hw/training/training_case.h"

namespace bucketwise {
namespace {

using testing::RankOutcome;
using testing::Trained;

struct GpuJob {
    std::vector<Trained> ranks;
    std::vector<std::int64_t> memory_bytes;
    std::vector<std::vector<float>> first_parameters;
};

GpuJob train_on_gpus(const TrainingTask& task, const ImageData& data) {
    const auto ranks = static_cast<std::size_t>(task.schedule.ranks);
    GpuJob job{.ranks = std::vector<Trained>(ranks),
               .memory_bytes = std::vector<std::int64_t>(ranks),
               .first_parameters = {}};
    const std::vector<RankOutcome> outcomes = testing::on_gpus(
        static_cast<int>(ranks),
        [&](Communicators& communicators, ControlGroup& control, int rank) {
            const auto device = gpu_training_device(communicators);
            Trainer trainer(task, data, *device);
            if (rank == 0) {
                job.first_parameters = testing::parameters_of(trainer);
            }
            job.ranks[static_cast<std::size_t>(rank)] = testing::train(trainer, task, control);
            job.memory_bytes[static_cast<std::size_t>(rank)] = trainer.memory().peak;
        });
    INFO(testing::first_reason(outcomes));
    REQUIRE(testing::first_reason(outcomes).empty());
    return job;
}

void check_gpus_against_reference(const TrainingTask& task) {
    const ImageData data = testing::training_data(task);
    const GpuJob job = train_on_gpus(task, data);
    const testing::ReferenceResult reference =
        testing::reference_result(task, data, job.first_parameters);
    INFO(task.schedule.ranks << " ranks, " << task.schedule.samples << " samples, "
                             << name_of(task.sync.strategy));
    double loss = 0;
    for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
        const Trained& trained = job.ranks[rank];
        CHECK(testing::largest_difference(trained.parameters, reference.parameters) <
              testing::training_tolerance);
        CHECK(trained.correct_in_test == reference.correct_in_test);
        loss += trained.loss;
        const TrainingMemory memory =
            training_memory({.shape = task.shape,
                             .schedule = task.schedule,
                             .test_samples = data.test.count(),
                             .sync = settings_of_replay(task.sync),
                             .optimizer = task.optimizer,
                             .alignment = Bytes{DeviceMemory::alignment_bytes}},
                            static_cast<std::int64_t>(rank));
        CHECK(job.memory_bytes[rank] == memory.total().count);
    }
    CHECK(std::fabs(loss - reference.loss) < 1e-4 * reference.loss);
}

TEST_CASE("GPUs learn what one process learns from the same samples, however they divide",
          "[training]") {
    for (const int ranks : testing::possible_ranks({1, 2, 3, 4})) {
        const std::int64_t full = std::int64_t{6} * ranks;
        for (const std::int64_t samples :
             {2 * full, full + 1, full + std::int64_t{3} * ranks + 1}) {
            check_gpus_against_reference(testing::training_task(ranks, samples, Strategy::ddp));
        }
    }
}

TEST_CASE("GPUs learn the same by every strategy, with copies and views", "[training]") {
    for (const int ranks : testing::possible_ranks({2})) {
        for (const Strategy strategy : {Strategy::bucketed, Strategy::overlap, Strategy::naive,
                                        Strategy::flat, Strategy::python_async}) {
            check_gpus_against_reference(testing::training_task(ranks, 31, strategy));
        }
        TrainingTask views = testing::training_task(ranks, 31, Strategy::ddp);
        views.sync.views = true;
        check_gpus_against_reference(views);
    }
}

TEST_CASE("operations of training are timed on the GPU, and its all-reduces beside them",
          "[training]") {
    for (const int ranks : testing::possible_ranks({2})) {
        const TrainingTask task = testing::training_task(ranks, 24, Strategy::ddp);
        const ImageData data = testing::training_data(task);
        std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
        testing::require_well(testing::on_gpus(ranks, [&](Communicators& communicators,
                                                          ControlGroup& /*control*/, int rank) {
            const auto device = gpu_training_device(communicators);
            Trainer trainer(task, data, *device);
            const TrainingTimes times = trainer.time_operations(3, true, 2).back();
            const ContentionTimes contention = trainer.contend(1000, 4);
            std::string& found = wrong[static_cast<std::size_t>(rank)];
            if (times.forward.size() != 7 || times.backward.size() != 8 || times.copy_count != 12) {
                found = "not every operation has a time";
            }
            for (const OperationTime& time : times.backward) {
                if (time.device <= Duration{0} || time.host <= Duration{0}) {
                    found = "a time is none";
                }
            }
            if (contention.all_reduces.size() != 4 || trainer.backward_alone(3).size() != 3) {
                found = "contention";
            }
        }));
        CHECK(wrong == std::vector<std::string>(wrong.size()));
    }
}

}  // namespace
}  // namespace bucketwise
