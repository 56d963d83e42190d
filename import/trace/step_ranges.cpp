#include <algorithm>
#include <initializer_list>
#include <string_view>

#include <fmt/format.h>

#include "import/trace/raw_step.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

// Steps that follow one another this closely, as a share of a step, leave nothing between them.
constexpr double contiguous = 0.05;

std::vector<StepRange> ranges_of(const ProfilerTrace& trace, TraceEventKind kind) {
    std::vector<StepRange> ranges;
    for (const TraceEvent& event : trace.events) {
        if (event.kind == kind) {
            if (ranges.size() == most_traced_steps) {
                throw InputError(trace.file, "/traceEvents",
                                 fmt::format("at most {} training steps", most_traced_steps),
                                 "more");
            }
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

// Says what hides AccumulateGrad; empty: nothing known.
std::string_view what_hides_gradients(const ProfilerTrace& trace) {
    std::string_view found;
    for (const TraceEvent& event : trace.events) {
        if (event.kind == TraceEventKind::launch &&
            trace.name_of(event).find("GraphLaunch") != std::string::npos) {
            return "CUDA graphs hold it (cudaGraphLaunch), within which the host does nothing; "
                   "trace "
                   "the same loop without them";
        }
        if (event.kind == TraceEventKind::compiled) {
            found =
                "torch.compile holds all of it (compiled autograd, or DDP's Python reducer); "
                "trace the same loop with DDPOptimizer, or uncompiled";
        }
    }
    return found;
}

bool has_any(const ProfilerTrace& trace, std::initializer_list<TraceEventKind> kinds) {
    return std::ranges::any_of(trace.events, [&](const TraceEvent& event) {
        return std::ranges::find(kinds, event.kind) != kinds.end();
    });
}

// Steps of data-parallel training that the profiler recorded in part.
bool trains(const ProfilerTrace& trace) {
    using enum TraceEventKind;
    return has_any(trace, {optimizer}) &&
           has_any(trace, {collective_call, collective_op, annotation, collective_kernel});
}

}  // namespace

std::vector<StepRange> step_ranges(const ProfilerTrace& trace) {
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

std::string what_is_there(const ProfilerTrace& trace, std::size_t ranges) {
    if (trace.events.empty()) {
        return fmt::format("{} events, none of them of PyTorch's profiler", trace.events_read);
    }
    if (ranges > 0) {
        if (const std::string_view instead = what_hides_gradients(trace); !instead.empty()) {
            return fmt::format("{} steps in which no gradient became ready: {}", ranges, instead);
        }
        if (trains(trace)) {
            return fmt::format(
                "{} steps in which no gradient became ready: collectives and an optimizer are "
                "there, "
                "but no AccumulateGrad; record the host's operations, too "
                "(profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], "
                "record_shapes=True))",
                ranges);
        }
        return fmt::format(
            "{} steps in which no gradient became ready (no AccumulateGrad: "
            "inference, or a profile of the device only)",
            ranges);
    }
    return "no ProfilerStep and fewer than two Optimizer.step; call the profiler's step() after "
           "each training step";
}

}  // namespace bucketwise
