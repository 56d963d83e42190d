// A step without events. Without interference nothing changes its pace, and every moment of a step
// follows from earlier ones in one pass over the program.
//
// clang-format off
//   host    h(i) = max(h(i-1), d(i-queue)) + host(i)   where the host is the device: begins no
//                                                      earlier than the device is idle
//                                                      a host that waits for i: then h(i) = d(i)
//   device  d(i) = max(d(i-1), h(i)) + device(i)     a wait: max(d(i-1), h(i), end of its collective)
//                                                    after side streams: nor earlier than their s
//   side    s(i) = max(s(i-1), h(i)) + device(i)     of its stream; after others: nor earlier than
//                                                    their d or s
//   stream  end(b) = max(last arrival(b), end of the one before on its stream) + time(b); who waits
//                                                    for b waits for end(b) + placing(b)
//                                                    what follows another: nor earlier than its end
//   launch  arrives with the compute stream; ahead of its place: at max(h(i), d(after)) + device(i)
// clang-format on
//
// The engine gives the same to the picosecond; a test compares them.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "sim/base/invariant.h"
#include "sim/engine/engine.h"
#include "sim/engine/rank_clock.h"

namespace bucketwise {
namespace {

// The communication stream: when collectives begin and end.
class Stream {
  public:
    Stream(const std::vector<Collective>& collectives, std::size_t ranks)
        : collectives_(collectives), ranks_(ranks), arrivals_(collectives.size()) {
        ends_.reserve(collectives.size());
    }

    void arrive(std::size_t collective, Duration now) {
        Arrivals& arrivals = arrivals_[collective];
        arrivals.last = std::max(arrivals.last, now);
        if (++arrivals.ranks == ranks_) {
            invariant(collective == ends_.size(), "all ranks issue collectives in one order");
            const Collective& begins = collectives_[collective];
            Duration& free = free_[static_cast<std::size_t>(begins.stream)];
            free = std::max(arrivals.last, free);
            if (begins.follows) {
                free = std::max(free, ends_[static_cast<std::size_t>(*begins.follows)]);
            }
            free += begins.time;
            ends_.push_back(free);
        }
    }
    [[nodiscard]] bool knows_end_of(std::size_t collective) const {
        return collective < ends_.size();
    }
    // When its result is in place.
    [[nodiscard]] Duration end_of(std::size_t collective) const {
        return ends_[collective] + collectives_[collective].placing;
    }

  private:
    struct Arrivals {
        Duration last{0};
        std::size_t ranks = 0;
    };
    const std::vector<Collective>& collectives_;
    std::size_t ranks_;
    std::vector<Arrivals> arrivals_;
    std::vector<Duration> ends_;
    std::array<Duration, communication_streams> free_{};
};

// One rank on its way through its program.
class Rank {
  public:
    Rank(const Program& program, RankProgress start)
        : program_(program),
          begin_(start.device),
          clock_(program.host_is_device, std::move(start)) {
        if (communicates_beside(program)) {
            ends_.resize(program.instructions.size());
        }
    }

    // Runs to the end, or to a wait for a collective that not every rank has reached. False if it
    // was there already.
    bool advance(Stream& stream) {
        const std::size_t before = next_;
        const std::vector<Instruction>& instructions = program_.instructions;
        for (; next_ < instructions.size(); ++next_) {
            const Instruction& instruction = instructions[next_];
            const auto subject = static_cast<std::size_t>(instruction.subject);
            const bool waits = instruction.kind == InstructionKind::wait;
            if (waits && !stream.knows_end_of(subject)) {
                break;
            }
            clock_.issue(instruction);
            if (instruction.order.is_beside()) [[unlikely]] {
                clock_.finish(instruction, clock_.run_beside(instruction).second);
                continue;
            }
            Duration end = instruction.device +
                           (instruction.is_launched_ahead()
                                ? std::max(clock_.host(), end_of(instruction.launched_after))
                                : clock_.begin(instruction, clock_.host()));
            if (waits) {
                end = std::max(end, stream.end_of(subject));
            } else if (instruction.kind == InstructionKind::launch) {
                stream.arrive(subject, end);
            }
            clock_.finish(instruction, end);
            if (!ends_.empty()) {
                ends_[next_] = end;
            }
        }
        return next_ > before;
    }
    [[nodiscard]] bool has_ended() const { return next_ == program_.instructions.size(); }
    [[nodiscard]] RankProgress take_progress() { return clock_.take_progress(); }

  private:
    [[nodiscard]] Duration end_of(std::int32_t instruction) const {
        return instruction == before_all ? begin_ : ends_[static_cast<std::size_t>(instruction)];
    }

    const Program& program_;
    Duration begin_;
    RankClock clock_;
    std::size_t next_ = 0;
    std::vector<Duration> ends_;  // by instruction, in programs with launches ahead
};

}  // namespace

bool disturbs(const Program& program) {
    return std::any_of(program.collectives.begin(), program.collectives.end(),
                       [](const Collective& c) { return c.interference != Interference{}; });
}

void run_undisturbed(std::span<const Program> ranks, std::span<RankProgress> progress) {
    invariant(ranks.size() == progress.size(), "every rank has a start");
    Stream stream(ranks.front().collectives, ranks.size());
    std::vector<Rank> states;
    states.reserve(ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        invariant(ranks[i].collectives.size() == ranks.front().collectives.size(),
                  "all ranks issue the same collectives");
        states.emplace_back(ranks[i], std::move(progress[i]));
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (Rank& rank : states) {
            moved = rank.advance(stream) || moved;
        }
    }
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        invariant(states[i].has_ended(),
                  "every instruction has run; a wait without a launch never ends");
        progress[i] = states[i].take_progress();
    }
}

void run_programs(std::span<const Program> ranks, std::span<RankProgress> progress) {
    invariant(!ranks.empty(), "a simulation has a rank");
    invariant(ranks.size() == progress.size(), "every rank has a start");
    if (!disturbs(ranks.front())) {
        return run_undisturbed(ranks, progress);
    }
    if (ranks.size() == 1 && !communicates_beside(ranks.front())) {
        return run_disturbed(ranks.front(), progress.front());
    }
    const std::vector<RankProgress> ends = simulate(ranks, Record::times_only, progress).progress;
    std::copy(ends.begin(), ends.end(), progress.begin());
}

StepTimes simulate_times(const Program& program, const RankProgress& start) {
    RankProgress progress = start;
    run_programs({&program, 1}, {&progress, 1});
    return progress.times;
}

}  // namespace bucketwise
