#include "hw/nccl/gpu_batch_norm.h"

#include "hw/gpu/kernels/batch_norm_kernels.h"
#include "hw/gpu/runtime/gpu_check.h"

namespace bucketwise {
namespace {

std::size_t bytes_of(const std::vector<float>& values) {
    return values.size() * sizeof(float);
}

}  // namespace

// Memory that a collective still uses must not go, and cudaFree would wait for it for ever.
GpuBatchNorm::~GpuBatchNorm() {
    if (!ends_well(stream_)) {
        communicators_.abort();
    }
}

std::shared_ptr<std::byte> GpuBatchNorm::allocate(std::int64_t bytes) {
    finish();  // patiently: making new memory waits for the GPU, however long
    const auto memory = std::make_shared<DeviceMemory>(bytes);
    return {memory, memory->at(0)};
}

void GpuBatchNorm::copy_in(float* to, const std::vector<float>& from) {
    if (!from.empty()) {
        check_gpu(
            cudaMemcpyAsync(to, from.data(), bytes_of(from), cudaMemcpyHostToDevice, stream_.get()),
            "cudaMemcpyAsync");
        finish();
    }
}

void GpuBatchNorm::copy_out(std::vector<float>& to, const float* from) {
    finish();  // patiently: the copy below waits for what comes before it, however long
    if (!to.empty()) {
        check_gpu(
            cudaMemcpyAsync(to.data(), from, bytes_of(to), cudaMemcpyDeviceToHost, stream_.get()),
            "cudaMemcpyAsync");
        finish();
    }
}

void GpuBatchNorm::finish() {
    PatientWait(communicators_.of_steps()).until([this] { return stream_.is_idle(); }, "BatchNorm");
}

void GpuBatchNorm::meet() {
    all_reduce_sum(one_.at(0), 1, DType::float32);
    finish();
}

void GpuBatchNorm::local_statistics(const float* x, const BatchShape& shape, float* to) {
    launch_local_statistics(stream_.get(), x, shape, to);
}

void GpuBatchNorm::combine(const float* gathered, const BatchShape& shape,
                           const ChannelStatistics& to) {
    launch_combine(stream_.get(), gathered, ranks(), shape, to);
}

void GpuBatchNorm::local_sums(const float* x, const BatchShape& shape, double* to) {
    launch_local_sums(stream_.get(), x, shape, to);
}

void GpuBatchNorm::statistics_of_sums(const double* sums, const BatchShape& shape,
                                      const ChannelStatistics& to) {
    launch_statistics_of_sums(stream_.get(), sums, shape, to);
}

void GpuBatchNorm::normalise(const float* x, const BatchShape& shape,
                             const ChannelStatistics& statistics, const float* weight,
                             const float* bias, float* y) {
    launch_normalise(stream_.get(), x, shape, statistics, weight, bias, y);
}

void GpuBatchNorm::gradient_sums(const float* dy, const float* x, const BatchShape& shape,
                                 const ChannelStatistics& statistics, GradientScale scale,
                                 const GradientSums& to) {
    launch_gradient_sums(stream_.get(), dy, x, shape, statistics, scale, to);
}

void GpuBatchNorm::input_gradients(const float* dy, const float* x, const BatchShape& shape,
                                   const ChannelStatistics& statistics, GradientScale scale,
                                   const float* sums, const float* weight, float* dx) {
    launch_input_gradients(stream_.get(), dy, x, shape, statistics, scale, sums, weight, dx);
}

void GpuBatchNorm::all_gather(const float* own, float* all, std::int64_t elements) {
    communicators_.of_steps().all_gather(own, all, elements * element_size(DType::float32),
                                         stream_);
}

void GpuBatchNorm::all_reduce_sum(void* data, std::int64_t elements, DType dtype) {
    communicators_.of_steps().all_reduce(data, elements, dtype, Reduction::sum, stream_);
}

}  // namespace bucketwise
