// A rank's training on a GPU: products through cuBLAS and kernels of our own on a compute stream,
// NCCL's all-reduces on a communication stream, events between them.
#pragma once

#include <cstddef>
#include <vector>

#include "hw/gpu/head_start.h"
#include "hw/gpu/matrix_products.h"
#include "hw/gpu/runtime/device_memory.h"
#include "hw/gpu/runtime/gpu_stream.h"
#include "hw/nccl/gpu_messages.h"
#include "hw/training/training_device.h"

namespace bucketwise {

class GpuTrainingDevice : public TrainingDevice {
  public:
    // `communicators` is kept by reference.
    explicit GpuTrainingDevice(Communicators& communicators);
    ~GpuTrainingDevice() override;

    [[nodiscard]] int rank() const override { return communicators_.of_steps().rank(); }
    [[nodiscard]] int ranks() const override { return communicators_.of_steps().ranks(); }
    [[nodiscard]] bool host_is_device() const override { return false; }
    [[nodiscard]] std::int64_t alignment_bytes() const override {
        return DeviceMemory::alignment_bytes;
    }
    [[nodiscard]] std::int64_t workspace_bytes() const override { return products_.memory_bytes(); }
    void upload(void* to, const void* from, std::int64_t bytes) override;
    void download(void* to, const void* from, std::int64_t bytes) override;

    void gather(const GatherCall& call) override;
    void linear(const MatrixProduct& p, const float* a, const float* b, const float* bias,
                float* c) override;
    void linear_input_gradient(const MatrixProduct& p, const float* c, const float* b,
                               float* a) override;
    void linear_weight_gradient(const MatrixProduct& p, const float* a, const float* c, float* b,
                                float* bias, bool accumulate) override;
    void relu(float* x, std::int64_t count) override;
    void relu_gradient(float* gradient, const float* activation, std::int64_t count) override;
    void cross_entropy(const CrossEntropyCall& call) override;
    void sgd(const SgdCall& call) override;
    void copy_scaled(void* to, DType to_dtype, const void* from, DType from_dtype,
                     std::int64_t count, double factor) override;

    void meet() override;
    Ticket all_reduce(void* data, std::int64_t elements, DType dtype, Reduction reduction) override;
    void wait_for(Ticket ticket) override;
    void finish() override;

    // Times are the GPU's, by events.
    std::vector<OperationTime> time_each(const std::vector<Act>& acts) override;
    ContentionTimes contend(float* data, std::int64_t elements, std::int64_t iterations,
                            const Act& pass) override;

  protected:
    [[nodiscard]] std::shared_ptr<std::byte> raw_memory(std::int64_t bytes) override;

  private:
    struct Launched {
        GpuEvent ready{Timing::off};  // what it reduces has been computed
        GpuEvent begin{Timing::on};
        GpuEvent end{Timing::on};
    };
    void time_batch(const Act* acts, std::size_t count, std::vector<OperationTime>& times);

    Communicators& communicators_;
    GpuStream compute_;
    GpuStream communication_;
    MatrixProducts products_;  // on compute_
    DeviceMemory scratch_;     // what ranks meet by, and what stamps are timed with
    HeadStart head_start_;
    Duration stamp_time_{0};  // what a stamp adds to what it times
    std::size_t launched_ = 0;
    std::vector<Launched> collectives_;  // the first `launched_` are in use
};

}  // namespace bucketwise
