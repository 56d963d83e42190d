// One process of an export on its way to a trace: ranges and calls of its host threads, and the
// work that they gave the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "import/nsys/export_names.h"
#include "import/trace/trace_builder.h"

namespace bucketwise {

// Pushed and popped on one thread, so that they nest.
struct HostRange {
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
    std::int64_t elements = -1;
    std::int32_t name = 0;
    std::int32_t parent = -1;  // index into HostThread::ranges; -1: none
    bool is_operation = false;
    bool launched = false;  // something, itself
};

// A call of NCCL, as its own range says.
struct CollectiveNote {
    std::int64_t begin_ns = 0;
    std::int64_t bytes = -1;
    std::uint64_t communicator = 0;
    std::int32_t name = 0;
};

// A kernel of NCCL, by what launched it.
struct CollectiveLaunch {
    std::int64_t begin_ns = 0;  // of the call that launched it
    std::int64_t end_ns = 0;
    std::int64_t device_ns = 0;  // that it ran
    std::int64_t stream = 0;
    std::int32_t name = 0;  // of the kernel
    // As notes say.
    std::int64_t bytes = -1;
    std::uint64_t communicator = 0;
};

struct HostThread {
    std::string label;
    std::int64_t first_range = 0;            // number of its first range, over all threads
    std::vector<HostRange> ranges = {};      // by rising begin, of equal ones the longer first
    std::vector<CollectiveNote> notes = {};  // the same
    std::vector<CollectiveLaunch> collectives = {};  // the same

    // The innermost range at a time; -1: none.
    [[nodiscard]] std::int32_t innermost(std::int64_t at_ns) const;
    // Sorts, and finds which range is within which. Returns how deep they are nested.
    std::size_t nest();
    // Gives each collective what was noted since the one before.
    void match_notes();
};

struct LaunchCall {
    std::int64_t correlation = 0;
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
    std::int32_t thread = 0;
    std::int32_t range = -1;  // the innermost operation around it
};

// A piece of work of the device, by what launched it; kept where nothing marks steps.
struct DeviceWork {
    std::int64_t begin_ns = 0;  // of the launch
    std::int64_t end_ns = 0;
    std::int32_t thread = 0;
    std::int32_t name = 0;
    bool is_all_reduce = false;
};

struct StepSpan {
    std::string name;
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
    std::int32_t thread = 0;
};

// A range that may mark a step.
struct LoopRange {
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
    std::int32_t name = 0;
    std::int32_t thread = 0;
    bool is_optimizer = false;
};

struct ExportProcess {
    ExportProcess(std::int64_t process_id, const std::string& name, KeptBytes& kept_bytes)
        : id(process_id), file(name), kept(kept_bytes), builder(name, kept_bytes) {}

    std::int64_t id;
    std::string file;
    KeptBytes& kept;
    TraceBuilder builder;
    std::vector<HostThread> threads = {};
    std::unordered_map<std::int64_t, std::int32_t> thread_numbers = {};
    std::vector<LoopRange> loop_ranges = {};
    // When gradients became ready, and when NCCL was called to reduce, by ranges.
    std::vector<std::int64_t> ready_ns = {};
    std::vector<std::int64_t> reduced_ns = {};
    std::vector<StepSpan> steps = {};
    std::int64_t window_begin_ns = 0;
    std::int64_t window_end_ns = 0;
    bool all_steps = true;                  // otherwise only what lies in the window is kept
    std::vector<LaunchCall> launches = {};  // by rising correlation, once all are there
    std::vector<DeviceWork> work = {};
    std::map<std::int64_t, std::int64_t> device_ns = {};  // that kernels ran, by device
    std::int64_t gradients = 0;                           // that became ready, by ranges
    std::map<std::uint64_t, std::int64_t> ranks_of = {};  // by communicator
    std::int64_t rows = 0;
    bool reduces = false;  // kernels of NCCL ran

    std::int32_t thread_number(std::int64_t global_id);
    [[nodiscard]] bool in_window(std::int64_t ns) const {
        return all_steps || (ns >= window_begin_ns && ns < window_end_ns);
    }
    // An event of a thread of the host.
    [[nodiscard]] RawEvent host_event(std::string_view name, std::int32_t thread,
                                      std::int64_t begin_ns, std::int64_t end_ns) const {
        return {.name = name,
                .process = "host",
                .thread = threads[static_cast<std::size_t>(thread)].label,
                .event = {.begin_ns = begin_ns, .end_ns = end_ns}};
    }
    void add(TraceEventKind kind, RawEvent event) { builder.add(kind, event, rows); }
    // The device whose kernels ran longest. Throws InputError if another is as busy as in a process
    // that drives several.
    [[nodiscard]] std::int64_t device() const;
    // The call that launched what has this correlation; null: none that is kept.
    [[nodiscard]] const LaunchCall* launch_of(std::int64_t correlation) const;
};

}  // namespace bucketwise
