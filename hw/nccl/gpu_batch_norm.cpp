#include "hw/nccl/gpu_devices.h"

#include "hw/gpu/kernels/batch_norm_kernels.h"
#include "hw/gpu/runtime/device_memory.h"
#include "hw/gpu/runtime/gpu_check.h"
#include "hw/gpu/runtime/gpu_stream.h"

namespace bucketwise {
namespace {

std::int64_t bytes_of(const std::vector<float>& values) {
    return std::ssize(values) * element_size(DType::float32).count;
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
            stream_.copy(to, from.data(), bytes_of(from), cudaMemcpyHostToDevice);
            finish();
        }
    }

    void copy_out(std::vector<float>& to, const float* from) override {
        finish();  // patiently: the copy below waits for what comes before it, however long
        if (!to.empty()) {
            stream_.copy(to.data(), from, bytes_of(to), cudaMemcpyDeviceToHost);
            finish();
        }
    }

    void finish() override {
        PatientWait(communicators_.of_steps())
            .until([this] { return stream_.is_idle(); }, "BatchNorm");
    }

    void meet() override {
        carry({.own = one_.at(0), .size = element_size(DType::float32)});
        finish();
    }

    void run(const BatchNormPass& pass) override { launch_batch_norm(stream_.get(), pass); }

    void carry(const RankExchange& exchange) override {
        communicators_.of_steps().carry(exchange, stream_);
    }

  private:
    Communicators& communicators_;
    GpuStream stream_;
    DeviceMemory one_;  // by which ranks meet
};

}  // namespace

std::unique_ptr<BatchNormDevice> gpu_batch_norm(Communicators& communicators) {
    return std::make_unique<GpuBatchNorm>(communicators);
}

}  // namespace bucketwise
