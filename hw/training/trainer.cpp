#include "hw/training/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "sim/base/invariant.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

using Clock = std::chrono::steady_clock;

Workload workload_of(const Model& model) {
    // Any device does: what is run is the order of operations, not their times.
    Workload workload =
        workload_from_model(model, DType::float32, {.device = device_preset("A100").value()});
    workload.forward.insert(workload.forward.begin(), {.name = "gather the batch"});
    return workload;
}

BucketPlan plan_for(const Workload& workload, const SyncSettings& sync) {
    return sync.communicates ? make_plan(workload, sync.policy) : BucketPlan{};
}

// Uniform from -1 to 1, in steps of 2^-23.
float uniform(SeededNumbers& numbers) {
    constexpr std::int64_t half = std::int64_t{1} << 23;
    return static_cast<float>(numbers.below(2 * half + 1) - half) / static_cast<float>(half);
}

}  // namespace

Trainer::Trainer(const TrainingTask& task, const ImageData& data, TrainingDevice& device)
    : task_(task),
      data_(data),
      device_(device),
      model_(make_mlp(task.shape, {.batch = task.schedule.batch})),
      workload_(workload_of(model_)),
      sync_(settings_of_replay(task.sync)),
      plan_(plan_for(workload_, sync_)),
      source_{.make = [&device](std::int64_t bytes) { return device.raw_memory(bytes); },
              .alignment_bytes = device.alignment_bytes()},
      synchronised_({}, workload_, sync_, {.replica = device.rank(), .replicas = device.ranks()},
                    source_) {
    invariant(task.schedule.ranks == device.ranks(), "the schedule is for all ranks");
    invariant(task.optimizer != Optimizer::adam, "sgd, with momentum or without");
    invariant(!sync_.fused_copies && !sync_.batched_copies && !sync_.reduces_unused_map,
              "copies and maps it knows");
    for (std::size_t i = 0; i + 1 < task.shape.layers.size(); ++i) {
        const std::vector<std::int32_t>& parameters = model_.operations[2 * i].parameters;
        layers_.push_back({.in = task.shape.layers[i],
                           .out = task.shape.layers[i + 1],
                           .weight = parameters[1],
                           .bias = parameters[0]});
    }
    for (std::int64_t n = 1; n <= task.schedule.accumulation; ++n) {
        programs_.push_back(program_of(n));
    }
    allocate();
    reset();
}

// --- memory ---

std::int64_t Trainer::aligned(std::int64_t bytes) const {
    const std::int64_t alignment = device_.alignment_bytes();
    return (bytes + alignment - 1) / alignment * alignment;
}

void Trainer::allocate() {
    const auto make = [this](std::int64_t bytes) { return source_.tensor(bytes); };
    std::int64_t parameter_bytes = 0;
    for (const Gradient& gradient : workload_.gradients) {
        parameter_offset_.push_back(parameter_bytes);
        parameter_bytes += aligned(gradient.size().count);
    }
    std::int64_t activation_bytes = 0;
    for (const std::int64_t width : task_.shape.layers) {
        activation_offset_.push_back(activation_bytes);
        activation_bytes += aligned(task_.schedule.batch * width * float_bytes);
    }
    const std::int64_t widest =
        *std::max_element(task_.shape.layers.begin() + 1, task_.shape.layers.end());
    const std::int64_t results =
        std::max(samples_of_rank(task_.schedule, device_.rank()), data_.test.count());
    images_ = make(data_.training.count() * task_.shape.layers.front() * float_bytes);
    labels_ = make(data_.training.count() * 4);
    test_images_ = make(data_.test.count() * task_.shape.layers.front() * float_bytes);
    test_labels_ = make(data_.test.count() * 4);
    order_ = make(std::max(data_.training.count(), data_.test.count()) * 4);
    parameters_ = make(parameter_bytes);
    moments_ = make(task_.optimizer == Optimizer::sgd_momentum ? parameter_bytes : 0);
    activations_ = make(activation_bytes);
    activation_gradients_ = make(2 * aligned(task_.schedule.batch * widest * float_bytes));
    losses_ = make(results * float_bytes);
    correct_ = make(results * 4);
    upload_images(images_, labels_, data_.training);
    upload_images(test_images_, test_labels_, data_.test);
}

void Trainer::upload_images(const TensorMemory& images, const TensorMemory& labels,
                            const LabelledImages& from) {
    device_.upload(images.at(0), from.pixels.data(), images.size_bytes());
    device_.upload(labels.at(0), from.labels.data(), labels.size_bytes());
}

