// The cost of one pass of an operation, for device and host, without measurements: the kernels that
// a framework launches for it, each a matrix product or a pass over memory.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/base/dtype.h"
#include "sim/base/units.h"
#include "sim/workload/compiled.h"
#include "sim/workload/device.h"
#include "sim/workload/gpu_prior.h"
#include "sim/workload/model.h"

namespace bucketwise {

// The time of a matrix product: tiles, their depth, and their waves over the multiprocessors.
struct ProductWork {
    MatrixProduct shape;  // of the pass: a weight gradient's depth is the rows
    double bytes = 0;     // its operands and its result
    bool convolution = false;
};

// In seconds, without the launch. Precondition (asserted): the device has a prior and supports the
// arithmetic.
double product_seconds(const ProductWork& work, const Device& device, Arithmetic arithmetic);

// The rate that large products of this arithmetic reach, in flop per second.
double product_rate(const Device& device, Arithmetic arithmetic);

// Whether tensor cores compute it.
constexpr bool on_tensor_cores(Arithmetic arithmetic) {
    return arithmetic != Arithmetic::float32 && arithmetic != Arithmetic::float64;
}

// A scenario's choices of how a framework runs a model.
struct RunAs {
    Execution execution = Execution::eager;
    AttentionKernel attention = AttentionKernel::automatic;
    // Whether images have their channels last, for tensor cores; none: with 16 bits.
    std::optional<bool> channels_last = {};
    bool fused_norms = false;  // RMS norms are one kernel each way, not Python
    bool operator==(const RunAs&) const = default;
};

// Whether one kernel computes attention, so that no scores are in memory.
inline bool is_attention_fused(const Model& model, const RunAs& run) {
    return run.attention == AttentionKernel::automatic ? !model.writes_attention_out
                                                       : run.attention != AttentionKernel::eager;
}

struct PassCost {
    double seconds = 0;  // on the device
    std::int64_t kernels = 0;
};

// Costs of a model's passes on a device with a prior.
class EagerCosts {
  public:
    // `dtype` is the parameters': float32 beside an arithmetic of 16 bits is autocast.
    // `gathers_float8`: weights of linear layers arrive in float8.
    EagerCosts(const Model& model, const Device& device, Arithmetic arithmetic, DType dtype,
               const RunAs& run, bool gathers_float8 = false);

    // A fused attention costs in its last operation, the sum of values; those before it cost
    // nothing, but stay in the list for real ranks.
    [[nodiscard]] PassCost of(const Operation& operation, Pass pass,
                              const PassPlace& place = {}) const;

    // Host time to launch it. `node`: autograd's node is reached with it; `gradients`: parameters
    // whose gradients it puts in place.
    [[nodiscard]] Duration host(const PassCost& cost, Pass pass, bool node, std::int64_t gradients,
                                const PassPlace& place = {}) const;

  private:
    // Share of the rate of large products.
    [[nodiscard]] double attention_efficiency(bool forward, std::int64_t head_width) const;
    [[nodiscard]] PassCost attention_cost(const Operation& operation, Pass pass) const;
    [[nodiscard]] PassCost product_cost(const Operation& operation, Pass pass,
                                        const PassPlace& place) const;
    [[nodiscard]] PassCost memory_cost(const Operation& operation, Pass pass,
                                       const PassPlace& place) const;
    [[nodiscard]] double passes_seconds(double bytes) const;
    [[nodiscard]] double stream_size() const;

    const Device& device_;
    Arithmetic arithmetic_;             // of products that are not in float8
    std::optional<Arithmetic> float8_;  // of linear layers in blocks
    bool gathers_float8_;
    bool autocast_;
    RunAs run_;
    double size_;  // of an element, in bytes
};

}  // namespace bucketwise
