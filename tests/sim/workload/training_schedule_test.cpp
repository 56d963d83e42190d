// The samples of each rank, and the simulated time of a training run.
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "sim/predict/training.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/models/models.h"
#include "sim/workload/training_schedule.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

TEST_CASE("what is left of an epoch is dealt out evenly, the first ranks getting one more") {
    // 3 ranks x 2 micro-steps x 4 samples = 24 a step; 35 leaves 11: 4, 4 and 3, each in one
    // micro-step.
    const TrainingSchedule schedule{.samples = 35, .ranks = 3, .accumulation = 2, .batch = 4};
    CHECK(steps_per_epoch(schedule) == 2);
    CHECK(micro_steps(schedule, 0, 1) == std::vector<SampleRange>{{8, 4}, {12, 4}});
    CHECK(micro_steps(schedule, 1, 0) == std::vector<SampleRange>{{24, 4}});
    CHECK(micro_steps(schedule, 1, 1) == std::vector<SampleRange>{{28, 4}});
    CHECK(micro_steps(schedule, 1, 2) == std::vector<SampleRange>{{32, 3}});
    CHECK(samples_of_rank(schedule, 0) == 12);
    CHECK(samples_of_rank(schedule, 2) == 11);
}

TEST_CASE("a rank without samples has as many micro-steps as the others, all empty") {
    const TrainingSchedule schedule{.samples = 9, .ranks = 2, .accumulation = 2, .batch = 2};
    // 8 a step, and one left for rank 0.
    CHECK(micro_steps(schedule, 1, 0) == std::vector<SampleRange>{{8, 1}});
    CHECK(micro_steps(schedule, 1, 1) == std::vector<SampleRange>{{9, 0}});
}

TEST_CASE("every schedule visits every sample once, and no rank has two more than another") {
    std::mt19937 generator(1);
    const auto random = [&](std::int64_t most) {
        return static_cast<std::int64_t>(generator() % static_cast<unsigned>(most)) + 1;
    };
    for (int i = 0; i < 500; ++i) {
        const TrainingSchedule schedule{.samples = random(200),
                                        .ranks = random(9),
                                        .accumulation = random(4),
                                        .batch = random(7)};
        std::vector<int> visits(static_cast<std::size_t>(schedule.samples), 0);
        for (std::int64_t step = 0; step < steps_per_epoch(schedule); ++step) {
            std::vector<std::int64_t> shares;
            const std::size_t parts = micro_steps(schedule, step, 0).size();
            CHECK((parts >= 1 && parts <= static_cast<std::size_t>(schedule.accumulation)));
            for (std::int64_t rank = 0; rank < schedule.ranks; ++rank) {
                const std::vector<SampleRange> own = micro_steps(schedule, step, rank);
                CHECK(own.size() == parts);
                shares.push_back(0);
                for (const SampleRange& part : own) {
                    CHECK((part.count >= 0 && part.count <= schedule.batch));
                    shares.back() += part.count;
                    for (std::int64_t k = part.begin; k < part.begin + part.count; ++k) {
                        ++visits.at(static_cast<std::size_t>(k));
                    }
                }
            }
            CHECK(shares.front() - shares.back() <= 1);
            CHECK(std::is_sorted(shares.rbegin(), shares.rend()));
        }
        CHECK(visits == std::vector<int>(visits.size(), 1));
    }
}

