// One rank with interference, without a queue of events. The rank and the communication stream each
// do one thing at a time, so at most two moments are ahead: when the rank continues, and when the
// stream does. A sweep of a large model takes 1.6 times as long with the engine's queue.
//
// The engine gives the same to the picosecond; a test compares them. Two rules are needed: the
// earlier set of two equal moments comes first (goes_on_before), and paces settle before time
// passes, not between two operations without a gap (settle).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/base/invariant.h"
#include "sim/engine/engine.h"
#include "sim/engine/rank_clock.h"

namespace bucketwise {
namespace {

class DisturbedRank {
  public:
    DisturbedRank(const Program& program, RankProgress start)
        : program_(program), now_(start.device), rank_(program.host_is_device, std::move(start)) {}

    RankProgress run() {
        for (const Instruction& instruction : program_.instructions) {
            rank_.issue(instruction);
            if (instruction.order.is_beside()) [[unlikely]] {  // disturbs nothing
                rank_.finish(instruction, rank_.run_beside(instruction).second);
                continue;
            }
            idle_until(rank_.begin(instruction, rank_.host()));
            const auto subject = static_cast<std::size_t>(instruction.subject);
            if (instruction.kind == InstructionKind::launch) {
                invariant(subject == launched_, "collectives are issued in their order");
                ++launched_;
                start_next_collective();
            } else if (instruction.kind == InstructionKind::wait) {
                wait_for(subject);
            } else {
                compute(instruction.device);
            }
            rank_.finish(instruction, now_);
        }
        return rank_.take_progress();
    }

  private:
    enum class Stream : std::uint8_t {
        free,
        held,     // continues unless something computes at this moment
        delayed,  // something computes
        in_flight
    };

    // --- the rank ---

    void idle_until(Duration time) {
        if (time <= now_) {
            return;
        }
        settle();
        set_after_rank_ = false;
        while (goes_on_before(time)) {
            go_on();
            settle();
        }
        now_ = time;
    }

    void wait_for(std::size_t collective) {
        while (ended_ <= collective) {
            settle();
            invariant(stream_ == Stream::in_flight,
                      "every instruction has run; a wait without a launch never ends");
            go_on();
        }
        idle_until(in_place_[collective]);
    }

    void compute(Duration work) {
        computing_ = true;
        settle();
        set_after_rank_ = false;
        Duration since = now_;
        std::int64_t slowdown_ppm = compute_slowdown_ppm();
        Duration end = since + stretched(work, slowdown_ppm);
        while (goes_on_before(end)) {
            go_on();
            settle();
            if (slowdown_ppm != compute_slowdown_ppm()) {
                work = work_left(work, since, slowdown_ppm);
                since = now_;
                slowdown_ppm = compute_slowdown_ppm();
                end = now_ + stretched(work, slowdown_ppm);
                set_after_rank_ = false;
            }
        }
        now_ = end;
        computing_ = false;
    }

    // The slowdown of computing by the collective in flight.
    [[nodiscard]] std::int64_t compute_slowdown_ppm() const {
        return stream_ == Stream::in_flight ? next_collective().interference.compute_slowdown_ppm
                                            : undisturbed_ppm;
    }

    // --- the communication stream ---

    // Whether the stream continues before the rank, which does at `time`.
    [[nodiscard]] bool goes_on_before(Duration time) const {
        return (stream_ == Stream::delayed || stream_ == Stream::in_flight) &&
               (set_after_rank_ ? next_time_ < time : next_time_ <= time);
    }

    void go_on() {
        now_ = next_time_;
        if (stream_ == Stream::delayed) {
            begin_collective();
        } else {
            stream_ = Stream::free;
            in_place_.push_back(now_ + next_collective().placing);
            ++ended_;
            start_next_collective();
        }
    }

    void start_next_collective() {
        if (stream_ != Stream::free || ended_ == launched_) {
            return;
        }
        if (next_collective().interference.start_delay > Duration{0}) {
            stream_ = Stream::held;
        } else {
            begin_collective();
        }
    }

    void begin_collective() {
        stream_ = Stream::in_flight;
        remaining_ = next_collective().time;
        run_collective(communication_slowdown_ppm());
    }

    // Runs the rest of the collective at this pace.
    void run_collective(std::int64_t slowdown_ppm) {
        since_ = now_;
        slowdown_ppm_ = slowdown_ppm;
        set_next(now_ + stretched(remaining_, slowdown_ppm));
    }

    void set_next(Duration time) {
        next_time_ = time;
        set_after_rank_ = true;
    }

    // Called before time passes.
    void settle() {
        if ((stream_ == Stream::held || stream_ == Stream::delayed) && !computing_) {
            begin_collective();
        } else if (stream_ == Stream::held) {
            stream_ = Stream::delayed;
            set_next(now_ + next_collective().interference.start_delay);
        } else if (stream_ == Stream::in_flight && slowdown_ppm_ != communication_slowdown_ppm()) {
            remaining_ = work_left(remaining_, since_, slowdown_ppm_);
            run_collective(communication_slowdown_ppm());
        }
    }

    // The slowdown of the collective in flight by computing.
    [[nodiscard]] std::int64_t communication_slowdown_ppm() const {
        return computing_ ? next_collective().interference.communication_slowdown_ppm
                          : undisturbed_ppm;
    }

    // The collective in flight, or the next one.
    [[nodiscard]] const Collective& next_collective() const { return program_.collectives[ended_]; }

    [[nodiscard]] Duration work_left(Duration work, Duration since,
                                     std::int64_t slowdown_ppm) const {
        return std::max(work - work_done(now_ - since, slowdown_ppm), Duration{0});
    }

    const Program& program_;
    Duration now_;
    RankClock rank_;
    bool computing_ = false;
    std::size_t launched_ = 0;
    std::size_t ended_ = 0;
    std::vector<Duration> in_place_;  // by ended collective: when its result is in place
    Stream stream_ = Stream::free;
    Duration next_time_{0};  // of the stream, if delayed or in flight
    // Whether it was set after the rank's moment, and so comes second if both are equal.
    bool set_after_rank_ = false;
    // The collective in flight: its work left at `since_`, and its pace from there.
    Duration remaining_{0};
    Duration since_{0};
    std::int64_t slowdown_ppm_ = undisturbed_ppm;
};

}  // namespace

void run_disturbed(const Program& program, RankProgress& progress) {
    invariant(!communicates_beside(program), "one stream carries every collective in its place");
    progress = DisturbedRank(program, std::move(progress)).run();
}

}  // namespace bucketwise
