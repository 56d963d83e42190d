// BatchNorm's passes on a GPU: our own kernels and NCCL's collectives, all on one stream.
//
// Nothing could run beside a collective that everything after it waits for, so it gets no stream of
// its own and no events: PyTorch, which puts it on NCCL's stream, pays for two events more.
#pragma once

#include "hw/batch_norm/sync_batch_norm.h"
#include "hw/gpu/runtime/device_memory.h"
#include "hw/gpu/runtime/gpu_stream.h"
#include "hw/nccl/gpu_messages.h"

namespace bucketwise {

class GpuBatchNorm : public BatchNormDevice {
  public:
    // Kept by reference.
    explicit GpuBatchNorm(Communicators& communicators) : communicators_(communicators), one_(16) {}
    ~GpuBatchNorm() override;

    [[nodiscard]] int ranks() const override { return communicators_.of_steps().ranks(); }
    [[nodiscard]] std::shared_ptr<std::byte> allocate(std::int64_t bytes) override;
    void copy_in(float* to, const std::vector<float>& from) override;
    void copy_out(std::vector<float>& to, const float* from) override;
    void finish() override;
    void meet() override;

    void local_statistics(const float* x, const BatchShape& shape, float* to) override;
    void combine(const float* gathered, const BatchShape& shape,
                 const ChannelStatistics& to) override;
    void local_sums(const float* x, const BatchShape& shape, double* to) override;
    void statistics_of_sums(const double* sums, const BatchShape& shape,
                            const ChannelStatistics& to) override;
    void normalise(const float* x, const BatchShape& shape, const ChannelStatistics& statistics,
                   const float* weight, const float* bias, float* y) override;
    void gradient_sums(const float* dy, const float* x, const BatchShape& shape,
                       const ChannelStatistics& statistics, GradientScale scale,
                       const GradientSums& to) override;
    void input_gradients(const float* dy, const float* x, const BatchShape& shape,
                         const ChannelStatistics& statistics, GradientScale scale,
                         const float* sums, const float* weight, float* dx) override;

    void all_gather(const float* own, float* all, std::int64_t elements) override;
    void all_reduce_sum(void* data, std::int64_t elements, DType dtype) override;

  private:
    Communicators& communicators_;
    GpuStream stream_;
    DeviceMemory one_;  // what ranks meet by
};

}  // namespace bucketwise
