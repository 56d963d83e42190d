#include "import/trace/raw_step.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "sim/base/error.h"

namespace bucketwise {
namespace {

// --- passes ---

Duration time_between(std::int64_t from_time_ns, std::int64_t to_time_ns) {
    return from_ns(std::max<std::int64_t>(to_time_ns - from_time_ns, 0));
}

// When the host waited for the device, for whatever reason, each moment once.
class Waiting {
  public:
    explicit Waiting(const RawStep& raw) : waits_(raw.waits) {
        waits_.insert(waits_.end(), raw.full.begin(), raw.full.end());
        std::ranges::sort(waits_, {}, &HostWait::begin_ns);
        std::int64_t sum = 0;
        std::int64_t end_ns = std::numeric_limits<std::int64_t>::min();
        for (HostWait& wait : waits_) {
            wait.begin_ns = std::max(wait.begin_ns, end_ns);
            wait.end_ns = std::max(wait.end_ns, wait.begin_ns);
            end_ns = wait.end_ns;
            before_.push_back(sum);
            sum += wait.end_ns - wait.begin_ns;
        }
    }

    // How long between two times.
    [[nodiscard]] std::int64_t between(std::int64_t from, std::int64_t to) const {
        return to > from ? until(to) - until(from) : 0;
    }

  private:
    [[nodiscard]] std::int64_t until(std::int64_t time) const {
        const auto after = std::ranges::upper_bound(waits_, time, {}, &HostWait::begin_ns);
        if (after == waits_.begin()) {
            return 0;
        }
        const auto last = static_cast<std::size_t>(after - waits_.begin()) - 1;
        return before_[last] + std::min(time, waits_[last].end_ns) - waits_[last].begin_ns;
    }

    std::vector<HostWait> waits_;
    std::vector<std::int64_t> before_;  // what the host had waited when each began
};

// The part of a time without any work of the host that the trace shows. Counts it in its gaps.
Duration idle_between(RawStep& raw, std::int64_t from_time_ns, std::int64_t to_time_ns) {
    const Duration from = from_ns(from_time_ns - raw.range.begin_ns);
    const Duration to = from_ns(to_time_ns - raw.range.begin_ns);
    Duration idle{0};
    const auto end = [](const HostGap& one) { return one.at + one.length; };
    for (auto gap = std::ranges::upper_bound(raw.step.gaps, from, {}, end);
         gap != raw.step.gaps.end() && gap->at < to; ++gap) {
        const Duration part = std::min(to, end(*gap)) - std::max(from, gap->at);
        gap->counted += part;
        idle += part;
    }
    return idle;
}

// How much of a time of the host backward computes forward again, as a share.
double recomputed_share(const RawStep& raw, std::int64_t from_ns, std::int64_t to_ns) {
    std::int64_t again_ns = 0;
    auto span = std::ranges::upper_bound(raw.recomputed, from_ns, {}, &HostSpan::end_ns);
    for (; span != raw.recomputed.end() && span->begin_ns < to_ns; ++span) {
        again_ns += std::min(to_ns, span->end_ns) - std::max(from_ns, span->begin_ns);
    }
    return again_ns <= 0 ? 0.0
                         : static_cast<double>(again_ns) / static_cast<double>(to_ns - from_ns);
}

// A broadcast of buffers is waited for.
std::int64_t blocking_end_ns(const RawStep& raw, const TimedMark& timed) {
    const TracedCollective* const collective = raw.collective_of(timed);
    return collective != nullptr && collective->sends_buffers() && collective->end
               ? std::max(timed.at_ns, raw.range.begin_ns + collective->end->count() / 1000)
               : timed.at_ns;
}

std::int64_t last_ready_ns(const RawStep& raw) {
    const auto last =
        std::find_if(raw.marks.rbegin(), raw.marks.rend(), [&](const TimedMark& timed) {
            return timed.mark.kind == MarkKind::ready && raw.phases.in_backward(timed.begin_ns);
        });
    return last == raw.marks.rend() ? raw.phases.backward_begin_ns : last->at_ns;
}

// Passes where the host computes. The time between two marks is one operation. After the last
// gradient the host waits for communication, except while it copies. Collectives that are neither
// gradients' nor buffers' are operations like others: nothing else stands for them.
//
// Where parameters are sharded, each collective blocks the host, except asynchronous all-gathers:
// it waits for these before it copies out of them.
class HostPasses {
  public:
    explicit HostPasses(RawStep& raw)
        : raw_(raw), last_ready_ns_(last_ready_ns(raw)), now_(raw.phases.forward_begin_ns) {}

