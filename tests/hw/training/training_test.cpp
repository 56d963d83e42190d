// Real training on several ranks, against a reference that shares no code with it.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "hw/cpu/cpu_devices.h"
#include "hw/training/image_data.h"
#include "hw/training/trainer.h"
#include "hw/training/training_check.h"
#include "sim/predict/training.h"
#include "tests/catch.h"
#include "tests/hw/gloo/gloo_ranks.h"
#include "tests/hw/training/training_case.h"

namespace bucketwise {
namespace {

using testing::Ending;
using testing::Trained;

struct JobResult {
    std::vector<Trained> ranks;
    std::vector<std::vector<float>> first_parameters;
};

JobResult train_on_cpus(const TrainingTask& task, const ImageData& data) {
    const auto ranks = static_cast<int>(task.schedule.ranks);
    JobResult job{.ranks = std::vector<Trained>(static_cast<std::size_t>(ranks)),
                  .first_parameters = {}};
    const auto outcomes = testing::on_ranks(ranks, [&](GlooConnection& connection, int rank) {
        const auto device =
            cpu_training_device(connection.communicator(AllReduceImplementation::library));
        Trainer trainer(task, data, *device);
        if (rank == 0) {
            job.first_parameters = testing::parameters_of(trainer);
        }
        job.ranks[static_cast<std::size_t>(rank)] =
            testing::train(trainer, task, connection.control());
    });
    INFO(testing::first_reason(outcomes));
    REQUIRE(testing::first_reason(outcomes).empty());
    return job;
}

void check_against_reference(const TrainingTask& task) {
    const ImageData data = testing::training_data(task);
    const JobResult job = train_on_cpus(task, data);
    const testing::ReferenceResult reference =
        testing::reference_result(task, data, job.first_parameters);
    INFO(task.schedule.ranks << " ranks, " << task.schedule.samples << " samples, "
                             << name_of(task.sync.strategy));
    double loss = 0;
    std::int64_t samples = 0;
    for (const Trained& rank : job.ranks) {
        CHECK(testing::largest_difference(rank.parameters, reference.parameters) <
              testing::training_tolerance);
        CHECK(rank.correct_in_test == reference.correct_in_test);
        CHECK(rank.parameters == job.ranks[0].parameters);
        loss += rank.loss;
        samples += rank.samples;
    }
    CHECK(samples == task.schedule.samples);
    CHECK(std::fabs(loss - reference.loss) < 1e-4 * reference.loss);
}

TEST_CASE("1 to 8 ranks learn what one process learns from the same samples, however they divide") {
    for (int ranks = 1; ranks <= 8; ++ranks) {
        const std::int64_t micro_step = std::int64_t{3} * ranks;
        const std::int64_t full = 2 * micro_step;
        // The last step is full; has one sample, so that all ranks but the first have none; one
        // less than a micro-step of all ranks; one more.
        for (const std::int64_t samples :
             {2 * full, full + 1, full + micro_step - 1, full + micro_step + 1}) {
            check_against_reference(testing::training_task(ranks, samples, Strategy::ddp));
        }
    }
}

TEST_CASE("every strategy learns the same") {
    for (const Strategy strategy : every<Strategy>) {
        if (strategy != Strategy::none && !framework_of(strategy)) {
            check_against_reference(testing::training_task(3, 31, strategy));
        }
    }
}

TEST_CASE("gradients that are views of their buckets are as good as copies") {
    TrainingTask task = testing::training_task(3, 31, Strategy::ddp);
    task.sync.views = true;
    check_against_reference(task);
}

TEST_CASE("with two ranks every strategy's parameters have the very same bits") {
    // A sum of two numbers does not depend on their order, nor on the bucket they travel in, and
    // dividing by 2 is exact.
    const TrainingTask flat = testing::training_task(2, 31, Strategy::flat);
    const ImageData data = testing::training_data(flat);
    const auto expected = train_on_cpus(flat, data).ranks[0].parameters;
    for (const Strategy strategy : {Strategy::ddp, Strategy::bucketed, Strategy::overlap,
                                    Strategy::naive, Strategy::python_async}) {
        INFO(name_of(strategy));
        TrainingTask task = flat;
        task.sync.strategy = strategy;
        CHECK(train_on_cpus(task, data).ranks[1].parameters == expected);
    }
}

TEST_CASE("a hook that sends 16 bits costs precision and nothing else") {
    for (const CommHook hook : {CommHook::fp16, CommHook::bf16}) {
        TrainingTask task = testing::training_task(2, 31, Strategy::ddp);
        const ImageData data = testing::training_data(task);
        const JobResult exact = train_on_cpus(task, data);
        task.sync.comm_hook = hook;
        const JobResult job = train_on_cpus(task, data);
        CHECK(job.ranks[0].parameters == job.ranks[1].parameters);
        CHECK(job.ranks[0].parameters != exact.ranks[0].parameters);
        const testing::ReferenceResult reference =
            testing::reference_result(task, data, job.first_parameters);
        // bfloat16 keeps 8 bits: gradients of about 0.1, each off by up to 2^-9 of itself, in 9
        // steps at a rate of 0.25, twice that with momentum.
        CHECK(testing::largest_difference(job.ranks[0].parameters, reference.parameters) < 5e-3);
    }
}

// Flips the lowest bit of the first element of one all-reduce on one rank.
class BitFlipper : public Communicator {
  public:
    BitFlipper(Communicator& inner, bool flips, int call)
        : inner_(inner), flips_(flips), call_(call) {}
    [[nodiscard]] int rank() const override { return inner_.rank(); }
    [[nodiscard]] int ranks() const override { return inner_.ranks(); }
    void all_reduce_sum(void* data, std::int64_t elements, DType dtype) override {
        inner_.all_reduce_sum(data, elements, dtype);
        if (elements > 1 && calls_++ == call_ && flips_) {
            static_cast<unsigned char*>(data)[0] ^= 1U;
        }
    }
    void reduce_scatter_sum(void* data, std::int64_t elements, DType dtype) override {
        inner_.reduce_scatter_sum(data, elements, dtype);
    }
    void broadcast_from_first(void* data, Bytes size) override {
        inner_.broadcast_from_first(data, size);
    }
    void all_gather(const void* own, void* all, Bytes size) override {
        inner_.all_gather(own, all, size);
    }

