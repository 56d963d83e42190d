// One rank's data-parallel training of a multilayer perceptron: real gradients, in buckets by the
// simulator's own plan, all-reduced as its own program says.
//
// A step is the very instruction list that the engine executes (sim/program): each rank computes
// the gradient of its samples' losses in micro-steps, and in the last one's backward buckets go out
// as the strategy has it. The loss is the mean over all samples of the step, on any rank: a rank's
// losses are scaled by ranks / samples of the step, as the mean over ranks that every strategy
// takes divides by the number of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "hw/compute/tensor_memory.h"
#include "hw/rank/rank_memory.h"
#include "hw/training/image_data.h"
#include "hw/training/training_device.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/models/models.h"
#include "sim/workload/training_schedule.h"

namespace bucketwise {

struct TrainingTask {
    MlpShape shape;
    TrainingSchedule schedule;
    SyncRequest sync;
    Optimizer optimizer = Optimizer::sgd;  // not adam
    float learning_rate = 0.1F;
    float momentum = 0.9F;   // of sgd_momentum
    std::uint64_t seed = 1;  // of parameters and of the epochs' orders
    bool operator==(const TrainingTask&) const = default;
};

// Results of this rank's samples of an epoch, each at the parameters its step began with.
struct SampleResults {
    double loss = 0;  // sum
    std::int64_t correct = 0;
    std::int64_t samples = 0;
    bool operator==(const SampleResults&) const = default;
};

// The times of one micro-step's instructions by themselves.
struct TrainingTimes {
    std::vector<OperationTime> forward;   // the batch's gathering, then the model's operations
    std::vector<OperationTime> backward;  // as Workload::backward
    OperationTime optimizer = {};
    Duration copies{0};         // all of a step's copies and casts together
    Duration copy_launches{0};  // the host's time for them
    Bytes copied;               // payload; of a cast the mean of both sizes, as sim/program has it
    std::int64_t copy_count = 0;
};

class Trainer {
  public:
    // `data` is the same on every rank; both it and `device` are kept by reference. Throws
    // std::bad_alloc.
    Trainer(const TrainingTask& task, const ImageData& data, TrainingDevice& device);

    // The model that is trained, by its name in a scenario.
    [[nodiscard]] const Model& model() const { return model_; }
    [[nodiscard]] const Workload& workload() const { return workload_; }
    [[nodiscard]] const SyncSettings& sync() const { return sync_; }
    [[nodiscard]] const BucketPlan& plan() const { return plan_; }
    [[nodiscard]] const MemoryCount& memory() const { return source_.count; }

    // Back to the parameters that the seed gives; forgets the optimizer's moments.
    void reset();
    void begin_epoch(std::int64_t epoch);
    // One step of the epoch; all ranks set out together, and it ends when all of it has. Returns
    // how long that took this rank.
    Duration step(std::int64_t number);
    // Since begin_epoch().
    SampleResults training_results();
    // On all test images.
    SampleResults test();

    // The values of one parameter in the device's memory.
    [[nodiscard]] std::vector<float> gradient(std::int32_t index) const {
        return values_at(gradient_at(index), index);
    }
    [[nodiscard]] std::vector<float> parameter(std::int32_t index) const {
        return values_at(parameter_at(index), index);
    }

    // The time of each instruction of a micro-step of `rows` samples, and of its synchronisation
    // without communication. `rows`: 1 to the schedule's batch. `accumulates`: adds to the
    // gradients that are there, as all micro-steps of a step but the first do. Trained parameters
    // are lost, here and below.
    std::vector<TrainingTimes> time_operations(std::int64_t rows, bool accumulates,
                                               std::int64_t repetitions);
    // A backward pass of a full micro-step, over and over beside all-reduces of `elements`.
    ContentionTimes contend(std::int64_t elements, std::int64_t iterations);
    // The backward pass of contend() alone.
    std::vector<Duration> backward_alone(std::int64_t repetitions);

  private:
    static constexpr std::int64_t float_bytes = 4;

    // The state of the running step.
    struct Running {
        std::vector<SampleRange> parts;  // by micro-step
        std::size_t micro_step = 0;
        float scale = 1.0F;                                // of each sample's loss
        std::int64_t results = 0;                          // where the micro-step's results go
        std::vector<TrainingDevice::Ticket> tickets = {};  // by collective
        const Program* program = nullptr;
    };
    struct Layer {
        std::int64_t in = 0;
        std::int64_t out = 0;
        std::int32_t weight = 0;  // parameter
        std::int32_t bias = 0;
    };

    void allocate();
    [[nodiscard]] std::int64_t aligned(std::int64_t bytes) const;
    void upload_images(const TensorMemory& images, const TensorMemory& labels,
                       const LabelledImages& from);
    [[nodiscard]] Program program_of(std::int64_t micro_steps) const;
    void execute(const Instruction& instruction);
    void forward(const TimedOperation& operation);
    void backward(const TimedOperation& operation);
    void gather(const TensorMemory& images, const std::int32_t* places, std::int64_t rows);
    void linear(std::size_t layer, std::int64_t rows);
    void relu(std::size_t layer, std::int64_t rows);
    void loss();
    void weight_gradient(std::size_t layer);
    void copy(Copy copy, std::int32_t subject);
    void launch(std::int32_t collective);
    void update();
    SampleResults results(std::int64_t count);
    [[nodiscard]] const std::int32_t* places_of_micro_step() const {
        return order_.as<std::int32_t>() + running_.parts[running_.micro_step].begin;
    }
    [[nodiscard]] std::int64_t rows() const { return running_.parts[running_.micro_step].count; }
    [[nodiscard]] MatrixProduct product(const Layer& layer, std::int64_t rows) const;
    [[nodiscard]] float* activation(std::size_t layer) const;
    [[nodiscard]] float* activation_gradient(std::size_t layer) const;
    [[nodiscard]] float* gradient_at(std::int32_t index) const {
        return reinterpret_cast<float*>(synchronised_.gradients().gradient(index));
    }
    [[nodiscard]] float* parameter_at(std::int32_t index) const;
    [[nodiscard]] std::vector<float> values_at(const float* data, std::int32_t index) const;
    [[nodiscard]] std::int64_t numel_of(std::int32_t gradient) const {
        return workload_.gradients[static_cast<std::size_t>(gradient)].numel;
    }
    void prepare_alone(std::int64_t rows, bool accumulates);
    void run_backward();
    void add_time(const Instruction& instruction, const OperationTime& time,
                  TrainingTimes& times) const;
    [[nodiscard]] Bytes copied_by(const Instruction& instruction) const;

    TrainingTask task_;
    const ImageData& data_;
    TrainingDevice& device_;
    Model model_;
    std::vector<Layer> layers_;
    Workload workload_;
    SyncSettings sync_;
    BucketPlan plan_;
    TensorSource source_;      // before what counts towards it
    RankMemory synchronised_;  // gradients and buckets
    std::vector<std::int64_t> parameter_offset_;
    std::vector<std::int64_t> activation_offset_;
    std::vector<Program> programs_;  // by number of micro-steps, from 1
    std::int64_t samples_seen_ = 0;  // of this rank in this epoch
    Running running_;

    TensorMemory images_;
    TensorMemory labels_;
    TensorMemory test_images_;
    TensorMemory test_labels_;
    TensorMemory order_;
    TensorMemory parameters_;
    TensorMemory moments_;
    TensorMemory activations_;           // of the batch, then of every layer
    TensorMemory activation_gradients_;  // two of the widest, which layers take in turn
    TensorMemory losses_;
    TensorMemory correct_;
};

}  // namespace bucketwise
