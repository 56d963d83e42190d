// The training steps of a trace: the host's time between launches, the times of the launched work,
// the gradients in order of readiness, and the collectives.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "import/trace/trace.h"
#include "sim/base/units.h"

namespace bucketwise {

enum class MarkKind : std::uint8_t {
    begin,        // of the step, or of the optimizer
    operation,    // something launched on the compute stream
    beside,       // something launched on a stream that the compute stream waits for
    ready,        // AccumulateGrad: the next gradient in the order of readiness
    copy_in,      // of a gradient into its bucket, with DDP's division
    copy_back,    // of a gradient out of its bucket
    copy_buffer,  // of a buffer, after its broadcast
    copy_shards,  // FSDP2's: into what is gathered or reduced, or out of it
    boundary,     // computing enters or leaves what FSDP2 shards together; where host is device
    collective
};

constexpr std::int32_t no_module = -1;
constexpr const char* zero3_name = "DeepSpeed's ZeRO-3";

// A point on the host's way through a step.
struct StepMark {
    MarkKind kind = MarkKind::operation;
    std::string name;
    Duration host{0};    // from the mark before, without waiting for the device
    Duration device{0};  // on the compute stream
    // The wait before it, while the compute stream was free and it was launched, for something that
    // is not simulated: another stream's work, another rank. For a collective that blocks the host
    // that computes: how long.
    Duration stall{0};
    Duration idle{0};       // of the host's time: within HostGaps
    double recomputed = 0;  // the share of it, in backward, that computes forward again
    // Work beside the compute stream: its stream, from 1 on of TracedStep::side_streams, how long
    // it occupies that, and whether it began only when the work launched before on the compute
    // stream had ended.
    std::int32_t stream = 0;
    Duration beside{0};
    bool after_compute = false;
    std::int32_t after =
        0;  // the side stream that the compute stream waited for before it; 0: none
    // After it, the host waits until it has run, from so long after it was launched.
    bool host_waits = false;
    std::int32_t collective = -1;  // index into TracedStep::collectives
    Duration until_wait{0};
    // From the start of the step: when the host was done with it, and when it began on the compute
    // stream.
    Duration at{0};
    Duration device_begin{0};
    std::int64_t elements = -1;  // that are copied or ready; -1: not said
    std::int64_t bytes = -1;     // that are copied; -1: not said
    std::int32_t rows = -1;      // of the ready gradient's first dimension; -1: not said
    // The module that is computed up to it: index into TracedShards::modules.
    std::int32_t module = no_module;
    bool operator==(const StepMark&) const = default;

    // Where a pass begins, and the host does not wait there.
    [[nodiscard]] bool is_nothing() const {
        return kind == MarkKind::begin && host == Duration{0} && device == Duration{0};
    }
    [[nodiscard]] bool is_copy() const {
        return kind == MarkKind::copy_in || kind == MarkKind::copy_back ||
               kind == MarkKind::copy_buffer || kind == MarkKind::copy_shards;
    }
};

// The host does nothing that the trace shows, for a millisecond or longer: it waits for data,
// sleeps, or runs Python that launches nothing.
struct HostGap {
    Duration at{0};  // from the start of the step
    Duration length{0};
    std::string before;   // the operation that follows
    Duration counted{0};  // of the length, in the host's time: the rest is a wait for collectives
    bool operator==(const HostGap&) const = default;
};

// A kernel of a micro-step that does not communicate.
struct PlainOperation {
    std::string name;
    Duration device{0};
    bool operator==(const PlainOperation&) const = default;
};

// Its name is in lower case, without underscores: "allreduce", "broadcast", "allgather", ...
struct TracedCollective : CollectiveCall {
    Bytes bytes;
    bool in_backward = false;
    bool in_hook = false;  // issued while a gradient became ready: by a hook of its
    bool in_optimizer = false;
    // An all-reduce in backward that no hook issued, while hooks issue others: of activations, as
    // in tensor parallel layers.
    bool of_layers = false;
    // The group of FSDP2 whose tensors it moves, index into TracedShards::modules.
    std::int32_t module = no_module;
    std::size_t ready_before = 0;  // gradients that were ready before it was issued
    Duration issued{0};            // on the host; before the step where that runs ahead
    // On the communication stream; none: no event tells.
    std::optional<Duration> begin = {};
    std::optional<Duration> end = {};
    std::int32_t blocks = -1;  // of threads, of its largest kernel; -1: not said
    bool operator==(const TracedCollective&) const = default;

