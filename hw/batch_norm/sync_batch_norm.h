// A BatchNorm layer whose statistics are those of all ranks' batches together, like torch.nn's
// SyncBatchNorm, forward and backward, on tensors [rows, channels] of float32. Ranks may have
// different numbers of rows, and none.
//
//   gather   forward: each rank's mean and inverse deviation, one all-gather of 2C + 1 float32,
//            combined by counts; backward: one all-reduce of [sum dy, sum dy (x - mean)], 2C
// float32. As PyTorch does (torch/nn/modules/_functions.py).
//   fused    forward: one all-reduce of [sum x, sum x^2, rows], 2C + 1 float64; backward: one of
//            [sum dy, sum dy xhat], 2C float32.
//
// The layer is written once; a device says how its passes over memory and its collectives run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "hw/batch_norm/batch_norm_passes.h"
#include "hw/compute/tensor_memory.h"
#include "hw/rank/communicator.h"
#include "sim/base/dtype.h"
#include "sim/base/interface.h"
#include "sim/base/units.h"
#include "sim/workload/batch_norm.h"

namespace bucketwise {

// The operations of a layer on one device. All pointers are to memory that raw_memory() gave.
// Everything runs in the order of the calls, and may be under way when a call returns. Collectives
// are over all ranks and throw as Communicator does.
class BatchNormDevice : public Interface {
  public:
    [[nodiscard]] virtual int ranks() const = 0;

    // Throws std::bad_alloc.
    [[nodiscard]] virtual std::shared_ptr<std::byte> raw_memory(std::int64_t bytes) = 0;
    // From the host, there when it returns; to the host, after everything before.
    virtual void upload(void* to, const void* from, std::int64_t bytes) = 0;
    virtual void download(void* to, const void* from, std::int64_t bytes) = 0;
    // Returns once everything has ended. Throws PeerFailure.
    virtual void finish() = 0;
    // Returns once all ranks have called it.
    virtual void meet() = 0;

    virtual void run(const BatchNormPass& pass) = 0;
    virtual void carry(const RankExchange& exchange) = 0;
};

// A layer's input: [rows, channels], except the last two, which are [channels].
struct BatchNormValues {
    BatchShape shape;
    std::vector<float> input;
    std::vector<float> output_gradient;
    std::vector<float> weight;
    std::vector<float> bias;
};

// A layer's results: the first two are [rows, channels], the others [channels]. The gradients of
// weight and bias are this rank's alone.
struct BatchNormResult {
    std::vector<float> output;
    std::vector<float> input_gradient;
    std::vector<float> weight_gradient;
    std::vector<float> bias_gradient;
    std::vector<float> running_mean;
    std::vector<float> running_variance;
};

// One layer on one rank, with running statistics that begin as PyTorch's, 0 and 1. `device` is
// kept by reference. All calls but peak_bytes() are collective.
class SyncBatchNorm {
  public:
    // Precondition (asserted): `sync` is not local; as many values as the shape says; the rows of
    // all ranks together stay below 2^24, up to which float32 counts exactly. The output's gradient
    // is loaded only where backward runs.
    SyncBatchNorm(BatchNormDevice& device, BatchNormSync sync, BatchNormPasses passes,
                  const BatchNormValues& values);

    // Runs one step. Backward's results are empty where only forward runs.
    BatchNormResult run();
    // Runs that many steps. Returns the time of each, from its first launch until the device has
    // done everything. `waiting` is called about once a second; may be empty.
    std::vector<Duration> repeat(std::int64_t iterations, const std::function<void()>& waiting);

    // The most memory that was live at once: the layer's input, output, their gradients, its
    // parameters and running statistics, and all other memory of the step, as TensorPool counts.
    [[nodiscard]] std::int64_t peak_bytes() const { return pool_.count().peak; }

  private:
    using Tensor = TensorMemory;
    // Forward's results for backward.
    struct Saved {
        Tensor mean;
        Tensor inverse;
        Tensor rows;
        Tensor output;
    };
    struct Gradients {
        Tensor weight;
        Tensor bias;
        Tensor input;
    };

    [[nodiscard]] ChannelStatistics statistics_in(const Saved& saved) const;
    void gather_statistics(const Saved& saved);
    void reduce_statistics(const Saved& saved);
    Saved forward();
    Gradients backward(const Saved& saved);

    BatchNormDevice& device_;
    BatchNormSync sync_;
    BatchNormPasses passes_;
    BatchShape shape_;
    TensorPool pool_;
    Tensor input_;
    Tensor output_gradient_;
    Tensor weight_;
    Tensor bias_;
    Tensor running_mean_;
    Tensor running_variance_;
};

}  // namespace bucketwise
