// A profiler's trace of one rank, reduced to the events that tell about its training steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "import/trace/event_kind.h"

namespace bucketwise {

struct TraceEvent {
    TraceEventKind kind = TraceEventKind::operation;
    std::int32_t name = 0;      // index into ProfilerTrace::names
    std::int32_t thread = 0;    // of the host, or stream of the device: a number for (pid, tid)
    std::int32_t call = -1;     // index into ProfilerTrace::calls; -1: says nothing of a collective
    std::int64_t begin_ns = 0;  // since the first event that is kept
    std::int64_t end_ns = 0;
    std::int64_t correlation = -1;  // shared by a launch and its work; -1: not said
    std::int64_t external_id = -1;  // shared by an operation and its work; -1: not said
    std::int64_t elements = -1;     // of its first input; -1: not said (record_shapes)
    std::int64_t bytes = -1;        // of a copy or fill; -1: not said
    std::int32_t type = -1;    // of its first input, index into ProfilerTrace::names; -1: not said
    std::int32_t order = 0;    // of those kept, in the file
    std::int32_t blocks = -1;  // of threads, of a kernel; -1: not said
    std::int32_t rows = -1;    // first dimension of its first input; -1: not said

    [[nodiscard]] std::int64_t duration_ns() const { return end_ns - begin_ns; }
};

// The arguments of a collective.
struct CollectiveCall {
    std::string name;              // "allreduce", "all_reduce", "broadcast", "wait", ...
    std::string dtype;             // "Float", "Half", "Long", ...; empty: not said
    std::int64_t elements = -1;    // that it takes; -1: not said
    std::int64_t group_size = -1;  // -1: not said
    std::string group;             // of processes, by name
    bool operator==(const CollectiveCall&) const = default;
};

// An assumption of the reader.
struct TraceNote {
    std::string item;
    std::string text;
    bool weakens = false;  // what is made of the trace: whoever predicts with it has to know
    bool operator==(const TraceNote&) const = default;
};

// The rank of a trace.
struct TraceHead {
    std::string file;
    std::string profile = "a PyTorch profiler trace";  // what it is
    std::optional<std::int64_t> rank;
    std::optional<std::int64_t> world_size;
    std::string backend;  // "nccl"
    std::string nccl_version;
    std::string device;            // the first one's name
    std::int64_t events_read = 0;  // all of them
    bool has_device = false;       // whether anything ran on one
    std::string unread_device;     // "mtia": an accelerator whose events are not read; empty: none
    std::vector<TraceNote> notes = {};
    bool operator==(const TraceHead&) const = default;
};

struct OperationName {
    std::int64_t external_id = -1;
    std::int32_t name = 0;   // index into ProfilerTrace::names
    std::int32_t order = 0;  // in the file
};

// A time of a thread of the host.
struct HostSpan {
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
    std::int32_t thread = 0;
    bool operator==(const HostSpan&) const = default;
};

// A deque grows without copying: with a vector, half of a large trace would be in memory twice.
struct ProfilerTrace : TraceHead {
    // By rising begin, of equal ones the longer first; the first at 0.
    std::deque<TraceEvent> events;
    std::deque<std::string> names;
    std::deque<CollectiveCall> calls;
    std::deque<OperationName> operation_names;  // by rising External id, one of each
    // When backward computes forward again (activation checkpointing), by rising begin. No two of a
    // thread overlap.
    std::vector<HostSpan> recomputed;

    [[nodiscard]] const std::string& name_of(const TraceEvent& event) const {
        return names[static_cast<std::size_t>(event.name)];
    }
    // C++'s name of the type of its first input; empty: not said.
    [[nodiscard]] std::string_view type_of(const TraceEvent& event) const {
        return event.type < 0 ? std::string_view() : names[static_cast<std::size_t>(event.type)];
    }
    // The name for work that an operation of the host launched; null: no such operation.
    [[nodiscard]] const std::string* operation_of(std::int64_t external_id) const {
        const auto found =
            std::ranges::lower_bound(operation_names, external_id, {}, &OperationName::external_id);
        return external_id < 0 || found == operation_names.end() ||
                       found->external_id != external_id
                   ? nullptr
                   : &names[static_cast<std::size_t>(found->name)];
    }
};

// More is no trace of a few steps: some 5 million events, by estimates of what each takes. With the
// steps that are read from it, all is to stay below a gigabyte.
constexpr std::size_t most_trace_bytes = 550'000'000;

}  // namespace bucketwise