    void fill() {
        const StepPhases& phases = raw_.phases;
        const bool sharded = raw_.step.is_fully_sharded();
        for (TimedMark& timed : raw_.marks) {
            if (timed.at_ns <= phases.forward_begin_ns || timed.begin_ns > phases.backward_end_ns) {
                continue;
            }
            if (in_forward_ && timed.begin_ns >= phases.backward_begin_ns) {
                end_forward(sharded);
            }
            if (sharded) {
                add_sharded(timed);
            } else {
                add(timed);
            }
        }
        if (sharded) {
            compute_until(phases.backward_end_ns, no_module);
        } else {
            if (in_forward_) {
                end_forward(false);
            }
            raw_.step.waited += time_between(now_, phases.backward_end_ns);
        }
        raw_.step.device_busy = Duration{0};
        const std::int64_t end_ns = raw_.range.begin_ns + raw_.range.length_ns;
        raw_.step.optimizer_device = time_between(phases.backward_end_ns, end_ns);
        raw_.step.optimizer_idle = idle_between(raw_, phases.backward_end_ns, end_ns);
    }

  private:
    [[nodiscard]] std::vector<StepMark>& pass() {
        return in_forward_ ? raw_.step.forward : raw_.step.backward;
    }

    void end_forward(bool sharded) {
        const std::int64_t end_ns = raw_.phases.backward_begin_ns;
        if (sharded) {
            compute_until(end_ns, no_module);
        } else {
            add_operation("forward", from_ns(end_ns - now_));
            now_ = end_ns;
        }
        in_forward_ = false;
    }

    void add_operation(const char* name, Duration time) {
        StepMark mark{MarkKind::operation, name};
        mark.device_begin = from_ns(now_ - raw_.range.begin_ns);
        mark.device = time;
        mark.idle = idle_between(raw_, now_, now_ + time.count() / 1000);
        mark.recomputed = recomputed_share(raw_, now_, now_ + time.count() / 1000);
        pass().push_back(std::move(mark));
    }

    void add(TimedMark& timed) {
        if (const TracedCollective* const collective = raw_.collective_of(timed);
            collective != nullptr && timed.begin_ns <= last_ready_ns_ &&
            !collective->reduces_gradients() && !collective->sends_buffers()) {
            add_operation(collective->name.c_str(), time_between(now_, timed.at_ns));
            now_ = std::max(now_, timed.at_ns);
            return;
        }
        const bool copies =
            timed.mark.kind == MarkKind::copy_in || timed.mark.kind == MarkKind::copy_back;
        const bool alone =
            timed.begin_ns > last_ready_ns_ || copies || timed.mark.kind == MarkKind::collective;
        if (alone && timed.begin_ns <= last_ready_ns_) {
            add_operation(in_forward_ ? "forward" : "hooks", time_between(now_, timed.begin_ns));
        } else if (alone) {
            raw_.step.waited += time_between(now_, timed.begin_ns);
        }
        const std::int64_t begin_ns = alone ? timed.begin_ns : now_;
        timed.mark.device_begin = from_ns(begin_ns - raw_.range.begin_ns);
        timed.mark.device = time_between(begin_ns, timed.at_ns);
        timed.mark.idle = idle_between(raw_, begin_ns, timed.at_ns);
        timed.mark.recomputed = recomputed_share(raw_, begin_ns, timed.at_ns);
        now_ = std::max(now_, blocking_end_ns(raw_, timed));
        raw_.step.waited += from_ns(now_ - timed.at_ns);
        pass().push_back(std::move(timed.mark));
    }

    // --- sharded ---

