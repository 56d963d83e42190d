#include "sim/engine/engine.h"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>
#include <utility>

#include "sim/base/hash.h"
#include "sim/base/invariant.h"
#include "sim/engine/rank_clock.h"

namespace bucketwise {
namespace {

enum class EventKind : std::uint8_t {
    rank_resumes,
    compute_ends,
    launch_arrives,
    collective_begins,
    collective_ends
};

// Whether a collective that could start is delayed by computing.
enum class Held : std::uint8_t { no, until_settled, for_delay };

// Launches ahead: the instruction each waits for and its own index; the first to be ready on top.
using LaunchAhead = std::pair<std::int32_t, std::size_t>;
using LaunchesAhead =
    std::priority_queue<LaunchAhead, std::vector<LaunchAhead>, std::greater<LaunchAhead>>;

struct Event {
    Duration time;
    std::uint64_t sequence;
    // Stale if the activity was rescheduled since. For a launch: its instruction.
    std::uint32_t generation;
    std::int32_t place;  // the rank; for a collective's begin and end: its stream
    EventKind kind;
};

struct LaterEvent {
    bool operator()(const Event& a, const Event& b) const {
        return a.time != b.time ? a.time > b.time : a.sequence > b.sequence;
    }
};

// A running activity: its work left at `since` and its slowdown.
struct Activity {
    Duration remaining{0};
    Duration since{0};
    Duration start{0};
    std::int64_t slowdown_ppm = undisturbed_ppm;
    std::uint32_t generation = 0;
    bool active = false;
};

struct RankState {
    RankClock clock;
    Duration begin{0};        // of the program, on the compute stream
    std::size_t next = 0;     // instruction at the head of the compute stream
    std::size_t issued = 0;   // instructions that the host has issued
    bool host_waits = false;  // for the last of them
    Activity compute = {};
    bool waiting = false;  // for the collective of a wait instruction
    // By instruction, in programs with launches ahead: when the host had issued it, and when it had
    // ended or, for a launch, arrived.
    std::vector<Duration> issued_at = {};
    std::vector<Duration> ended_at = {};
    LaunchesAhead launches = {};  // waiting for another instruction to end
};

// Collectives that follow one another.
struct CollectiveStream {
    std::vector<std::size_t> collectives = {};
    std::size_t next = 0;    // the collective in flight, or the next one
    Activity activity = {};  // of the collective in flight, if active
    Held held = Held::no;    // of the next one
    // The assumption of compute rates: whether a collective is in flight, and which. One can end
    // and the next start in the same event, while a rank began to compute in between.
    bool settled_in_flight = false;
    std::size_t settled_next = 0;
};

class Engine {
  public:
    Engine(std::span<const Program> programs, Record record, std::span<const RankProgress> starts)
        : programs_(programs),
          interferes_(disturbs(programs.front())),
          host_is_device_(programs.front().host_is_device),
          launches_ahead_(
              std::ranges::any_of(programs.front().instructions, &Instruction::is_launched_ahead)),
          recording_(record == Record::timeline),
          arrived_(programs.front().collectives.size(), 0),
          in_place_(arrived_.size()),
          has_ended_(arrived_.size(), false) {
        invariant(starts.size() == programs.size(), "every rank has a start");
        for (const RankProgress& start : starts) {
            ranks_.push_back({.clock = {host_is_device_, start}, .begin = start.device});
            now_ = std::min(now_, start.device);
        }
        for (const Program& program : programs) {
            invariant(program.collectives.size() == arrived_.size(),
                      "all ranks issue the same collectives");
        }
        for (std::size_t i = 0; i < arrived_.size(); ++i) {
            const CommunicationStream stream = programs.front().collectives[i].stream;
            streams_[static_cast<std::size_t>(stream)].collectives.push_back(i);
        }
        if (launches_ahead_) {
            invariant(!host_is_device_, "a host that is the device has no other streams");
            for (std::size_t i = 0; i < ranks_.size(); ++i) {
                ranks_[i].issued_at.resize(programs[i].instructions.size());
                ranks_[i].ended_at.resize(programs[i].instructions.size());
            }
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
            result_.progress.push_back(state.clock.take_progress());
            result_.ranks.push_back(result_.progress.back().times);
        }
        return std::move(result_);
    }

  private:
    void schedule(Duration time, EventKind kind, std::size_t place, std::uint32_t generation) {
        events_.push({time, sequence_++, generation, static_cast<std::int32_t>(place), kind});
    }

