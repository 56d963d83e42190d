// A small training run on any backend, and what the reference makes of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "hw/training/image_data.h"
#include "hw/training/trainer.h"
#include "hw/training/training_check.h"
#include "sim/plan/strategy.h"
#include "tests/hw/training/training_reference.h"

namespace bucketwise::testing {

constexpr std::int64_t training_epochs = 3;

// 12 pixels, two hidden layers, 5 classes; buckets of some hundred bytes.
inline TrainingTask training_task(int ranks, std::int64_t samples, Strategy strategy) {
    TrainingTask task;
    task.shape.layers = {12, 9, 7, 5};
    task.schedule = {.samples = samples, .ranks = ranks, .accumulation = 2, .batch = 3};
    task.sync.strategy = strategy;
    task.sync.bucket_cap = Bytes{256};
    task.optimizer = Optimizer::sgd_momentum;
    task.learning_rate = 0.25F;
    task.momentum = 0.5F;
    task.seed = 7;
    return task;
}

inline ImageData training_data(const TrainingTask& task) {
    return make_image_data({.pixels = task.shape.layers.front(),
                            .classes = task.shape.layers.back(),
                            .training_images = task.schedule.samples,
                            .test_images = 20,
                            .seed = 11});
}

struct Trained {
    std::vector<std::vector<float>> parameters;
    double loss = 0;  // sum over this rank's samples, last epoch
    std::int64_t samples = 0;
    std::int64_t correct_in_test = 0;
};

inline std::vector<std::vector<float>> parameters_of(const Trainer& trainer) {
    std::vector<std::vector<float>> parameters;
    for (std::size_t i = 0; i < trainer.workload().gradients.size(); ++i) {
        parameters.push_back(trainer.parameter(static_cast<std::int32_t>(i)));
    }
    return parameters;
}

// Every synchronisation is compared bit for bit between ranks.
inline Trained train(Trainer& trainer, const TrainingTask& task, ControlGroup& control) {
    Trained result;
    for (std::int64_t epoch = 0; epoch < training_epochs; ++epoch) {
        trainer.begin_epoch(epoch);
        for (std::int64_t step = 0; step < steps_per_epoch(task.schedule); ++step) {
            trainer.step(step);
            check_equal_on_all_ranks(trainer, CheckedTensors::gradients, control,
                                     "after step " + std::to_string(step));
        }
        const SampleResults results = trainer.training_results();
        result.loss = results.loss;
        result.samples = results.samples;
    }
    check_equal_on_all_ranks(trainer, CheckedTensors::parameters, control, "at the end");
    result.parameters = parameters_of(trainer);
    result.correct_in_test = trainer.test().correct;
    return result;
}

// The parameters in the order of parameters_of(): weight, bias, weight, ...
struct ReferenceResult {
    std::vector<Numbers> parameters;
    double loss = 0;
    std::int64_t correct_in_test = 0;
};

inline ReferenceImages as_doubles(const LabelledImages& images) {
    return {Numbers(images.pixels.begin(), images.pixels.end()),
            std::vector<int>(images.labels.begin(), images.labels.end())};
}

inline ReferenceResult reference_result(const TrainingTask& task, const ImageData& data,
                                        const std::vector<std::vector<float>>& first_parameters) {
    std::vector<ReferenceLayer> layers;
    for (std::size_t i = 0; i + 1 < task.shape.layers.size(); ++i) {
        const std::vector<float>& weight = first_parameters[2 * i];
        const std::vector<float>& bias = first_parameters[2 * i + 1];
        layers.push_back({.in = static_cast<std::size_t>(task.shape.layers[i]),
                          .out = static_cast<std::size_t>(task.shape.layers[i + 1]),
                          .weight = Numbers(weight.begin(), weight.end()),
                          .bias = Numbers(bias.begin(), bias.end())});
    }
    ReferenceTraining training(layers, task.learning_rate, task.momentum);
    const ReferenceImages images = as_doubles(data.training);
    const auto count = static_cast<std::size_t>(task.schedule.samples);
    const auto per_step = static_cast<std::size_t>(
        task.schedule.ranks * task.schedule.accumulation * task.schedule.batch);
    ReferenceResult result;
    for (std::int64_t epoch = 0; epoch < training_epochs; ++epoch) {
        const std::vector<std::int32_t> order =
            order_of_epoch(task.schedule.samples, task.seed, epoch);
        result.loss = 0;
        for (std::size_t begin = 0; begin < count; begin += per_step) {
            const auto first = order.begin() + static_cast<std::ptrdiff_t>(begin);
            const auto last =
                order.begin() + static_cast<std::ptrdiff_t>(std::min(count, begin + per_step));
            result.loss += training.step(images, std::vector<std::size_t>(first, last));
        }
    }
    for (const ReferenceLayer& layer : training.layers()) {
        result.parameters.push_back(layer.weight);
        result.parameters.push_back(layer.bias);
    }
    const ReferenceImages test = as_doubles(data.test);
    for (std::size_t i = 0; i < test.labels.size(); ++i) {
        result.correct_in_test += training.classify(test, i) == test.labels[i] ? 1 : 0;
    }
    return result;
}

inline double largest_difference(const std::vector<std::vector<float>>& ours,
                                 const std::vector<Numbers>& reference) {
    double largest = 0;
    for (std::size_t i = 0; i < reference.size(); ++i) {
        for (std::size_t k = 0; k < reference[i].size(); ++k) {
            const double difference = std::fabs(ours.at(i).at(k) - reference[i][k]);
            largest = difference <= largest ? largest : difference;  // a NaN is the largest
        }
    }
    return largest;
}

// Parameters are below 2 and change by some hundred float32 roundings of 2^-24 of that.
constexpr double training_tolerance = 2e-5;

}  // namespace bucketwise::testing