    void place(StepMark mark, std::int64_t end_ns) {
        mark.device_begin = from_ns(now_ - raw_.range.begin_ns);
        mark.device = time_between(now_, end_ns);
        mark.idle = idle_between(raw_, now_, end_ns);
        mark.recomputed = recomputed_share(raw_, now_, end_ns);
        now_ = std::max(now_, end_ns);
        pass().push_back(std::move(mark));
    }

    void compute_until(std::int64_t ns, std::int32_t module) {
        StepMark mark{MarkKind::operation, in_forward_ ? "forward" : "backward"};
        mark.module = module;
        place(std::move(mark), ns);
    }

    void add_sharded(TimedMark& timed) {
        if (timed.mark.kind == MarkKind::ready) {
            place(std::move(timed.mark), timed.at_ns);
            return;
        }
        compute_until(timed.begin_ns, timed.mark.module);
        const TracedCollective* const collective = raw_.collective_of(timed);
        if (collective != nullptr) {
            wait_for(*collective, timed);
        } else if (timed.mark.kind == MarkKind::copy_shards) {
            const std::int64_t gathered_ns = std::min(gathered_until_ns_, timed.at_ns);
            timed.mark.stall = time_between(now_, gathered_ns);
            wait_until(gathered_ns);
            place(std::move(timed.mark), timed.at_ns);
        }
    }

    void wait_for(const TracedCollective& collective, TimedMark& timed) {
        const std::int64_t end_ns =
            collective.end ? raw_.range.begin_ns + collective.end->count() / 1000 : timed.at_ns;
        const bool blocks = !collective.gathers() || !raw_.step.shards.asynchronous;
        if (blocks) {
            timed.mark.stall = time_between(now_, std::max(end_ns, timed.at_ns));
        } else {
            gathered_until_ns_ = end_ns;
        }
        place(std::move(timed.mark), now_);
        if (blocks) {
            wait_until(std::max(end_ns, timed.at_ns));
        }
    }

    void wait_until(std::int64_t ns) {
        raw_.step.waited += time_between(now_, ns);
        now_ = std::max(now_, ns);
    }