float* Trainer::activation(std::size_t layer) const {
    return reinterpret_cast<float*>(activations_.at(activation_offset_[layer]));
}

float* Trainer::activation_gradient(std::size_t layer) const {
    return reinterpret_cast<float*>(
        activation_gradients_.at(layer % 2 == 0 ? 0 : activation_gradients_.size_bytes() / 2));
}

float* Trainer::parameter_at(std::int32_t index) const {
    return reinterpret_cast<float*>(
        parameters_.at(parameter_offset_[static_cast<std::size_t>(index)]));
}

std::vector<float> Trainer::values_at(const float* data, std::int32_t index) const {
    std::vector<float> values(static_cast<std::size_t>(numel_of(index)));
    device_.download(values.data(), data, numel_of(index) * float_bytes);
    return values;
}

// --- an epoch ---

// As nn.Linear begins: uniform within 1 / sqrt(inputs), weights and biases alike.
void Trainer::reset() {
    SeededNumbers numbers(task_.seed);
    for (const Layer& layer : layers_) {
        const float bound = 1.0F / std::sqrt(static_cast<float>(layer.in));
        for (const std::int32_t index : {layer.weight, layer.bias}) {
            std::vector<float> values(static_cast<std::size_t>(numel_of(index)));
            std::generate(values.begin(), values.end(), [&] { return bound * uniform(numbers); });
            device_.upload(parameter_at(index), values.data(), numel_of(index) * float_bytes);
        }
    }
    const std::vector<std::byte> zeros(static_cast<std::size_t>(moments_.size_bytes()));
    device_.upload(moments_.at(0), zeros.data(), moments_.size_bytes());
}

void Trainer::begin_epoch(std::int64_t epoch) {
    const std::vector<std::int32_t> order =
        order_of_epoch(task_.schedule.samples, task_.seed, epoch);
    device_.upload(order_.at(0), order.data(), static_cast<std::int64_t>(order.size()) * 4);
    samples_seen_ = 0;
}

Program Trainer::program_of(std::int64_t micro_steps) const {
    StepInput input;
    input.workload = workload_;
    input.group = {.ranks = device_.ranks(), .ranks_per_node = device_.ranks()};
    // Copies and the optimizer are instructions only where they take time; how long is not asked.
    input.link.segments.push_back(
        {.latency = Duration{0}, .bandwidth = bandwidth_from_gb_per_s(1)});
    input.copy_bandwidth = bandwidth_from_gb_per_s(1);
    input.step = {.accumulation = micro_steps, .optimizer = Duration{1}};
    return build_program(input, sync_, plan_);
}

Duration Trainer::step(std::int64_t number) {
    const double samples = static_cast<double>(samples_of_step(task_.schedule, number).count);
    running_ = {.parts = micro_steps(task_.schedule, number, device_.rank()),
                .scale = static_cast<float>(device_.ranks() / samples),
                .results = samples_seen_};
    running_.program = &programs_[running_.parts.size() - 1];
    running_.tickets.resize(running_.program->collectives.size());
    for (const SampleRange& part : running_.parts) {
        samples_seen_ += part.count;
    }
    device_.meet();
    const Clock::time_point begin = Clock::now();
    for (const Instruction& instruction : running_.program->instructions) {
        execute(instruction);
    }
    device_.finish();
    return std::chrono::duration_cast<Duration>(Clock::now() - begin);
}

SampleResults Trainer::results(std::int64_t count) {
    std::vector<float> losses(static_cast<std::size_t>(count));
    std::vector<std::int32_t> correct(losses.size());
    device_.download(losses.data(), losses_.at(0), count * float_bytes);
    device_.download(correct.data(), correct_.at(0), count * 4);
    return {.loss = std::accumulate(losses.begin(), losses.end(), 0.0),
            .correct = std::accumulate(correct.begin(), correct.end(), std::int64_t{0}),
            .samples = count};
}

SampleResults Trainer::training_results() {
    return results(samples_seen_);
}

// Forward only, in the batches that there is room for.
SampleResults Trainer::test() {
    const std::int64_t count = data_.test.count();
    std::vector<std::int32_t> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    device_.upload(order_.at(0), order.data(), count * 4);
    for (std::int64_t begin = 0; begin < count; begin += task_.schedule.batch) {
        const std::int64_t rows = std::min(task_.schedule.batch, count - begin);
        const std::int32_t* places = order_.as<std::int32_t>() + begin;
        gather(test_images_, places, rows);
        for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
            linear(layer, rows);
            if (layer + 1 < layers_.size()) {
                relu(layer, rows);
            }
        }
        device_.run(CrossEntropy{.logits = activation(layers_.size()),
                                 .losses = losses_.as<float>() + begin,
                                 .correct = correct_.as<std::int32_t>() + begin,
                                 .labels = test_labels_.as<std::int32_t>(),
                                 .order = places,
                                 .rows = rows,
                                 .classes = task_.shape.layers.back()});
    }
    return results(count);
}

