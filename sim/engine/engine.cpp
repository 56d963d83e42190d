#include "sim/engine/engine.h"

#include <algorithm>
#include <queue>

#include "sim/base/hash.h"
#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

enum class EventKind : std::uint8_t {
    rank_resumes,
    compute_ends,
    collective_begins,
    collective_ends
};

// Whether a collective that could start has to wait for room beside what computes.
enum class Held : std::uint8_t { no, until_settled, for_delay };

struct Event {
    Duration time;
    std::uint64_t sequence;
    std::uint32_t generation;  // stale when the activity has been rescheduled since
    std::int32_t rank;
    EventKind kind;
};

struct LaterEvent {
    bool operator()(const Event& a, const Event& b) const {
        return a.time != b.time ? a.time > b.time : a.sequence > b.sequence;
    }
};

// Something that runs: its work left at `since`, and how much slower than undisturbed it runs.
struct Activity {
    Duration remaining{0};
    Duration since{0};
    Duration start{0};
    std::int64_t slowdown_ppm = undisturbed_ppm;
    std::uint32_t generation = 0;
    bool active = false;
};

struct RankState {
    std::size_t next = 0;   // instruction at the head of the compute stream
    bool issued = false;    // whether the host has issued it
    Duration host{0};       // when the host finished issuing it
    Duration frontier{0};   // when the compute stream finished what came before it
    Duration accounted{0};  // the part of the step already counted to a phase
    Activity compute;
    bool waiting = false;  // for the collective of a wait instruction
    StepTimes times;
    LaunchQueue queue;
    SideStreams sides;
};

class Engine {
  public:
    Engine(std::span<const Program> programs, Record record, std::span<const RankProgress> starts)
        : programs_(programs),
          interferes_(disturbs(programs.front())),
          host_is_device_(programs.front().host_is_device),
          recording_(record == Record::timeline),
          ranks_(programs.size()),
          arrived_(programs.front().collectives.size(), 0) {
        invariant(starts.size() == ranks_.size(), "every rank has a start");
        for (std::size_t i = 0; i < ranks_.size(); ++i) {
            ranks_[i].host = starts[i].host;
            ranks_[i].frontier = ranks_[i].accounted = starts[i].device;
            ranks_[i].times = starts[i].times;
            ranks_[i].queue = starts[i].queue;
            ranks_[i].sides = starts[i].sides;
            now_ = std::min(now_, starts[i].device);
        }
        for (const Program& program : programs) {
            invariant(program.collectives.size() == arrived_.size(),
                      "all ranks issue the same collectives");
        }
    }

