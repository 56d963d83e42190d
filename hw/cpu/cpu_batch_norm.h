// BatchNorm's passes on a CPU: one thread computes and, as nothing could go on meanwhile,
// communicates.
#pragma once

#include "hw/batch_norm/sync_batch_norm.h"
#include "hw/launch/processor_affinity.h"
#include "hw/rank/communicator.h"

namespace bucketwise {

// Made and used by one thread.
class CpuBatchNorm : public BatchNormDevice {
  public:
    // Kept by reference.
    explicit CpuBatchNorm(Communicator& communicator)
        : communicator_(communicator),
          limit_(ProcessorLimit::away_from_transport(communicator.rank())) {}

    [[nodiscard]] int ranks() const override { return communicator_.ranks(); }
    [[nodiscard]] std::shared_ptr<std::byte> allocate(std::int64_t bytes) override;
    void copy_in(float* to, const std::vector<float>& from) override;
    void copy_out(std::vector<float>& to, const float* from) override;
    void finish() override {}
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
    Communicator& communicator_;
    ProcessorLimit limit_;
};

}  // namespace bucketwise