    [[nodiscard]] bool reduces_gradients() const {
        return in_backward && name == "allreduce" && !of_layers;
    }
    [[nodiscard]] bool gathers() const { return name.starts_with("allgather"); }
    [[nodiscard]] bool scatters() const { return name.starts_with("reducescatter"); }
    [[nodiscard]] bool sends_buffers() const {
        return !in_backward && !in_optimizer && name == "broadcast";
    }
};

// The groups that FSDP2 shards together, by its hooks.
struct TracedShards {
    std::vector<std::string> modules;          // each group's, by its name; empty: the root
    std::int64_t forward_ahead = 0;            // groups that one asks for in forward, at most
    std::int64_t backward_ahead = 0;           // the same in backward
    std::vector<std::int32_t> left_last = {};  // modules whose backward ends with all of it
    std::int64_t buffers = 0;   // reduce-scatters before the first that was waited for; 0: none was
    bool asynchronous = false;  // all-gathers in forward run while the stream that issued them does
    bool operator==(const TracedShards&) const = default;
};

struct TracedStep {
    std::string name;    // "ProfilerStep#4"
    Duration length{0};  // until the next one begins
    Duration backward_begin{0};
    Duration backward_end{0};  // on the host; the optimizer follows
    std::int64_t micro_steps = 1;
    // The micro-step before the last, if it does not communicate.
    std::vector<PlainOperation> before = {};
    std::vector<StepMark> forward;   // of the last micro-step
    std::vector<StepMark> backward;  // the last
    std::vector<StepMark> optimizer;
    Duration optimizer_host{0};  // until the next step begins
    Duration optimizer_device{0};
    Duration optimizer_idle{0};  // of optimizer_host, or of optimizer_device where that is the host
    std::vector<HostGap> gaps;   // in turn
    std::vector<TracedCollective> collectives;  // as issued
    Duration device_busy{0};                    // the compute stream, with this step's work
    // The compute stream was free, and what follows launched, until collectives had ended that are
    // simulated; and until others had, or other streams' work, by its name.
    Duration device_communicating{0};
    std::map<std::string, Duration> device_stalled = {};
    Duration device_stalled_beside{0};           // of that, for side_streams
    std::vector<std::string> side_streams = {};  // by name: those that the compute stream waits for
    // The host, in calls that wait for the device, or where it computes itself, for collectives.
    Duration waited{0};
    std::int64_t waits = 0;            // such calls of 10 us or more
    Duration waited_for_queue{0};      // the host, for room in the device's launch queue
    Duration waited_for_others{0};     // in such calls, while what is simulated was idle
    Duration other_streams{0};         // work besides the compute and the communication stream
    std::int64_t unreduced = 0;        // gradients that became ready and are of no bucket
    bool hook_casts = false;           // gradients are cast into their buckets: a comm hook
    bool is_ddp = false;               // DDP's reducer was at work
    bool batched_copies = false;       // it copies a bucket's gradients at once (batched_grad_copy)
    std::string sharding = {};         // what shards, by its hooks; empty: none were seen
    TracedShards shards = {};          // of FSDP2
    std::int64_t compiled_pieces = 0;  // of the last backward: each makes several gradients ready
    std::int64_t graph_launches = 0;   // each of many kernels
    std::int64_t graph_kernels = 0;    // launched so
    bool operator==(const TracedStep&) const = default;

    // Whether FSDP2 gathers parameters and reduces and scatters gradients.
    [[nodiscard]] bool is_fully_sharded() const {
        const auto any = [&](bool (TracedCollective::*is_one)() const) {
            return std::ranges::any_of(collectives, [&](const TracedCollective& one) {
                return one.module != no_module && (one.*is_one)();
            });
        };
        return any(&TracedCollective::gathers) && any(&TracedCollective::scatters);
    }
    // The collective that a mark stands for; null: none.
    [[nodiscard]] const TracedCollective* collective_of(const StepMark& mark) const {
        return mark.collective < 0 ? nullptr
                                   : &collectives[static_cast<std::size_t>(mark.collective)];
    }
};

}  // namespace bucketwise