    RawStep& raw_;
    std::int64_t last_ready_ns_;
    std::int64_t now_;
    std::int64_t gathered_until_ns_ = -1;
    bool in_forward_ = true;
};

// Keeps the computing of a micro-step, unless it communicates.
void keep_micro_step_before(RawStep& raw) {
    std::vector<PlainOperation>& before = raw.step.before;
    for (const TimedMark& timed : raw.marks) {
        if (timed.at_ns > raw.phases.forward_begin_ns) {
            return;
        }
        if (raw.phases.micro_step_before_ns < 0 || timed.at_ns <= raw.phases.micro_step_before_ns) {
            continue;
        }
        if (timed.mark.kind == MarkKind::collective) {
            before.clear();
            return;
        }
        if (timed.mark.kind == MarkKind::operation && timed.mark.device > Duration{0}) {
            before.push_back({timed.mark.name, timed.mark.device});
        }
    }
}

// Where kernels ran on a device.
void fill_device_passes(RawStep& raw) {
    const StepPhases& phases = raw.phases;
    TracedStep& step = raw.step;
    std::int64_t now = phases.forward_begin_ns;
    const Waiting waiting(raw);
    Duration idle{0};  // of the host time that was asked for last
    const auto host_until = [&](std::int64_t at) {
        at = std::max(at, now);
        idle = idle_between(raw, now, at);
        const std::int64_t host = at - now - waiting.between(now, at);
        now = at;
        return from_ns(std::max<std::int64_t>(host, 0));
    };
    keep_micro_step_before(raw);
    for (TimedMark& timed : raw.marks) {
        if (timed.at_ns <= phases.forward_begin_ns) {
            continue;
        }
        const bool in_optimizer = timed.begin_ns > phases.backward_end_ns;
        timed.mark.host = host_until(timed.at_ns);
        timed.mark.idle = std::min(idle, timed.mark.host);
        // A launch is of forward's operations, or it is not.
        timed.mark.recomputed =
            std::round(recomputed_share(raw, timed.begin_ns, timed.begin_ns + 1));
        if (timed.mark.host_waits) {
            timed.mark.until_wait = host_until(timed.at_ns + timed.mark.until_wait.count() / 1000);
        }
        if (in_optimizer) {
            step.optimizer_host += timed.mark.host + timed.mark.until_wait;
            step.optimizer_idle += timed.mark.idle;
            step.optimizer_device += timed.mark.kind != MarkKind::collective
                                         ? timed.mark.device + timed.mark.stall
                                         : Duration{0};
        }
        (in_optimizer                                 ? step.optimizer
         : timed.begin_ns >= phases.backward_begin_ns ? step.backward
                                                      : step.forward)
            .push_back(std::move(timed.mark));
    }
    step.optimizer_host += host_until(raw.range.begin_ns + raw.range.length_ns);
    step.optimizer_idle += idle;
    for (const HostWait& wait : raw.waits) {
        step.waited += from_ns(wait.end_ns - wait.begin_ns);
        step.waits += wait.end_ns - wait.begin_ns >= noticeable_wait_ns ? 1 : 0;
    }
    for (const HostWait& wait : raw.full) {
        step.waited_for_queue += from_ns(wait.end_ns - wait.begin_ns);
    }
}

// --- steps ---

// Moves the step's begin to where the device has done its work before.
void begin_later(Duration later, TracedStep& step) {
    step.backward_begin -= later;
    step.backward_end -= later;
    for (std::vector<StepMark>* pass : {&step.forward, &step.backward, &step.optimizer}) {
        for (StepMark& mark : *pass) {
            mark.at -= later;
            mark.device_begin -= later;
        }
    }
    for (HostGap& gap : step.gaps) {
        gap.at -= later;
    }
    for (TracedCollective& collective : step.collectives) {
        collective.issued -= later;
        if (collective.begin) {
            *collective.begin -= later;
            *collective.end -= later;
        }
    }
}

// The number of marks that take as much memory, at 200 bytes each.
std::size_t marks_worth(const TracedStep& step) {
    constexpr std::size_t mark_bytes = 200;
    std::size_t bytes = sizeof(TracedStep) + sizeof(TracedCollective) * step.collectives.size();
    for (const TracedCollective& collective : step.collectives) {
        bytes += collective.name.size() + collective.dtype.size() + collective.group.size();
    }
    return step.before.size() + step.forward.size() + step.backward.size() + step.optimizer.size() +
           bytes / mark_bytes;
}

}  // namespace

std::vector<TracedStep> traced_steps(const ProfilerTrace& trace) {
    std::size_t marks = 0;
    const TraceIndex index(trace);
    const std::vector<StepRange> ranges = step_ranges(trace);
    std::vector<TracedStep> steps;
    std::int64_t last_end_ns = -1;  // of the device with the step before
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        RawStep raw = read_raw_step(index, ranges[i], last_end_ns);
        const bool follows =
            i > 0 && ranges[i - 1].begin_ns + ranges[i - 1].length_ns == ranges[i].begin_ns;
        const std::int64_t begin_ns =
            std::max(ranges[i].begin_ns, follows ? last_end_ns : raw.busy_until_ns);
        last_end_ns = std::max(last_end_ns, raw.last_device_end_ns);
        // Until the next one, which begins when the host has come so far and the device is free.
        const std::int64_t end_ns =
            std::max(ranges[i].begin_ns + ranges[i].length_ns, raw.last_device_end_ns);
        if (raw.phases.backward_begin_ns >= 0) {
            if (trace.has_device) {
                fill_device_passes(raw);
            } else {
                HostPasses(raw).fill();
            }
        }
        TracedStep& step = raw.step;
        std::erase_if(step.gaps,
                      [](const HostGap& gap) { return gap.counted < from_ns(least_idle_ns); });
        if (!step.backward.empty()) {
            begin_later(from_ns(begin_ns - ranges[i].begin_ns), step);
            step.length = from_ns(std::max<std::int64_t>(end_ns - begin_ns, 1));
            marks += marks_worth(step);
            if (marks > most_marks) {
                throw InputError(trace.file, "/traceEvents",
                                 fmt::format("at most {} operations of training steps (profile "
                                             "fewer steps: schedule(wait=1, warmup=1, active=3))",
                                             most_marks),
                                 "more");
            }
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
