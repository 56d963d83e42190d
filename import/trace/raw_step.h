// One step of a trace on its way to a TracedStep: its events as marks in time, not yet parted
// into forward, backward and optimizer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "import/trace/steps.h"
#include "import/trace/trace_index.h"

namespace bucketwise {

// A call that waits for the device this long has found it working.
constexpr std::int64_t noticeable_wait_ns = 10'000;
// A host that does nothing for so long does not run from one operation to the next.
constexpr std::int64_t least_idle_ns = 1'000'000;

struct StepRange {
    std::string name;
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
    std::int64_t length_ns = 0;
};

// On the host. With accumulation, the last backward and the forward before it.
struct StepPhases {
    std::int64_t micro_step_before_ns = -1;  // where it begins; -1: there is none
    std::int64_t forward_begin_ns = 0;
    std::int64_t backward_begin_ns = -1;  // -1: no gradient became ready
    std::int64_t backward_end_ns = -1;
    std::int64_t optimizer_begin_ns = 0;
    std::int64_t micro_steps = 1;

    [[nodiscard]] bool in_backward(std::int64_t ns) const {
        return ns >= backward_begin_ns && ns <= backward_end_ns;
    }
};

struct TimedMark {
    std::int64_t at_ns = 0;
    std::int64_t begin_ns = 0;
    StepMark mark;
    bool copies_memory = false;  // device to device, by a copy engine's call
};

struct HostWait {
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
};

// The compute stream waits before a mark, or copies of FSDP2 run beside it.
struct Gap {
    std::size_t mark = 0;
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;

    [[nodiscard]] std::int64_t overlap_ns(std::int64_t from_ns, std::int64_t to_ns) const {
        return std::max<std::int64_t>(std::min(to_ns, end_ns) - std::max(from_ns, begin_ns), 0);
    }
};

struct RawStep {
    StepRange range;
    StepPhases phases = {};
    TracedStep step = {};               // without passes and length
    std::vector<TimedMark> marks = {};  // by time
    std::vector<HostWait> waits = {};   // for the device, in calls that wait for it
    std::vector<HostWait> full = {};    // for room in its launch queue, in launches
    std::vector<Gap> gaps = {};
    std::vector<Gap> shard_copies = {};
    std::vector<HostSpan> recomputed = {};  // of ProfilerTrace::recomputed, those in the step
    // When the device is free of what came before, and of this step's work; -1: not told.
    std::int64_t busy_until_ns = -1;
    std::int64_t last_device_end_ns = -1;

    // The collective that a mark stands for; null: none.
    [[nodiscard]] const TracedCollective* collective_of(const TimedMark& timed) const {
        return step.collective_of(timed.mark);
    }
    // Whether a mark is a gradient of the last backward.
    [[nodiscard]] bool is_ready(const TimedMark& timed) const {
        return timed.mark.kind == MarkKind::ready && phases.in_backward(timed.begin_ns);
    }
    // Extends a collective's time by that of its work.
    void set_span(const ProfilerTrace& trace, const TraceEvent& work,
                  TracedCollective& collective) const;
};

// More are no step: it would fill memory as the document of a scenario.
constexpr std::size_t most_step_marks = 250'000;
// A bound over all steps: they take some 400 MB, beside their trace.
constexpr std::size_t most_marks = 2'000'000;
constexpr std::size_t most_traced_steps = 100'000;

// ProfilerStep#N; without them, from one optimizer step to the next. Throws InputError for too
// many.
std::vector<StepRange> step_ranges(const ProfilerTrace& trace);

// Describes a trace of so many ranges without a training step.
std::string what_is_there(const ProfilerTrace& trace, std::size_t ranges);

// Where forward, backward and the optimizer begin and end on the host.
StepPhases read_phases(const TraceIndex& index, const StepRange& range);

// Takes size and group from a call that says them.
void take_call(const CollectiveCall& call, TracedCollective& collective);

// Gives collectives their times where the host computes: each those of the first annotation of its
// kind that no other has.
void match_annotations(const ProfilerTrace& trace, std::vector<const TraceEvent*> annotations,
                       RawStep& raw);

// Tells the gaps that are simulated from stalls: broadcasts of buffers are waited for, and
// all-reduces once all gradients are ready.
void find_stalls(const TraceIndex& index, RawStep& raw);

// Finds the copies of broadcast buffers, the gradients of no bucket, and the all-reduces of layers.
void tell_collectives_apart(RawStep& raw);

// Where FSDP2 shards nothing: its hooks are operations, its all-reduces whole gradients'.
void forget_shards(bool has_device, std::vector<TimedMark>& marks, RawStep& raw);

// One pass over the step's events, by rising begin. The compute stream is done with the step before
// at `free_ns`; -1: not told.
RawStep read_raw_step(const TraceIndex& index, const StepRange& range, std::int64_t free_ns);

// Steps are ProfilerStep#N; without them, the time between two optimizer steps. Steps without
// ready gradients are left out. Throws InputError, which says what was found instead, where
// no step is left.
std::vector<TracedStep> traced_steps(const ProfilerTrace& trace);

}  // namespace bucketwise