// --- instructions ---

void Trainer::execute(const Instruction& instruction) {
    const auto subject = static_cast<std::size_t>(instruction.subject);
    switch (instruction.kind) {
        case InstructionKind::forward:
            return forward(workload_.forward[subject]);
        case InstructionKind::backward:
            backward(workload_.backward[subject]);
            if (subject + 1 == workload_.backward.size()) {
                running_.results += rows();
                ++running_.micro_step;
            }
            return;
        case InstructionKind::copy:
            return copy(instruction.copy, instruction.subject);
        case InstructionKind::launch:
            return launch(instruction.subject);
        case InstructionKind::wait:
            return device_.wait_for(running_.tickets[subject]);
        case InstructionKind::clip:
            invariant(false, "no scenario of an epoch clips");
            return;
        case InstructionKind::optimizer:
            return update();
    }
}

// Operations are linear, ReLU, linear, ..., linear, loss: see sim/workload/models/classifiers.cpp.
void Trainer::forward(const TimedOperation& operation) {
    if (!operation.source) {
        return gather(images_, places_of_micro_step(), rows());
    }
    const auto index = static_cast<std::size_t>(operation.source->operation);
    const std::size_t layer = index / 2;
    if (index % 2 == 0) {
        linear(layer, rows());
    } else if (layer + 1 < layers_.size()) {
        relu(layer, rows());
    } else {
        loss();
    }
}

void Trainer::backward(const TimedOperation& operation) {
    const auto index = static_cast<std::size_t>(operation.source->operation);
    const std::size_t layer = index / 2;
    if (index % 2 == 0 && operation.source->pass == Pass::weight_gradient) {
        weight_gradient(layer);
    } else if (index % 2 == 0) {
        device_.linear_input_gradient(product(layers_[layer], rows()), activation_gradient(layer),
                                      parameter_at(layers_[layer].weight),
                                      activation_gradient(layer - 1));
    } else if (layer + 1 < layers_.size()) {
        device_.run(ReluGradient{.gradient = activation_gradient(layer),
                                 .activation = activation(layer + 1),
                                 .count = rows() * layers_[layer].out});
    } else {
        loss();
    }
}

MatrixProduct Trainer::product(const Layer& layer, std::int64_t rows) const {
    return {.m = rows, .n = layer.out, .k = layer.in};
}

void Trainer::gather(const TensorMemory& images, const std::int32_t* places, std::int64_t rows) {
    device_.run(Gather{.to = activation(0),
                       .images = images.as<float>(),
                       .order = places,
                       .rows = rows,
                       .width = task_.shape.layers.front()});
}

void Trainer::linear(std::size_t layer, std::int64_t rows) {
    device_.linear(product(layers_[layer], rows), activation(layer),
                   parameter_at(layers_[layer].weight), parameter_at(layers_[layer].bias),
                   activation(layer + 1));
}

void Trainer::relu(std::size_t layer, std::int64_t rows) {
    device_.run(Relu{.x = activation(layer + 1), .count = rows * layers_[layer].out});
}

// Forward and backward alike: backward computes the softmax anew, as nothing was kept of it.
void Trainer::loss() {
    device_.run(CrossEntropy{.logits = activation(layers_.size()),
                             .gradient = activation_gradient(layers_.size() - 1),
                             .losses = losses_.as<float>() + running_.results,
                             .correct = correct_.as<std::int32_t>() + running_.results,
                             .labels = labels_.as<std::int32_t>(),
                             .order = places_of_micro_step(),
                             .rows = rows(),
                             .classes = task_.shape.layers.back(),
                             .scale = running_.scale});
}

void Trainer::weight_gradient(std::size_t layer) {
    const Layer& l = layers_[layer];
    device_.linear_weight_gradient(product(l, rows()), activation(layer),
                                   activation_gradient(layer), gradient_at(l.weight),
                                   gradient_at(l.bias), running_.micro_step > 0);
}

