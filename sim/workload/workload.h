// A workload: the gradients of one rank in parameter order, and the timed operations whose ends
// make them ready. Bucket plans and the engine start from it.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/units.h"
#include "sim/workload/batch_norm.h"
#include "sim/workload/compiled.h"
#include "sim/workload/device.h"
#include "sim/workload/eager_cost.h"
#include "sim/workload/model.h"
#include "sim/workload/recompute.h"

namespace bucketwise {

struct Gradient {
    std::string name;  // the parameter's name
    std::int64_t numel = 0;
    DType dtype = DType::float32;
    bool sparse = false;     // PyTorch gives a sparse gradient a bucket of its own
    std::int64_t rows = 0;   // extent of the first dimension, along which it is cut; 0: not known
    bool is_float8 = false;  // of a linear layer's weight, which multiplies in float8
    bool operator==(const Gradient&) const = default;

    [[nodiscard]] Bytes size() const { return numel * element_size(dtype); }
};

// Streams of a device by number: the compute stream, and beside it those of
// Workload::side_streams, from 1 on.
constexpr std::uint8_t compute_stream = 0;
constexpr std::size_t most_side_streams = 7;

// The stream of an operation, and the other streams that it waits for by events
// (cudaStreamWaitEvent).
struct StreamOrder {
    std::uint8_t stream = compute_stream;
    // Bit s: it begins after the end of all work issued before it on stream s.
    std::uint8_t after = 0;
    bool operator==(const StreamOrder&) const = default;

    // The common case, asked first.
    [[nodiscard]] constexpr bool is_plain() const {
        return std::bit_cast<std::uint16_t>(*this) == 0;
    }
    [[nodiscard]] constexpr bool is_beside() const { return stream != compute_stream; }
    [[nodiscard]] constexpr bool is_after(std::size_t other) const {
        return (after >> other & 1U) != 0;
    }
};

// One operation, on the compute stream or beside it. When an operation of the compute stream ends,
// the next `ready_count` gradients of Workload::readiness become ready.
struct TimedOperation {
    std::string name;
    Duration device{0};  // undisturbed time on its stream
    Duration host{0};    // host time to launch it
    std::int32_t ready_count = 0;
    // Size of parameters that it uses and a later operation's gradient finishes (tied weights).
    Bytes used_before = {};
    std::optional<OperationPass> source = {};  // none: its time was given, not its work
    std::optional<Exchange> exchange = {};     // all ranks wait for it before they go on
    bool host_waits = false;                   // the host goes on when it has run
    StreamOrder order = {};
    double recomputed = 0;  // the share of it, in backward, that computes forward again
    bool operator==(const TimedOperation&) const = default;
};

// Leaves out what computes forward again, and returns how long that computed.
Duration take_out_recomputed(std::vector<TimedOperation>& backward);

// The buffers of one element size: DDP coalesces them into one broadcast, then copies each back.
struct BufferGroup {
    Bytes size;                // together
    std::int64_t tensors = 0;  // how many
    bool operator==(const BufferGroup&) const = default;
};

// The known composition of backward.
struct BackwardMix {
    std::optional<double> product_share = {};  // matrix products' share of its time
    Duration product{0};                       // the mean one; 0: not known
    Duration operation{0};                     // the mean one; 0: not known
    bool operator==(const BackwardMix&) const = default;
};

struct Workload {
    std::vector<Gradient> gradients;      // parameter order
    std::vector<TimedOperation> forward;  // one micro-step
    std::vector<TimedOperation> backward;
    std::vector<std::int32_t> readiness;     // gradient indices in the order backward finishes them
    std::vector<BufferGroup> buffer_groups;  // broadcast by DDP in forward
    bool host_is_device = false;
    Duration copy_launch{0};  // host time to launch one copy, cast or division
    // The measured time over the host's expected time, where the step waits for the host although
    // only totals were measured; 0: it does not, or nothing says so.
    double late_host = 0;
    BackwardMix mix = {};
    std::vector<std::string> side_streams = {};  // by name, of all operations of a step
    bool operator==(const Workload&) const = default;

