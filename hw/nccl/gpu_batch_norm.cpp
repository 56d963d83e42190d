#include "hw/nccl/gpu_batch_norm.h"

#include "hw/gpu/kernels/batch_norm_kernels.h"
#include "hw/gpu/runtime/device_memory.h"
#include "hw/gpu/runtime/gpu_check.h"
#include "hw/gpu/runtime/gpu_stream.h"

namespace bucketwise {
namespace {

std::size_t bytes_of(const std::vector<float>& values) {
    return values.size() * sizeof(float);
}

class GpuBatchNorm : public BatchNormDevice {
  public:
    explicit GpuBatchNorm(Communicators& communicators) : communicators_(communicators), one_(16) {}

    // Memory that a collective still uses must not go, and cudaFree would wait for it for ever.
    ~GpuBatchNorm() override {
        if (!ends_well(stream_)) {
            communicators_.abort();
        }
    }

    [[nodiscard]] int ranks() const override { return communicators_.of_steps().ranks(); }

    [[nodiscard]] std::shared_ptr<std::byte> allocate(std::int64_t bytes) override {
        finish();  // patiently: making new memory waits for the GPU, however long
        const auto memory = std::make_shared<DeviceMemory>(bytes);
        return {memory, memory->at(0)};
    }

    void copy_in(float* to, const std::vector<float>& from) override {
        if (!from.empty()) {
            check_gpu(cudaMemcpyAsync(to, from.data(), bytes_of(from), cudaMemcpyHostToDevice,
                                      stream_.get()),
                      "cudaMemcpyAsync");
            finish();
        }
    }

    void copy_out(std::vector<float>& to, const float* from) override {
        finish();  // patiently: the copy below waits for what comes before it, however long
        if (!to.empty()) {
            check_gpu(cudaMemcpyAsync(to.data(), from, bytes_of(to), cudaMemcpyDeviceToHost,
                                      stream_.get()),
                      "cudaMemcpyAsync");
            finish();
        }
    }

    void finish() override {
        PatientWait(communicators_.of_steps())
            .until([this] { return stream_.is_idle(); }, "BatchNorm");
    }

    void meet() override {
        all_reduce_sum(one_.at(0), 1, DType::float32);
        finish();
    }

    void local_statistics(const float* x, const BatchShape& shape, float* to) override {
        launch_local_statistics(stream_.get(), x, shape, to);
    }

    void combine(const float* gathered, const BatchShape& shape,
                 const ChannelStatistics& to) override {
        launch_combine(stream_.get(), gathered, ranks(), shape, to);
    }

    void local_sums(const float* x, const BatchShape& shape, double* to) override {
        launch_local_sums(stream_.get(), x, shape, to);
    }

    void statistics_of_sums(const double* sums, const BatchShape& shape,
                            const ChannelStatistics& to) override {
        launch_statistics_of_sums(stream_.get(), sums, shape, to);
    }

    void normalise(const float* x, const BatchShape& shape, const ChannelStatistics& statistics,
                   const float* weight, const float* bias, float* y) override {
        launch_normalise(stream_.get(), x, shape, statistics, weight, bias, y);
    }

    void gradient_sums(const float* dy, const float* x, const BatchShape& shape,
                       const ChannelStatistics& statistics, GradientScale scale,
                       const GradientSums& to) override {
        launch_gradient_sums(stream_.get(), dy, x, shape, statistics, scale, to);
    }

    void input_gradients(const float* dy, const float* x, const BatchShape& shape,
                         const ChannelStatistics& statistics, GradientScale scale,
                         const float* sums, const float* weight, float* dx) override {
        launch_input_gradients(stream_.get(), dy, x, shape, statistics, scale, sums, weight, dx);
    }

    void all_gather(const float* own, float* all, std::int64_t elements) override {
        communicators_.of_steps().all_gather(own, all, elements * element_size(DType::float32),
                                             stream_);
    }

    void all_reduce_sum(void* data, std::int64_t elements, DType dtype) override {
        communicators_.of_steps().all_reduce(data, elements, dtype, Reduction::sum, stream_);
    }

  private:
    Communicators& communicators_;
    GpuStream stream_;
    DeviceMemory one_;  // what ranks meet by
};

}  // namespace

std::unique_ptr<BatchNormDevice> gpu_batch_norm(Communicators& communicators) {
    return std::make_unique<GpuBatchNorm>(communicators);
}

}  // namespace bucketwise
