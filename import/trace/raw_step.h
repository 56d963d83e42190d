// One step of a trace on its way to a TracedStep: its events as marks in time, before they are told
// apart into forward, backward and optimizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "import/trace/steps.h"
#include "import/trace/trace_index.h"

namespace bucketwise {

// A call that waits for the device this long has found it working.
constexpr std::int64_t noticeable_wait_ns = 10'000;

struct StepRange {
    std::string name;
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
    std::int64_t length_ns = 0;
};

// On the host. Of several backwards (accumulation) the last, and the forward before it.
struct StepPhases {
    std::int64_t micro_step_before_ns = -1;  // where it begins; -1: there is none
    std::int64_t forward_begin_ns = 0;
    std::int64_t backward_begin_ns = -1;  // -1: no gradient became ready
    std::int64_t backward_end_ns = -1;
    std::int64_t optimizer_begin_ns = 0;

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

struct RawStep {
    StepRange range;
    StepPhases phases = {};
    TracedStep step = {};               // but for passes and length
    std::vector<TimedMark> marks = {};  // by time
    std::vector<HostWait> waits = {};   // for the device, in calls that wait for it
    std::vector<HostWait> full = {};    // for room in its launch queue, in launches
    // When the device is free of what came before, and of this step's work; -1: not told.
    std::int64_t busy_until_ns = -1;
    std::int64_t last_device_end_ns = -1;

    // What a mark has to do with; none: nothing.
    [[nodiscard]] const TracedCollective* collective_of(const TimedMark& timed) const {
        return step.collective_of(timed.mark);
    }
};

// More are no step: it would fill memory as the document of a scenario.
constexpr std::size_t most_step_marks = 250'000;
// Of all steps: they take some 400 MB, beside their trace.
constexpr std::size_t most_marks = 2'000'000;
constexpr std::size_t most_traced_steps = 100'000;

// One pass over the step's events, by rising begin. The compute stream is done with the step before
// at `free_ns`; -1: not told.
RawStep read_raw_step(const TraceIndex& index, const StepRange& range, std::int64_t free_ns);

// Steps are ProfilerStep#N; without them, what lies between two optimizer steps. Steps in which no
// gradient became ready are left out. Throws InputError where there are none, saying what was found
// instead.
std::vector<TracedStep> traced_steps(const ProfilerTrace& trace);

}  // namespace bucketwise
