// The backend's part of a training run: memory, the passes of a multilayer perceptron, and
// all-reduces that run beside them. Each is one class in the backend's target.
//
// Computing runs in order on one compute stream; all-reduces run one after another on a stream of
// their own, each once all computing before its launch is done. Nothing is certain to have happened
// before finish() or download() return.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "hw/batch_norm/sync_batch_norm.h"
#include "hw/compute/tensor_memory.h"
#include "hw/training/training_passes.h"
#include "sim/base/dtype.h"
#include "sim/base/units.h"
#include "sim/workload/model.h"

namespace bucketwise {

// Time of the device, and of the host for the launch; zero where they are the same.
struct OperationTime {
    Duration device{0};
    Duration host{0};
    bool operator==(const OperationTime&) const = default;
};

// All-reduces back to back while a pass runs over and over.
struct ContentionTimes {
    std::vector<Duration> all_reduces;
    std::vector<Duration> passes;  // that ran from begin to end while all-reduces did
};

// Linear layers are products c[m,n] = a[m,k] b[k,n] (sim/workload/model.h), all matrices row-major,
// b the weight. Rows may be none, everything else is not.
class TrainingDevice : public BatchNormDevice {
  public:
    using Act = std::function<void()>;
    using Ticket = std::size_t;
    using BatchNormDevice::run;

    [[nodiscard]] virtual int rank() const = 0;
    // Whether the thread that launches also computes.
    [[nodiscard]] virtual bool host_is_device() const = 0;

    // Tensors that share a block start at multiples of this.
    [[nodiscard]] virtual std::int64_t alignment_bytes() const = 0;
    // Memory of its libraries, beside tensors.
    [[nodiscard]] virtual std::int64_t workspace_bytes() const = 0;

    // --- computing ---

    virtual void run(const TrainingPass& pass) = 0;
    // c = a b + bias
    virtual void linear(const MatrixProduct& p, const float* a, const float* b, const float* bias,
                        float* c) = 0;
    // a = c b^T
    virtual void linear_input_gradient(const MatrixProduct& p, const float* c, const float* b,
                                       float* a) = 0;
    // b = a^T c and bias = the sums of c's columns, or += where `accumulate`; also without rows.
    virtual void linear_weight_gradient(const MatrixProduct& p, const float* a, const float* c,
                                        float* b, float* bias, bool accumulate) = 0;
    // to[i] = factor * from[i]; `to` may be `from`.
    virtual void copy_scaled(void* to, DType to_dtype, const void* from, DType from_dtype,
                             std::int64_t count, double factor) = 0;

    // --- communicating; finish() forgets all tickets ---

    virtual Ticket all_reduce(const RankExchange& exchange) = 0;
    // Later work on the compute stream comes after it.
    virtual void wait_for(Ticket ticket) = 0;

    // --- measuring ---

    // Runs each in turn, none waiting for its launch, nothing communicated.
    virtual std::vector<OperationTime> time_each(const std::vector<Act>& acts) = 0;
    // `message` holds zeros, which stay zeros. All ranks set out together.
    virtual ContentionTimes contend(const RankExchange& message, std::int64_t iterations,
                                    const Act& pass) = 0;
};

}  // namespace bucketwise