    [[nodiscard]] Bytes gradient_bytes() const;
};

// For operations as fine as the device's kernels.
template <typename IsProduct>
BackwardMix backward_mix(const std::vector<TimedOperation>& backward, const IsProduct& is_product) {
    double all = 0;
    double products = 0;
    double count = 0;
    double kernels = 0;
    for (const TimedOperation& operation : backward) {
        if (operation.device == Duration{0} || operation.order.is_beside()) {
            continue;  // part of another one's kernel, or no computing
        }
        const auto time = static_cast<double>(operation.device.count());
        all += time;
        ++kernels;
        if (is_product(operation)) {
            products += time;
            ++count;
        }
    }
    const auto rounded = [](double time) { return Duration{static_cast<std::int64_t>(time)}; };
    return all > 0 ? BackwardMix{products / all, rounded(count > 0 ? products / count : 0.0),
                                 rounded(all / kernels)}
                   : BackwardMix{};
}

// A gradient with its given time.
struct GradientReadiness {
    Gradient gradient;
    Duration ready{0};  // from the start of backward
    // The share that computes forward again of the time since another gradient was ready.
    double recomputed = 0;
    bool operator==(const GradientReadiness&) const = default;
};

// Backward becomes one operation per distinct readiness, and one for the rest. Among gradients
// ready at the same moment the later parameter comes first, as in autograd. Precondition
// (asserted): 0 <= ready <= backward for each.
Workload workload_from_readiness(const std::vector<GradientReadiness>& gradients, Duration forward,
                                 Duration backward);

// The moments at which the workload's operations make its gradients ready, and what computes
// forward again before each. Returns when backward ends.
Duration set_readiness(const Workload& workload, std::vector<GradientReadiness>& gradients);

// The workload's backward with another activation checkpointing: without what was measured to
// compute forward again, and with the forward of each block that `recompute` chooses in front of
// its own backward. Forward operations count to the block that their names begin with; where none
// does, forward takes each block's share of backward. Without reentry the last product of a block
// does not run again: its share of the block's matrices, if autograd begins the block with it.
// Precondition (asserted): whole blocks are computed again.
std::vector<TimedOperation> backward_with(const std::optional<Recompute>& recompute,
                                          const Workload& measured);

// How a rank of many computes otherwise than alone.
struct JointComputing {
    bool compiles_blocks = false;  // one by one, where the model is compiled
    bool gathers_float8 = false;   // linear layers' weights arrive in float8
    // Forward sees parameters of this dtype, where it is not the gradients' (FSDP's param_dtype).
    std::optional<DType> parameter_dtype = {};
    std::int64_t ranks = 1;  // whose slowest the others wait for, where a prior knows the device
    bool operator==(const JointComputing&) const = default;
};

// How the operations of a model get their times.
struct ModelTiming {
    Device device;  // rates; with totals only their ratios matter
    Arithmetic arithmetic = Arithmetic::float32;
    std::optional<Duration> measured_forward = {};   // totals of one micro-step, spread over the
    std::optional<Duration> measured_backward = {};  // operations in proportion to their cost
    // Or measured one by one, in the order they run; empty: they were not.
    std::vector<Duration> measured_forward_operations = {};
    std::vector<Duration> measured_backward_operations = {};
    BatchNormSync batch_norm = BatchNormSync::local;
    RunAs run = {};              // where nothing was measured
    bool is_one_launch = false;  // the step is one CUDA graph
    std::optional<Recompute> recompute = {};
    JointComputing joint = {};
    bool operator==(const ModelTiming&) const = default;
};

// Each operation takes its measured time (precondition, asserted: one time for each operation).
// Where only a total is measured, the pass's operations are scaled in proportion to their roofline
// times to sum to it, to the picosecond. Without measurements, a device with a prior has the costs
// of EagerCosts, any other the roofline time and a launch. A measured total contains the cost of
// launching, so its operations launch for free; the time of a single operation contains it only
// where the host is the device. Where the device has a prior by which its host launches for longer
// than it computes, and the totals are no shorter than that, launching each operation takes as long
// as running it. In backward each operation runs its input gradient, then its weight
// gradient. A parameter's gradient is ready when the last operation that uses it has run (tied
// weights).
//
// A synchronised BatchNorm runs its forward in two halves, statistics and normalising, and its
// weight gradient before its input gradient. The result of the first is exchanged before the
// second. Its parameters' gradients are ready when both have run, as autograd hands them out
// together.
//
// Where blocks are checkpointed, backward runs a block's operations again, in forward's order,
// before the block's own. Measured backward passes contain them. Precondition (asserted): no
// BatchNorm is synchronised then.
//
// Where blocks are compiled one by one, the gradients of a block are ready when its backward ends.
Workload workload_from_model(const Model& model, DType gradient_dtype, const ModelTiming& timing);

}  // namespace bucketwise
