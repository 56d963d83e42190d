#include "import/kineto/raw_step.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/base/error.h"

namespace bucketwise {
namespace {

// Steps that follow one another this closely, as a share of a step, leave nothing between them.
constexpr double contiguous = 0.05;

// Moves the step's begin to where the device has done what came before.
void begin_later(Duration later, TracedStep& step) {
    step.backward_begin -= later;
    step.backward_end -= later;
    for (std::vector<StepMark>* pass : {&step.forward, &step.backward}) {
        for (StepMark& mark : *pass) {
            mark.at -= later;
            mark.device_begin -= later;
        }
    }
    for (TracedCollective& collective : step.collectives) {
        collective.issued -= later;
        if (collective.begin) {
            *collective.begin -= later;
            *collective.end -= later;
        }
    }
}

std::vector<StepRange> ranges_of(const KinetoTrace& trace, TraceEventKind kind) {
    std::vector<StepRange> ranges;
    for (const TraceEvent& event : trace.events) {
        if (event.kind == kind) {
            ranges.push_back({short_name(trace.name_of(event)), event.begin_ns, event.end_ns,
                              event.duration_ns()});
        }
    }
    return ranges;
}

void make_contiguous(std::vector<StepRange>& ranges) {
    for (std::size_t i = 0; i + 1 < ranges.size(); ++i) {
        const std::int64_t period = ranges[i + 1].begin_ns - ranges[i].begin_ns;
        const auto length = static_cast<double>(ranges[i].length_ns);
        if (static_cast<double>(period) <= length * (1 + contiguous)) {
            ranges[i].length_ns = period;
            ranges[i].end_ns = std::min(ranges[i].end_ns, ranges[i + 1].begin_ns);
        }
    }
}

std::vector<StepRange> step_ranges(const KinetoTrace& trace) {
    std::vector<StepRange> ranges = ranges_of(trace, TraceEventKind::step);
    if (ranges.empty()) {
        // From the end of one optimizer step to that of the next.
        const std::vector<StepRange> optimizers = ranges_of(trace, TraceEventKind::optimizer);
        for (std::size_t i = 0; i + 1 < optimizers.size(); ++i) {
            ranges.push_back({fmt::format("step {}", i + 1), optimizers[i].end_ns,
                              optimizers[i + 1].end_ns,
                              optimizers[i + 1].end_ns - optimizers[i].end_ns});
        }
    }
    make_contiguous(ranges);
    return ranges;
}

std::string what_is_there(const KinetoTrace& trace, std::size_t ranges) {
    if (trace.events.empty()) {
        return fmt::format("{} events, none of them of PyTorch's profiler", trace.events_read);
    }
    if (ranges > 0) {
        return fmt::format(
            "{} steps in which no gradient became ready (no AccumulateGrad: "
            "inference, or a profile of the device only)",
            ranges);
    }
    return "no ProfilerStep and fewer than two Optimizer.step; call the profiler's step() after "
           "each training step";
}

}  // namespace

std::vector<TracedStep> traced_steps(const KinetoTrace& trace) {
    const TraceIndex index(trace);
    const std::vector<StepRange> ranges = step_ranges(trace);
    std::vector<TracedStep> steps;
    std::int64_t last_end_ns = -1;  // of the device with the step before
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        RawStep raw = read_raw_step(index, ranges[i]);
        const bool follows =
            i > 0 && ranges[i - 1].begin_ns + ranges[i - 1].length_ns == ranges[i].begin_ns;
        const std::int64_t begin_ns =
            std::max(ranges[i].begin_ns, follows ? last_end_ns : raw.busy_until_ns);
        last_end_ns = std::max(last_end_ns, raw.last_device_end_ns);
        // Until the next one, which begins when the host has come so far and the device is free.
        const std::int64_t end_ns =
            std::max(ranges[i].begin_ns + ranges[i].length_ns, raw.last_device_end_ns);
        if (raw.phases.backward_begin_ns >= 0) {
            trace.has_device ? fill_device_passes(raw) : fill_host_passes(raw);
        }
        TracedStep& step = raw.step;
        if (!step.backward.empty()) {
            begin_later(from_ns(begin_ns - ranges[i].begin_ns), step);
            step.length = from_ns(std::max<std::int64_t>(end_ns - begin_ns, 1));
            steps.push_back(std::move(step));
        }
    }
    if (steps.empty()) {
        throw InputError(trace.file, "/traceEvents", "a training step",
                         what_is_there(trace, ranges.size()));
    }
    return steps;
}

}  // namespace bucketwise