    void handle(const Event& event) {
        const auto place = static_cast<std::size_t>(event.place);
        switch (event.kind) {
            case EventKind::rank_resumes:
                advance(place);
                break;
            case EventKind::compute_ends:
                if (event.generation == ranks_[place].compute.generation) {
                    complete_compute(place);
                    advance(place);
                }
                break;
            case EventKind::launch_arrives:
                arrive(programs_[place].instructions[event.generation]);
                break;
            case EventKind::collective_begins:
                if (event.generation == streams_[place].activity.generation) {
                    streams_[place].held = Held::no;
                    begin_collective(streams_[place]);
                }
                break;
            case EventKind::collective_ends:
                if (event.generation == streams_[place].activity.generation) {
                    end_collective(streams_[place]);
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
            issue(rank);
            if (instruction.is_launched_ahead()) {
                finish(rank, instruction, state.ended_at[state.next]);
                continue;
            }
            if (instruction.order.is_beside()) {
                run_beside(rank, instruction);
                continue;
            }
            const Duration issued =
                launches_ahead_ ? state.issued_at[state.next] : state.clock.host();
            const Duration start = state.clock.begin(instruction, issued);
            if (start > now_ && !skip_to(start)) {
                schedule(start, EventKind::rank_resumes, rank, 0);
                return;
            }
            if (is_compute(instruction.kind)) {
                state.compute = {instruction.device,       now_, now_, compute_slowdown_ppm(),
                                 state.compute.generation, true};
                ++computing_;
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
                arrive(instruction);
            } else if (const auto awaited = static_cast<std::size_t>(instruction.subject);
                       !has_ended_[awaited]) {
                state.waiting = true;
                return;
            } else if (in_place_[awaited] > now_ && !skip_to(in_place_[awaited])) {
                schedule(in_place_[awaited], EventKind::rank_resumes, rank, 0);
                return;
            }
            finish(rank, instruction, now_);
        }
    }

    // Moves time on without the queue if the event of that moment would be the next one: one rank,
    // no earlier event. Rates settle as after an event. Most operations of a step do so, which
    // makes a sweep several times faster.
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

    // Without launches ahead, the host's work matters only once the compute stream comes to it;
    // otherwise the host issues everything whose time is known.
    void issue(std::size_t rank) {
        RankState& state = ranks_[rank];
        const std::size_t end =
            launches_ahead_ ? programs_[rank].instructions.size() : state.next + 1;
        while (state.issued < end && !state.host_waits && state.clock.knows_room()) {
            issue_next(state, rank);
        }
    }

    void issue_next(RankState& state, std::size_t rank) {
        const std::size_t index = state.issued++;
        const Instruction& instruction = programs_[rank].instructions[index];
        const Duration begin = state.clock.issue(instruction);
        state.host_waits = instruction.host_waits;
        if (instruction.host > Duration{0}) {
            record(rank, Track::host, index, begin, state.clock.host());
        }
        if (launches_ahead_) {
            state.issued_at[index] = state.clock.host();
            if (instruction.is_launched_ahead()) {
                state.launches.emplace(instruction.launched_after, index);
                launch_what_is_ready(state, rank);
            }
        }
    }

    void launch_what_is_ready(RankState& state, std::size_t rank) {
        const auto next = static_cast<std::int64_t>(state.next);
        while (!state.launches.empty() && state.launches.top().first < next) {
            const auto [after, index] = state.launches.top();
            state.launches.pop();
            const Duration ready =
                after == before_all ? state.begin : state.ended_at[static_cast<std::size_t>(after)];
            state.ended_at[index] = std::max(state.issued_at[index], ready) +
                                    programs_[rank].instructions[index].device;
            invariant(state.ended_at[index] >= now_, "a launch is known before it arrives");
            schedule(state.ended_at[index], EventKind::launch_arrives, rank,
                     static_cast<std::uint32_t>(index));
        }
    }

    // From issue to end at once, whenever that is: it disturbs nothing, and only later instructions
    // can wait for it.
    void run_beside(std::size_t rank, const Instruction& instruction) {
        invariant(!launches_ahead_, "launches ahead wait for the compute stream alone");
        RankState& state = ranks_[rank];
        const auto [begin, end] = state.clock.run_beside(instruction);
        record(rank, Track::side, state.next, begin, end);
        finish(rank, instruction, end);
    }

    void finish(std::size_t rank, const Instruction& instruction, Duration end) {
        RankState& state = ranks_[rank];
        state.clock.finish(instruction, end);
        state.host_waits = state.host_waits && !instruction.host_waits;
        ++state.next;
        if (launches_ahead_) {
            state.ended_at[state.next - 1] = end;
            launch_what_is_ready(state, rank);
        }
    }

    void complete_compute(std::size_t rank) {
        RankState& state = ranks_[rank];
        state.compute.active = false;
        --computing_;
        record(rank, Track::compute, state.next, state.compute.start, now_);
        finish(rank, programs_[rank].instructions[state.next], now_);
    }

    void arrive(const Instruction& launch) {
        ++arrived_[static_cast<std::size_t>(launch.subject)];
        start_next_collectives();
    }

    void start_next_collectives() {
        for (CollectiveStream& stream : streams_) {
            if (stream.activity.active || stream.held != Held::no || !can_start_next(stream)) {
                continue;
            }
            if (in_flight(stream).interference.start_delay > Duration{0}) {
                stream.held = Held::until_settled;
            } else {
                begin_collective(stream);
            }
        }
    }

    [[nodiscard]] bool can_start_next(const CollectiveStream& stream) const {
        if (stream.next == stream.collectives.size() ||
            arrived_[stream.collectives[stream.next]] != ranks_.size()) {
            return false;
        }
        const std::optional<std::int32_t>& follows = in_flight(stream).follows;
        return !follows || has_ended_[static_cast<std::size_t>(*follows)];
    }

    // Held while something computes, until its delay is over.
    void settle_held(CollectiveStream& stream) {
        if (stream.held != Held::no && computing_ == 0) {
            stream.held = Held::no;
            ++stream.activity.generation;
            begin_collective(stream);
        } else if (stream.held == Held::until_settled) {
            stream.held = Held::for_delay;
            schedule(now_ + in_flight(stream).interference.start_delay,
                     EventKind::collective_begins, place_of(stream), ++stream.activity.generation);
        }
    }

    void begin_collective(CollectiveStream& stream) {
        Activity& activity = stream.activity;
        activity.active = true;
        activity.start = activity.since = now_;
        activity.remaining = in_flight(stream).time;
        activity.slowdown_ppm = communication_slowdown_ppm(stream);
        schedule_end(activity, EventKind::collective_ends, place_of(stream));
    }

    void end_collective(CollectiveStream& stream) {
        stream.activity.active = false;
        const std::size_t ended = stream.collectives[stream.next];
        record(0, Track::communication, ended, stream.activity.start, now_);
        in_place_[ended] = now_ + in_flight(stream).placing;
        has_ended_[ended] = true;
        ++stream.next;
        start_next_collectives();
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            if (ranks_[rank].waiting) {
                ranks_[rank].waiting = false;
                advance(rank);
            }
        }
    }

