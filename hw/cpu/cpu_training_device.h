// A rank's training on a CPU: one thread computes through Eigen, another communicates.
#pragma once

#include <vector>

#include "hw/rank/communication_thread.h"
#include "hw/rank/communicator.h"
#include "hw/rank/isolated_all_reduce.h"
#include "hw/training/training_device.h"

namespace bucketwise {

class CpuTrainingDevice : public TrainingDevice {
  public:
    // `communicator` is kept by reference and used by one other thread.
    explicit CpuTrainingDevice(Communicator& communicator);

    [[nodiscard]] int rank() const override { return communicator_.rank(); }
    [[nodiscard]] int ranks() const override { return communicator_.ranks(); }
    [[nodiscard]] bool host_is_device() const override { return true; }
    [[nodiscard]] std::int64_t alignment_bytes() const override;
    [[nodiscard]] std::int64_t workspace_bytes() const override { return 0; }
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

    std::vector<OperationTime> time_each(const std::vector<Act>& acts) override;
    ContentionTimes contend(float* data, std::int64_t elements, std::int64_t iterations,
                            const Act& pass) override;

  protected:
    [[nodiscard]] std::shared_ptr<std::byte> raw_memory(std::int64_t bytes) override;

  private:
    Communicator& communicator_;
    std::vector<Ticket> tickets_;
    IsolatedAllReduce messages_;  // uses thread_
    CommunicationThread thread_;  // last, so that it ends first
};

}  // namespace bucketwise
