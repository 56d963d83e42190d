// A PyTorch profiler (Kineto) trace of one rank, reduced to what tells about its training steps.
// Format: Chrome trace events, https://github.com/pytorch/kineto (libkineto/src/output_json.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "import/source/byte_source.h"

namespace bucketwise {

enum class TraceEventKind : std::uint8_t {
    // On the host:
    step,             // ProfilerStep#N
    optimizer,        // Optimizer.step#...
    ddp_forward,      // DistributedDataParallel.forward
    backward_node,    // what the autograd engine evaluates, AccumulateGrad and its hooks included
    accumulate_grad,  // in such a node; what follows in the node are hooks
    reducer_copy,     // DDP's copy or division of a gradient into its bucket, in a hook
    division,         // in place: DDP's of a gradient that is a view of its bucket, if in a hook
    bucket_to_grad,   // DDP's copy of a gradient out of its bucket
    collective_op,    // c10d::allreduce_ and its like
    collective_call,  // record_param_comms, in such an operation: it carries sizes
    annotation,       // nccl:all_reduce, gloo:all_reduce and their like
    operation,        // another one, kept only where nothing runs on a device
    launch,           // a runtime call that gives the device work
    synchronise,      // a runtime call that waits for the device
    // On the device:
    kernel,
    collective_kernel,
    copy,
    fill
};

constexpr bool is_on_device(TraceEventKind kind) {
    return kind >= TraceEventKind::kernel;
}

struct TraceEvent {
    TraceEventKind kind = TraceEventKind::operation;
    std::int32_t name = 0;      // index into KinetoTrace::names
    std::int32_t thread = 0;    // of the host, or stream of the device: a number for (pid, tid)
    std::int32_t call = -1;     // index into KinetoTrace::calls; -1: says nothing of a collective
    std::int64_t begin_ns = 0;  // since the first event that is kept
    std::int64_t end_ns = 0;
    std::int64_t correlation = -1;  // the same of a launch and what it launched; -1: not said
    std::int64_t external_id = -1;  // the same of an operation and what it launched; -1: not said
    std::int64_t elements = -1;     // of its first input; -1: not said (record_shapes)
    std::int64_t bytes = -1;        // of a copy or fill; -1: not said
    std::int32_t type = -1;         // of its first input, index into KinetoTrace::names; likewise

    [[nodiscard]] std::int64_t duration_ns() const { return end_ns - begin_ns; }
};

// What a collective says of itself.
struct CollectiveCall {
    std::string name;   // "allreduce", "all_reduce", "broadcast", "wait", ...
    std::string dtype;  // "Float", "Half", "Long", ...
    std::int64_t elements_in = -1;
    std::int64_t elements_out = -1;
    std::int64_t group_size = -1;
    std::string group;  // of processes, by name
    bool operator==(const CollectiveCall&) const = default;
};

struct KinetoTrace {
    std::string file;
    std::optional<std::int64_t> rank;
    std::optional<std::int64_t> world_size;
    std::string backend;  // "nccl"
    std::string nccl_version;
    std::string device;  // the first one's name
    std::vector<TraceEvent>
        events;  // by rising begin, of equal ones the longer first; the first at 0
    std::vector<std::string> names;
    std::vector<CollectiveCall> calls;
    // Of the operations of the host by their External id: what to call what they launched.
    std::unordered_map<std::int64_t, std::int32_t> operation_names;
    std::int64_t events_read = 0;  // all of them
    bool has_device = false;       // whether anything ran on one

    [[nodiscard]] const std::string& name_of(const TraceEvent& event) const {
        return names[static_cast<std::size_t>(event.name)];
    }
};

// More are no trace of a few steps: 10 million take some 800 MB.
constexpr std::size_t most_trace_events = 10'000'000;

// Reads one trace, however long, keeping only what the enumeration above names. Throws InputError
// for what is no JSON, no trace, nested more than 100 deep, or too long.
KinetoTrace read_kineto_trace(const ByteSource& source, const std::string& file);

}  // namespace bucketwise