    Simulation run() {
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            advance(rank);
        }
        settle_rates();
        while (!events_.empty()) {
            const Event event = events_.top();
            events_.pop();
            ++result_.events;
            now_ = event.time;
            handle(event);
            settle_rates();
        }
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            RankState& state = ranks_[rank];
            invariant(state.next == programs_[rank].instructions.size(),
                      "every instruction has run; a wait without a launch never ends");
            result_.ranks.push_back(state.times);
            result_.progress.push_back({state.host, state.frontier, state.times,
                                        std::move(state.queue), std::move(state.sides)});
        }
        return std::move(result_);
    }

  private:
    void schedule(Duration time, EventKind kind, std::size_t rank, std::uint32_t generation) {
        events_.push({time, sequence_++, generation, static_cast<std::int32_t>(rank), kind});
    }

    void handle(const Event& event) {
        const auto rank = static_cast<std::size_t>(event.rank);
        switch (event.kind) {
            case EventKind::rank_resumes:
                advance(rank);
                break;
            case EventKind::compute_ends:
                if (event.generation == ranks_[rank].compute.generation) {
                    complete_compute(rank);
                    advance(rank);
                }
                break;
            case EventKind::collective_begins:
                if (event.generation == collective_.generation) {
                    held_ = Held::no;
                    begin_collective();
                }
                break;
            case EventKind::collective_ends:
                if (event.generation == collective_.generation) {
                    end_collective();
                }
                break;
        }
    }

    // Runs a rank's compute stream until it computes, waits, or reaches an instruction the host has
    // yet to issue. Nothing later in the stream can happen before such an instruction: the host
    // issues in order.
    void advance(std::size_t rank) {
        RankState& state = ranks_[rank];
        const std::vector<Instruction>& instructions = programs_[rank].instructions;
        while (state.next < instructions.size()) {
            const Instruction& instruction = instructions[state.next];
            issue(state, rank, instruction);
            if (instruction.order.is_beside()) {
                run_beside(state, rank, instruction);
                continue;
            }
            Duration start = std::max(state.frontier, state.host);
            if (instruction.order.after != 0) {
                start = std::max(start, state.sides.awaited(instruction.order, state.frontier));
            }
            if (start > now_ && !skip_to(start)) {
                schedule(start, EventKind::rank_resumes, rank, 0);
                return;
            }
            if (is_compute(instruction.kind)) {
                begin_compute(state.compute, instruction);
                const Duration end =
                    now_ + stretched(state.compute.remaining, state.compute.slowdown_ppm);
                if (!skip_to(end)) {
                    schedule_end(state.compute, EventKind::compute_ends, rank);
                    return;
                }
                complete_compute(rank);
                continue;
            }
            if (instruction.kind == InstructionKind::launch) {
                ++arrived_[static_cast<std::size_t>(instruction.subject)];
                start_next_collective();
            } else if (const auto awaited = static_cast<std::size_t>(instruction.subject);
                       awaited >= ended_collectives_) {
                state.waiting = true;
                return;
            } else if (in_place_[awaited] > now_ && !skip_to(in_place_[awaited])) {
                schedule(in_place_[awaited], EventKind::rank_resumes, rank, 0);
                return;
            }
            finish_instruction(rank, instruction);
        }
    }

    // Moves time on at once where the event of that moment would be the next one anyway: one rank,
    // no earlier event. Rates settle as after an event. Most operations of a step are of this kind,
    // and skipping the queue makes a sweep several times faster.
    bool skip_to(Duration time) {
        if (ranks_.size() > 1) {
            return false;
        }
        settle_rates();
        if (!events_.empty() && events_.top().time <= time) {
            return false;
        }
        now_ = time;
        ++result_.events;
        return true;
    }

    void issue(RankState& state, std::size_t rank, const Instruction& instruction) {
        if (state.issued) {
            return;
        }
        state.issued = true;
        const Duration begin = host_is_device_ ? std::max(state.host, state.frontier)
                                               : state.queue.has_room(state.host);
        state.host = begin + instruction.host;
        if (instruction.finishing && !host_is_device_) {
            state.times.finishing_host += instruction.host;
        }
        if (instruction.host > Duration{0}) {
            record(rank, Track::host, state.next, begin, state.host);
        }
    }

    // At once, from issue to end, whenever that is: it disturbs nothing, and only what is issued
    // later can wait for it.
    void run_beside(RankState& state, std::size_t rank, const Instruction& instruction) {
        invariant(!host_is_device_, "a host that is the device has no other streams");
        const Duration begin = state.sides.begin(instruction.order, state.host, state.frontier);
        const Duration end = begin + instruction.device;
        state.sides.set_end(instruction.order.stream, end);
        record(rank, Track::side, state.next, begin, end);
        go_on(state, instruction, end);
    }

    void finish_instruction(std::size_t rank, const Instruction& instruction) {
        RankState& state = ranks_[rank];
        // A launch takes no time on the compute stream; only its host time can hold up what
        // follows.
        if (instruction.kind != InstructionKind::launch || host_is_device_) {
            state.frontier = now_;
            const Duration passed = now_ - state.accounted;
            state.times.of(instruction.phase) += passed;
            if (instruction.finishing) {
                state.times.finishing += passed;
                state.times.finishing_host += host_is_device_ ? passed : Duration{0};
            }
            state.accounted = now_;
        }
        go_on(state, instruction, now_);
    }

    static void go_on(RankState& state, const Instruction& instruction, Duration end) {
        state.queue.push(end);
        if (instruction.host_waits) {
            state.host = std::max(state.host, end);
        }
        ++state.next;
        state.issued = false;
    }

    void begin_compute(Activity& compute, const Instruction& instruction) {
        compute.remaining = instruction.device;
        compute.start = compute.since = now_;
        compute.active = true;
        compute.slowdown_ppm = compute_slowdown_ppm();
        ++computing_;
    }

    void complete_compute(std::size_t rank) {
        RankState& state = ranks_[rank];
        state.compute.active = false;
        --computing_;
        record(rank, Track::compute, state.next, state.compute.start, now_);
        finish_instruction(rank, programs_[rank].instructions[state.next]);
    }

    void start_next_collective() {
        const bool every_rank_arrived =
            ended_collectives_ < arrived_.size() && arrived_[ended_collectives_] == ranks_.size();
        if (collective_.active || !every_rank_arrived || held_ != Held::no) {
            return;
        }
        if (in_flight().interference.start_delay > Duration{0}) {
            held_ = Held::until_settled;
        } else {
            begin_collective();
        }
    }

    // Held back while something computes, until its delay is over.
    void settle_held() {
        if (held_ != Held::no && computing_ == 0) {
            held_ = Held::no;
            ++collective_.generation;
            begin_collective();
        } else if (held_ == Held::until_settled) {
            held_ = Held::for_delay;
            schedule(now_ + in_flight().interference.start_delay, EventKind::collective_begins, 0,
                     ++collective_.generation);
        }
    }

    void begin_collective() {
        collective_.active = true;
        collective_.start = collective_.since = now_;
        collective_.remaining = programs_.front().collectives[ended_collectives_].time;
        collective_.slowdown_ppm = communication_slowdown_ppm();
        schedule_end(collective_, EventKind::collective_ends, 0);
    }

    void end_collective() {
        collective_.active = false;
        record(0, Track::communication, ended_collectives_, collective_.start, now_);
        in_place_.push_back(now_ + in_flight().placing);
        ++ended_collectives_;
        start_next_collective();
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            if (ranks_[rank].waiting) {
                ranks_[rank].waiting = false;
                advance(rank);
            }
        }
    }

    void schedule_end(Activity& activity, EventKind kind, std::size_t rank) {
        ++activity.generation;
        schedule(now_ + stretched(activity.remaining, activity.slowdown_ppm), kind, rank,
                 activity.generation);
    }

    void change_rate(Activity& activity, std::int64_t slowdown_ppm, EventKind kind,
                     std::size_t rank) {
        if (!activity.active || activity.slowdown_ppm == slowdown_ppm) {
            return;
        }
        const Duration done = work_done(now_ - activity.since, activity.slowdown_ppm);
        activity.remaining = std::max(activity.remaining - done, Duration{0});
        activity.since = now_;
        activity.slowdown_ppm = slowdown_ppm;
        schedule_end(activity, kind, rank);
    }

    // By how much the collective in flight slows whatever computes now.
    [[nodiscard]] std::int64_t compute_slowdown_ppm() const {
        return collective_.active ? in_flight().interference.compute_slowdown_ppm : undisturbed_ppm;
    }

    // By how much whatever computes slows the collective in flight.
    [[nodiscard]] std::int64_t communication_slowdown_ppm() const {
        return computing_ > 0 ? in_flight().interference.communication_slowdown_ppm
                              : undisturbed_ppm;
    }

    [[nodiscard]] const Collective& in_flight() const {
        return programs_.front().collectives[ended_collectives_];
    }

    // Once per event, after everything that happens at this moment has happened: an operation that
    // follows another without a gap is no change.
    void settle_rates() {
        if (!interferes_) {
            return;
        }
        settle_held();
        if (collective_.active) {
            change_rate(collective_, communication_slowdown_ppm(), EventKind::collective_ends, 0);
        }
        if (collective_.active == settled_in_flight_ && ended_collectives_ == settled_ended_) {
            return;
        }
        settled_in_flight_ = collective_.active;
        settled_ended_ = ended_collectives_;
        const std::int64_t slowdown = compute_slowdown_ppm();
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            change_rate(ranks_[rank].compute, slowdown, EventKind::compute_ends, rank);
        }
    }

    void record(std::size_t rank, Track track, std::size_t subject, Duration start, Duration end) {
        if (recording_) {
            result_.timeline.spans.push_back({start, end, static_cast<std::int32_t>(rank),
                                              static_cast<std::int32_t>(subject), track});
        }
    }

    std::span<const Program> programs_;
    bool interferes_;
    bool host_is_device_;
    bool recording_;
    Duration now_{0};
    std::uint64_t sequence_ = 0;
    std::priority_queue<Event, std::vector<Event>, LaterEvent> events_;
    std::vector<RankState> ranks_;
    std::int64_t computing_ = 0;         // ranks that compute now
    Activity collective_;                // the one in flight, if active
    std::vector<Duration> in_place_;     // by collective that has ended: when what it brought is
    std::vector<std::size_t> arrived_;   // by collective: ranks that have reached it
    std::size_t ended_collectives_ = 0;  // also the index of the next one to start
    Held held_ = Held::no;               // the next one could start, but for what computes
    // What compute rates assume: whether a collective is in flight, and how many had ended. One may
    // end and the next start in the same event, while a rank began to compute in between.
    bool settled_in_flight_ = false;
    std::size_t settled_ended_ = 0;
    Simulation result_;
};

}  // namespace

std::uint64_t hash_of(const Timeline& timeline) {
    FnvHash hash;
    for (const Span& span : timeline.spans) {
        hash.add(span.start.count());
        hash.add(span.end.count());
        hash.add(std::int64_t{span.rank});
        hash.add(std::int64_t{span.subject});
        hash.add(static_cast<std::int64_t>(span.track));
    }
    return hash.value();
}

Simulation simulate(std::span<const Program> ranks, Record record,
                    std::span<const RankProgress> starts) {
    invariant(!ranks.empty(), "a simulation has a rank");
    return Engine(ranks, record, starts).run();
}

Simulation simulate(std::span<const Program> ranks, Record record, const RankProgress& start) {
    return simulate(ranks, record, std::vector<RankProgress>(ranks.size(), start));
}

void run_programs(std::span<const Program> ranks, std::span<RankProgress> progress) {
    invariant(!ranks.empty(), "a simulation has a rank");
    invariant(ranks.size() == progress.size(), "every rank has a start");
    if (!disturbs(ranks.front())) {
        return run_undisturbed(ranks, progress);
    }
    if (ranks.size() == 1) {
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