  private:
    Communicator& inner_;
    bool flips_;
    int call_;
    int calls_ = 0;
};

TEST_CASE("one flipped bit on one rank fails the run, naming the rank's tensor and the step") {
    const TrainingTask task = testing::training_task(3, 60, Strategy::flat);
    const ImageData data = testing::training_data(task);
    const auto outcomes = testing::on_ranks(3, [&](GlooConnection& connection, int rank) {
        // A step is 18 samples and one all-reduce: the third is of step 2. Its first gradient is
        // that of the first layer's weight.
        BitFlipper flipper(connection.communicator(AllReduceImplementation::library), rank == 1, 2);
        const auto device = cpu_training_device(flipper);
        Trainer trainer(task, data, *device);
        testing::train(trainer, task, connection.control());
    });
    CHECK(outcomes[1].ending == Ending::other_failure);
    CHECK(outcomes[1].reason ==
          "the reduced gradient of 0.weight after step 2 is not bit for bit that of rank 0");
    CHECK(outcomes[0].ending != Ending::other_failure);
}

TEST_CASE("gradients that are not reduced are found to differ") {
    const TrainingTask task = testing::training_task(2, 24, Strategy::none);
    const ImageData data = testing::training_data(task);
    const auto outcomes = testing::on_ranks(2, [&](GlooConnection& connection, int /*rank*/) {
        const auto device =
            cpu_training_device(connection.communicator(AllReduceImplementation::library));
        Trainer trainer(task, data, *device);
        testing::train(trainer, task, connection.control());
    });
    CHECK(outcomes[1].ending == Ending::other_failure);
}

TEST_CASE("a rank that stops is noticed by the others") {
    const TrainingTask task = testing::training_task(3, 60, Strategy::ddp);
    const ImageData data = testing::training_data(task);
    const auto outcomes = testing::on_ranks(3, [&](GlooConnection& connection, int rank) {
        const auto device =
            cpu_training_device(connection.communicator(AllReduceImplementation::library));
        Trainer trainer(task, data, *device);
        trainer.begin_epoch(0);
        trainer.step(0);
        if (rank == 2) {
            throw std::runtime_error("no more");
        }
        trainer.step(1);
    });
    CHECK(outcomes[2].reason == "no more");
    CHECK(outcomes[0].ending == Ending::peer_failure);
    CHECK(outcomes[1].ending == Ending::peer_failure);
}

TEST_CASE("the memory that training takes is what the memory model says, to the byte") {
    for (const Strategy strategy : {Strategy::ddp, Strategy::overlap, Strategy::flat}) {
        for (const bool views : {false, true}) {
            for (const CommHook hook : {CommHook::none, CommHook::bf16}) {
                TrainingTask task = testing::training_task(3, 31, strategy);
                task.sync.views = views;
                task.sync.comm_hook = hook;
                task.optimizer = views ? Optimizer::sgd : Optimizer::sgd_momentum;
                const ImageData data = testing::training_data(task);
                std::vector<MemoryCount> counts(3);
                testing::require_well(
                    testing::on_ranks(3, [&](GlooConnection& connection, int rank) {
                        const auto device = cpu_training_device(
                            connection.communicator(AllReduceImplementation::library));
                        Trainer trainer(task, data, *device);
                        testing::train(trainer, task, connection.control());
                        counts[static_cast<std::size_t>(rank)] = trainer.memory();
                    }));
                for (std::int64_t rank = 0; rank < 3; ++rank) {
                    const MemoryCount& count = counts[static_cast<std::size_t>(rank)];
                    const TrainingMemory predicted =
                        training_memory({.shape = task.shape,
                                         .schedule = task.schedule,
                                         .test_samples = data.test.count(),
                                         .sync = settings_of_replay(task.sync),
                                         .optimizer = task.optimizer},
                                        rank);
                    CHECK(count.peak == predicted.total().count);
                    CHECK(count.current == count.peak);
                }
            }
        }
    }
}

TEST_CASE("operations are timed one by one, in the order in which a step runs them") {
    const TrainingTask task = testing::training_task(2, 24, Strategy::ddp);
    const ImageData data = testing::training_data(task);
    testing::require_well(testing::on_ranks(2, [&](GlooConnection& connection, int /*rank*/) {
        const auto device =
            cpu_training_device(connection.communicator(AllReduceImplementation::library));
        Trainer trainer(task, data, *device);
        const auto before = testing::parameters_of(trainer);
        const std::vector<TrainingTimes> all = trainer.time_operations(3, true, 3);
        const TrainingTimes& times = all.back();
        const ContentionTimes contention = trainer.contend(10'000, 5);
        // A batch gathered, three linear layers, two ReLU, the loss; backward 3 weights and 2
        // inputs of linear layers, two ReLU, the loss. 6 gradients are copied in and back.
        // A gradient is copied twice: 12 x 9 + 9 + 9 x 7 + 7 + 7 x 5 + 5 = 227 floats.
        const bool as_expected =
            all.size() == 3 && times.copied == Bytes{std::int64_t{2} * 4 * 227} &&
            times.forward.size() == 7 && times.backward.size() == 8 && times.copy_count == 12 &&
            times.copies > Duration{0} && times.optimizer.device > Duration{0} &&
            contention.all_reduces.size() == 5 && trainer.backward_alone(4).size() == 4;
        trainer.reset();
        if (!as_expected || testing::parameters_of(trainer) != before) {
            throw std::runtime_error("times are missing, or parameters not what they were");
        }
    }));
}

TEST_CASE("generated images are the same everywhere, and every epoch has an order of its own") {
    const ImageDataRequest request{
        .pixels = 3, .classes = 4, .training_images = 6, .test_images = 2, .seed = 5};
    const ImageData data = make_image_data(request);
    // By a Python transcript of the generator: SplitMix64; noise of up to 3 x 26, so pixels in
    // 1/32.
    CHECK(data.training.labels == std::vector<std::int32_t>{3, 0, 3, 1, 1, 1});
    std::vector<int> pixels;
    for (const float pixel : data.test.pixels) {
        pixels.push_back(static_cast<int>(pixel * 32));
    }
    CHECK(pixels == std::vector<int>{80, -27, -17, -51, 87, -43});
    CHECK(order_of_epoch(5, 3, 0) == std::vector<std::int32_t>{1, 4, 3, 0, 2});
    CHECK(order_of_epoch(5, 3, 1) == std::vector<std::int32_t>{0, 4, 2, 1, 3});
    const std::vector<std::int32_t> order = order_of_epoch(1000, 1, 0);
    CHECK(std::set<std::int32_t>(order.begin(), order.end()).size() == 1000);
}

}  // namespace
}  // namespace bucketwise