    [[nodiscard]] std::size_t place_of(const CollectiveStream& stream) const {
        return static_cast<std::size_t>(&stream - streams_.data());
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

    // The slowdown of computing by the collectives in flight.
    [[nodiscard]] std::int64_t compute_slowdown_ppm() const {
        std::int64_t slowdown_ppm = undisturbed_ppm;
        for (const CollectiveStream& stream : streams_) {
            if (stream.activity.active) {
                slowdown_ppm =
                    std::max(slowdown_ppm, in_flight(stream).interference.compute_slowdown_ppm);
            }
        }
        return slowdown_ppm;
    }

    // The slowdown of the collective in flight by computing.
    [[nodiscard]] std::int64_t communication_slowdown_ppm(const CollectiveStream& stream) const {
        return computing_ > 0 ? in_flight(stream).interference.communication_slowdown_ppm
                              : undisturbed_ppm;
    }

    [[nodiscard]] const Collective& in_flight(const CollectiveStream& stream) const {
        return programs_.front().collectives[stream.collectives[stream.next]];
    }

    // Once per event, after everything of this moment: an operation that follows another without a
    // gap changes nothing.
    void settle_rates() {
        if (!interferes_) {
            return;
        }
        bool settled = true;
        for (CollectiveStream& stream : streams_) {
            settle_held(stream);
            if (stream.activity.active) {
                change_rate(stream.activity, communication_slowdown_ppm(stream),
                            EventKind::collective_ends, place_of(stream));
            }
            settled = settled && stream.activity.active == stream.settled_in_flight &&
                      stream.next == stream.settled_next;
            stream.settled_in_flight = stream.activity.active;
            stream.settled_next = stream.next;
        }
        if (settled) {
            return;
        }
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
    bool launches_ahead_;
    bool recording_;
    Duration now_{0};
    std::uint64_t sequence_ = 0;
    std::priority_queue<Event, std::vector<Event>, LaterEvent> events_;
    std::vector<RankState> ranks_;
    std::int64_t computing_ = 0;  // ranks
    std::array<CollectiveStream, communication_streams> streams_;
    // By collective:
    std::vector<std::size_t> arrived_;  // ranks that have launched it
    std::vector<Duration> in_place_;    // after its end: when its result is in place
    std::vector<bool> has_ended_;
    Simulation result_;
};

}  // namespace

std::uint64_t hash_of(const Timeline& timeline) {
    FnvHash hash;
    for (const Span& span : timeline.spans) {
        for (const std::int64_t field :
             {span.start.count(), span.end.count(), std::int64_t{span.rank},
              std::int64_t{span.subject}, static_cast<std::int64_t>(span.track)}) {
            hash.add(field);
        }
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

}  // namespace bucketwise
