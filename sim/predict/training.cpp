#include "sim/predict/training.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/engine/engine.h"
#include "sim/engine/step_parts.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

class StepSimulator {
  public:
    StepSimulator(const SyncSettings& sync, const BucketPlan& plan, const MicroStepInput& input_of)
        : sync_(sync), plan_(plan), input_of_(input_of) {}

    Duration step(const std::vector<SampleRange>& parts) {
        progress_ = {};
        longest_seconds_ = 0;
        for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
            run(build_micro_step(input(parts[i], i > 0), sync_, static_cast<std::int64_t>(i)));
        }
        const StepInput& last = input(parts.back(), parts.size() > 1);
        run(build_last_forward(last, sync_));
        Program closing;
        build_closing(last, sync_, plan_, closing);
        run(closing);
        return progress_.times.step();
    }

  private:
    const StepInput& input(const SampleRange& part, bool accumulates) {
        const std::pair key{part.count, accumulates};
        const auto known = inputs_.find(key);
        return known != inputs_.end()
                   ? known->second
                   : inputs_.emplace(key, input_of_(part.count, accumulates)).first->second;
    }

    void run(const Program& program) {
        longest_seconds_ += longest_possible_seconds(program);
        check_length(longest_seconds_);
        progress_ = simulate({&program, 1}, Record::times_only, progress_).progress.front();
    }

    const SyncSettings& sync_;
    const BucketPlan& plan_;
    const MicroStepInput& input_of_;
    std::map<std::pair<std::int64_t, bool>, StepInput> inputs_;
    RankProgress progress_;
    double longest_seconds_ = 0;
};

constexpr std::int64_t float_bytes = 4;
constexpr std::int64_t int_bytes = 4;
constexpr std::int64_t half_bytes = 2;

Bytes aligned(std::int64_t bytes, Bytes alignment) {
    return {(bytes + alignment.count - 1) / alignment.count * alignment.count};
}

// Weights and biases, each aligned, and how many elements and tensors they are.
struct ParameterSizes {
    Bytes together;
    std::int64_t elements = 0;
    std::int64_t tensors = 0;
};

ParameterSizes parameter_sizes(const MlpShape& shape, Bytes alignment) {
    ParameterSizes sizes;
    for (std::size_t i = 0; i + 1 < shape.layers.size(); ++i) {
        const std::int64_t out = shape.layers[i + 1];
        for (const std::int64_t numel : {shape.layers[i] * out, out}) {
            sizes.together += aligned(numel * float_bytes, alignment);
            sizes.elements += numel;
            ++sizes.tensors;
        }
    }
    return sizes;
}

// See hw/compute/gradient_buffers.h: room for any plan, whose buckets start aligned.
void add_buckets(const TrainingMemoryInput& input, const ParameterSizes& sizes,
                 TrainingMemory& memory) {
    const bool views = input.sync.communicates && !(input.sync.copies_in && input.sync.copies_back);
    const Bytes room = sizes.together + input.alignment;
    memory.gradients = views ? Bytes{} : room;
    memory.buckets = input.sync.communicates ? room : Bytes{};
    if (input.sync.comm_hook != CommHook::none) {
        memory.buckets +=
            Bytes{half_bytes * sizes.elements} + (sizes.tensors + 1) * input.alignment;
    }
}

}  // namespace

TrainingTime training_time(const TrainingSchedule& schedule, const SyncSettings& sync,
                           const BucketPlan& plan, const MicroStepInput& input_of) {
    StepSimulator simulator(sync, plan, input_of);
    const std::int64_t steps = steps_per_epoch(schedule);
    TrainingTime time;
    time.full_steps = steps - 1;
    time.last_step = simulator.step(micro_steps(schedule, steps - 1, 0));
    time.full_step = steps > 1 ? simulator.step(micro_steps(schedule, 0, 0)) : time.last_step;
    return time;
}

TrainingMemory training_memory(const TrainingMemoryInput& input, std::int64_t rank) {
    const std::vector<std::int64_t>& layers = input.shape.layers;
    const std::int64_t samples = input.schedule.samples;
    const std::int64_t batch = input.schedule.batch;
    TrainingMemory memory;
    const std::int64_t seen = samples_of_rank(input.schedule, rank);
    memory.data = {(samples + input.test_samples) * (layers.front() * float_bytes + int_bytes) +
                   std::max(samples, input.test_samples) * int_bytes +
                   std::max(seen, input.test_samples) * (float_bytes + int_bytes)};
    const ParameterSizes sizes = parameter_sizes(input.shape, input.alignment);
    memory.parameters = sizes.together;
    memory.moments = input.optimizer == Optimizer::sgd_momentum ? sizes.together : Bytes{};
    add_buckets(input, sizes, memory);
    for (const std::int64_t width : layers) {
        memory.activations += aligned(batch * width * float_bytes, input.alignment);
    }
    const std::int64_t widest = *std::max_element(layers.begin() + 1, layers.end());
    memory.activation_gradients = 2 * aligned(batch * widest * float_bytes, input.alignment);
    memory.workspace = input.workspace;
    return memory;
}

}  // namespace bucketwise
