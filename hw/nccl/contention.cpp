#include "hw/nccl/contention.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace bucketwise {
namespace {

// How far the host may be ahead of the GPU on each stream.
constexpr std::size_t most_ahead = 32;

// Events that are used again once they have been read.
class EventPool {
  public:
    GpuEvent take() {
        if (free_.empty()) {
            return GpuEvent(Timing::on);
        }
        GpuEvent event = std::move(free_.back());
        free_.pop_back();
        return event;
    }
    void give_back(GpuEvent event) { free_.push_back(std::move(event)); }

  private:
    std::vector<GpuEvent> free_;
};

// An operation of backward, or an all-reduce, between two events.
struct InFlight {
    std::size_t index = 0;
    GpuEvent begin{Timing::on};
    GpuEvent end{Timing::on};
    bool starved = false;
};

class TwoQueues {
  public:
    TwoQueues(const Load& all_reduces, std::int64_t iterations, const Load& backward,
              std::size_t operations)
        : communication_(all_reduces),
          iterations_(static_cast<std::size_t>(iterations)),
          backward_(backward),
          operations_(operations) {
        origin_.record(backward_.stream);
        backward_.stream.wait();
        before_.record(backward_.stream);
    }

    [[nodiscard]] bool is_done() const { return ran_.all_reduces.size() == iterations_; }
    [[nodiscard]] bool has_news() const {
        return all_reduces_.front().end.has_happened() || in_backward_.front().end.has_happened();
    }
    void fill();
    void read_what_has_ended();
    RanTogether result() { return std::move(ran_); }

  private:
    void put_all_reduce();
    void put_operation();
    Interval take_front(std::deque<InFlight>& queue);

    const Load& communication_;
    std::size_t iterations_;
    const Load& backward_;
    std::size_t operations_;
    EventPool pool_;
    GpuEvent origin_{Timing::on};
    GpuEvent before_{Timing::on};  // behind the operation that was put on the stream last
    std::deque<InFlight> all_reduces_;
    std::deque<InFlight> in_backward_;
    std::size_t launched_ = 0;  // all-reduces
    std::size_t next_ = 0;      // operation
    RanTogether ran_;
};

void TwoQueues::fill() {
    while (launched_ < iterations_ && all_reduces_.size() < most_ahead) {
        put_all_reduce();
    }
    while (in_backward_.size() < most_ahead) {
        put_operation();
    }
}

void TwoQueues::put_all_reduce() {
    InFlight all_reduce{.index = launched_, .begin = pool_.take(), .end = pool_.take()};
    all_reduce.begin.record(communication_.stream);
    communication_.put(launched_);
    all_reduce.end.record(communication_.stream);
    all_reduces_.push_back(std::move(all_reduce));
    ++launched_;
}

void TwoQueues::put_operation() {
    InFlight operation{.index = next_, .begin = std::move(before_), .end = pool_.take()};
    backward_.put(next_);
    operation.end.record(backward_.stream);
    // An operation that could begin during its launch waited for the host, not for the GPU.
    operation.starved = operation.begin.has_happened();
    before_ = pool_.take();
    before_.record(backward_.stream);
    in_backward_.push_back(std::move(operation));
    next_ = (next_ + 1) % operations_;
}

void TwoQueues::read_what_has_ended() {
    while (!all_reduces_.empty() && all_reduces_.front().end.has_happened()) {
        ran_.all_reduces.push_back(take_front(all_reduces_));
    }
    while (!in_backward_.empty() && in_backward_.front().end.has_happened()) {
        const std::size_t index = in_backward_.front().index;
        const bool starved = in_backward_.front().starved;
        ran_.operations.push_back({index, take_front(in_backward_), starved});
    }
}

Interval TwoQueues::take_front(std::deque<InFlight>& queue) {
    InFlight& ended = queue.front();
    const Interval interval{between(origin_, ended.begin), between(origin_, ended.end)};
    pool_.give_back(std::move(ended.begin));
    pool_.give_back(std::move(ended.end));
    queue.pop_front();
    return interval;
}

}  // namespace

RanTogether run_together(NcclCommunicator& communicator, const Load& all_reduces,
                         std::int64_t iterations, const Load& backward, std::size_t operations) {
    TwoQueues queues(all_reduces, iterations, backward, operations);
    PatientWait wait(communicator);
    while (!queues.is_done()) {
        queues.fill();
        wait.until([&] { return queues.has_news(); }, "contention");
        queues.read_what_has_ended();
    }
    wait.until([&] { return backward.stream.is_idle() && all_reduces.stream.is_idle(); },
               "contention");
    return queues.result();
}

ContentionTrace contention_of(const RanTogether& ran, const OperationsAlone& alone,
                              Duration stamp_time) {
    ContentionTrace trace;
    trace.products = Disturbance{};
    for (const Interval& all_reduce : ran.all_reduces) {
        trace.times.push_back(all_reduce.length());
    }
    for (const RanOperation& operation : ran.operations) {
        const bool is_within = !ran.all_reduces.empty() &&
                               operation.interval.begin >= ran.all_reduces.front().begin &&
                               operation.interval.end <= ran.all_reduces.back().end;
        if (!is_within || operation.starved) {
            continue;
        }
        const Disturbance disturbance{
            std::max(Duration{1}, operation.interval.length() - stamp_time),
            alone.times[operation.index]};
        trace.compute += disturbance;
        if (alone.are_products[operation.index]) {
            *trace.products += disturbance;
        }
    }
    return trace;
}

}  // namespace bucketwise