TEST_CASE("a perceptron has a weight and a bias for each layer, and the flops of its products") {
    const Model model = make_mlp({.layers = {5, 4, 3}}, {.batch = 2});
    std::vector<std::string> names;
    for (const Parameter& parameter : model.parameters) {
        names.push_back(parameter.name);
    }
    CHECK(names == std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias"});
    CHECK(model.numel() == 5 * 4 + 4 + 4 * 3 + 3);
    REQUIRE(model.operations.size() == 4);  // linear, ReLU, linear, loss
    CHECK(model.operations[0].forward.flops == std::int64_t{2} * 2 * 4 * 5);
    // Reads 2 x 5 samples, 20 weights and 4 biases, writes 2 x 4.
    CHECK(model.operations[0].forward.elements == 10 + 20 + 4 + 8);
    CHECK(model.operations[0].input_gradient == Work{});  // of the images: nobody asks
    CHECK(model.operations[2].input_gradient.flops == std::int64_t{2} * 2 * 3 * 4);
    CHECK(model.operations[1].forward.elements == std::int64_t{2} * 2 * 4);    // reads and writes
    CHECK(model.operations[2].parameters == std::vector<std::int32_t>{3, 2});  // bias first
}

// One operation each way that takes 1 ms a sample, one gradient of 1 MB over a link that takes 5
// ms.
StepInput one_gradient(std::int64_t samples) {
    StepInput input;
    input.workload.gradients = {{.name = "g", .numel = 250'000}};
    input.workload.readiness = {0};
    input.workload.forward = {
        {.name = "f", .device = duration_from_ms(1.0 * static_cast<double>(samples))}};
    input.workload.backward = {{.name = "b",
                                .device = duration_from_ms(2.0 * static_cast<double>(samples)),
                                .ready_count = 1}};
    input.group = {.ranks = 2, .ranks_per_node = 2};
    input.link.segments.push_back(
        {.latency = Duration{0}, .bandwidth = bandwidth_from_gb_per_s(0.2)});
    input.step.optimizer = duration_from_ms(7);
    return input;
}

TEST_CASE("a training run takes its full steps and the smaller last one") {
    // 2 ranks x 3 micro-steps x 4 samples = 24 a step. 58 = 24 + 24 + 10: rank 0 has 5 in the last
    // step, micro-steps of 4 and of 1.
    const TrainingSchedule schedule{.samples = 58, .ranks = 2, .accumulation = 3, .batch = 4};
    const SyncSettings sync = settings_for({});
    const StepInput input = one_gradient(4);
    const BucketPlan plan =
        make_plan(input.workload.gradients, input.workload.readiness, sync.policy);
    std::vector<std::int64_t> asked;
    const TrainingTime time =
        training_time(schedule, sync, plan, [&](std::int64_t samples, bool accumulates) {
            asked.push_back(accumulates ? -samples : samples);
            return one_gradient(samples);
        });
    // 3 ms a sample, then a ring of two: 1 MB at 0.2 GB/s is 5 ms, nothing hidden; 7 ms of
    // optimizer.
    CHECK(time.full_steps == 2);
    CHECK(time.full_step == duration_from_ms(12 * 3 + 5 + 7));
    CHECK(time.last_step == duration_from_ms(5 * 3 + 5 + 7));
    CHECK(time.epoch() == duration_from_ms(2 * 48 + 27));
    std::sort(asked.begin(), asked.end());
    CHECK(asked == std::vector<std::int64_t>{-4, -1, 4});
}

TEST_CASE("the memory of training is the sum of its tensors") {
    TrainingMemoryInput input;
    input.shape = {.layers = {10, 6, 3}};
    input.schedule = {.samples = 100, .ranks = 2, .accumulation = 2, .batch = 8};
    input.test_samples = 20;
    input.sync = settings_for({});
    input.optimizer = Optimizer::sgd_momentum;
    const TrainingMemory memory = training_memory(input, 0);
    // 240, 24, 72 and 12 bytes of weights and biases, each up to a multiple of 64.
    CHECK(memory.parameters == Bytes{256 + 64 + 128 + 64});
    CHECK(memory.moments == memory.parameters);
    CHECK(memory.gradients == Bytes{512 + 64});
    CHECK(memory.buckets == Bytes{512 + 64});
    CHECK(memory.activations == Bytes{320 + 192 + 128});  // 8 rows of 10, 6 and 3 floats
    CHECK(memory.activation_gradients == Bytes{std::int64_t{2} * 192});
    // 120 samples of 10 floats and a label; an order of 100; 50 of rank 0's samples with a loss and
    // whether it was right.
    CHECK(memory.data == Bytes{120 * 44 + 100 * 4 + 50 * 8});
    SyncRequest views;
    views.views = true;
    input.sync = settings_for(views);
    CHECK(memory.total() - training_memory(input, 0).total() == Bytes{512 + 64});
    input.workspace = Bytes{1000};
    CHECK(training_memory(input, 0).workspace == Bytes{1000});
}

}  // namespace
}  // namespace bucketwise
