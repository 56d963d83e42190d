#include <algorithm>

#include "import/kineto/raw_step.h"

namespace bucketwise {
namespace {

// A call that waits for the device this long has found it working.
constexpr std::int64_t noticeable_wait_ns = 10'000;

Duration time_between(std::int64_t from_time_ns, std::int64_t to_time_ns) {
    return from_ns(std::max<std::int64_t>(to_time_ns - from_time_ns, 0));
}

// What the host spent waiting for the device between two times.
std::int64_t waited_ns(const RawStep& raw, std::int64_t from, std::int64_t to) {
    std::int64_t sum = 0;
    for (const auto& [begin, end] : raw.waits) {
        sum += std::max<std::int64_t>(std::min(end, to) - std::max(begin, from), 0);
    }
    return sum;
}

// A broadcast of buffers is waited for.
std::int64_t blocking_end_ns(const RawStep& raw, const TimedMark& timed) {
    const TracedCollective* const collective = raw.collective_of(timed);
    return collective != nullptr && !collective->in_backward && collective->end
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

// Where computing is the host's own, what lies between two marks is one operation. After the last
// gradient the host waits for communication, but for what it copies.
class HostPasses {
  public:
    explicit HostPasses(RawStep& raw)
        : raw_(raw), last_ready_ns_(last_ready_ns(raw)), now_(raw.phases.forward_begin_ns) {}

    void fill() {
        const StepPhases& phases = raw_.phases;
        for (TimedMark& timed : raw_.marks) {
            if (timed.at_ns <= phases.forward_begin_ns || timed.begin_ns > phases.backward_end_ns) {
                continue;
            }
            if (in_forward_ && timed.begin_ns >= phases.backward_begin_ns) {
                end_forward();
            }
            add(timed);
        }
        if (in_forward_) {
            end_forward();
        }
        TracedStep& step = raw_.step;
        step.waited += time_between(now_, phases.backward_end_ns);
        step.device_busy = Duration{0};
        step.optimizer_device =
            time_between(phases.backward_end_ns, raw_.range.begin_ns + raw_.range.length_ns);
    }

  private:
    [[nodiscard]] std::vector<StepMark>& pass() {
        return in_forward_ ? raw_.step.forward : raw_.step.backward;
    }

    void add_operation(const char* name, Duration time) {
        StepMark mark{MarkKind::operation, name};
        mark.device_begin = from_ns(now_ - raw_.range.begin_ns);
        mark.device = time;
        pass().push_back(std::move(mark));
    }

    void end_forward() {
        add_operation("forward", from_ns(raw_.phases.backward_begin_ns - now_));
        now_ = raw_.phases.backward_begin_ns;
        in_forward_ = false;
    }

    void add(TimedMark& timed) {
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
        now_ = std::max(now_, blocking_end_ns(raw_, timed));
        raw_.step.waited += from_ns(now_ - timed.at_ns);
        pass().push_back(std::move(timed.mark));
    }

    RawStep& raw_;
    std::int64_t last_ready_ns_;
    std::int64_t now_;
    bool in_forward_ = true;
};

}  // namespace

void fill_device_passes(RawStep& raw) {
    const StepPhases& phases = raw.phases;
    TracedStep& step = raw.step;
    std::int64_t now = phases.forward_begin_ns;
    const auto host_until = [&](std::int64_t at) {
        at = std::max(at, now);
        const std::int64_t host = at - now - waited_ns(raw, now, at);
        now = at;
        return from_ns(std::max<std::int64_t>(host, 0));
    };
    for (TimedMark& timed : raw.marks) {
        if (timed.at_ns <= phases.forward_begin_ns) {
            continue;
        }
        if (timed.begin_ns > phases.backward_end_ns) {
            if (timed.mark.kind != MarkKind::collective) {
                step.optimizer_device += timed.mark.device;
            }
            continue;
        }
        timed.mark.host = host_until(timed.at_ns);
        (timed.begin_ns >= phases.backward_begin_ns ? step.backward : step.forward)
            .push_back(std::move(timed.mark));
    }
    step.optimizer_host = host_until(raw.range.begin_ns + raw.range.length_ns);
    for (const auto& [begin, end] : raw.waits) {
        step.waited += from_ns(end - begin);
        step.waits += end - begin >= noticeable_wait_ns ? 1 : 0;
    }
}

void fill_host_passes(RawStep& raw) {
    HostPasses(raw).fill();
}

}  // namespace bucketwise