void Trainer::copy(Copy copy, std::int32_t subject) {
    const double factor = copy.how == Copying::averaging ? 1.0 / device_.ranks() : 1.0;
    const Transfer moved = synchronised_.transfer(copy.route, subject);
    for (const TensorPlace& one : moved.tensors) {
        device_.copy_scaled(moved.to(one), moved.to_dtype(), moved.from(one), moved.from_dtype(),
                            one.numel, factor);
    }
}

void Trainer::launch(std::int32_t collective) {
    running_.tickets[static_cast<std::size_t>(collective)] =
        device_.all_reduce(synchronised_.exchange(*running_.program, collective, {}));
}

void Trainer::update() {
    for (std::size_t i = 0; i < workload_.gradients.size(); ++i) {
        const auto index = static_cast<std::int32_t>(i);
        float* moments = moments_.size_bytes() == 0
                             ? nullptr
                             : reinterpret_cast<float*>(moments_.at(parameter_offset_[i]));
        device_.run(SgdStep{.parameters = parameter_at(index),
                            .gradients = gradient_at(index),
                            .moments = moments,
                            .count = numel_of(index),
                            .rate = task_.learning_rate,
                            .momentum = task_.momentum});
    }
}

// --- measuring ---

// As if a micro-step began: its samples are the epoch's first.
void Trainer::prepare_alone(std::int64_t rows, bool accumulates) {
    running_ = {.parts = {{0, rows}, {0, rows}},
                .micro_step = accumulates ? std::size_t{1} : std::size_t{0},
                .scale = 1.0F / static_cast<float>(rows)};
    running_.program = &programs_.front();
}

std::vector<TrainingTimes> Trainer::time_operations(std::int64_t rows, bool accumulates,
                                                    std::int64_t repetitions) {
    std::vector<Instruction> instructions;
    std::vector<TrainingDevice::Act> acts;
    for (const Instruction& instruction : programs_.front().instructions) {
        if (is_compute(instruction.kind)) {
            instructions.push_back(instruction);
            acts.emplace_back([this, instruction] { execute(instruction); });
        }
    }
    std::vector<TrainingTimes> all;
    begin_epoch(0);
    for (std::int64_t repetition = -1; repetition < repetitions; ++repetition) {
        prepare_alone(rows, accumulates);
        const std::vector<OperationTime> times = device_.time_each(acts);
        if (repetition >= 0) {  // the one before warms up
            TrainingTimes& sorted = all.emplace_back();
            for (std::size_t i = 0; i < instructions.size(); ++i) {
                add_time(instructions[i], times[i], sorted);
            }
        }
    }
    reset();
    return all;
}

void Trainer::add_time(const Instruction& instruction, const OperationTime& time,
                       TrainingTimes& times) const {
    if (instruction.kind == InstructionKind::forward) {
        times.forward.push_back(time);
    } else if (instruction.kind == InstructionKind::backward) {
        times.backward.push_back(time);
    } else if (instruction.kind == InstructionKind::optimizer) {
        times.optimizer = time;
    } else {
        times.copies += time.device;
        times.copy_launches += time.host;
        ++times.copy_count;
        times.copied += copied_by(instruction);
    }
}

Bytes Trainer::copied_by(const Instruction& instruction) const {
    const auto subject = static_cast<std::size_t>(instruction.subject);
    if (instruction.copy.route == CopyRoute::gradient_to_bucket ||
        instruction.copy.route == CopyRoute::bucket_to_gradient) {
        return workload_.gradients[subject].size();
    }
    const Bytes full = plan_.buckets[subject].size;
    return {(full.count + full.count / 2) / 2};
}

std::vector<Duration> Trainer::backward_alone(std::int64_t repetitions) {
    std::vector<Duration> times;
    begin_epoch(0);
    for (std::int64_t i = -1; i < repetitions; ++i) {
        const OperationTime time = device_.time_each({[this] { run_backward(); }}).front();
        if (i >= 0) {
            times.push_back(time.device);
        }
    }
    return times;
}

void Trainer::run_backward() {
    prepare_alone(task_.schedule.batch, true);
    for (const TimedOperation& operation : workload_.backward) {
        backward(operation);
    }
}

ContentionTimes Trainer::contend(std::int64_t elements, std::int64_t iterations) {
    const Bytes size{elements * float_bytes};
    const std::shared_ptr<std::byte> message = device_.raw_memory(size.count);
    begin_epoch(0);
    ContentionTimes times = device_.contend({.own = message.get(), .size = size}, iterations,
                                            [this] { run_backward(); });
    reset();
    return times;
}

}  // namespace bucketwise
