// The engine: moves ranks through their programs, event by event, on hosts, compute streams and one
// communication stream. Where collectives and computing do not disturb each other, or all ranks are
// alike, there are quicker ways to the same end (sim/engine/undisturbed.cpp, disturbed.cpp).
//
// Time moves from event to event, ordered by (time, sequence number), so that equal times resolve
// in the order they were scheduled and every run repeats to the picosecond.
//
//  - Host: issues its instructions one after another, each taking its host time. It runs ahead of
//    the device, as far as its launch queue lets it; where host_is_device, it issues the next one
//    only when the device is idle.
//  - Compute stream of a rank: runs what was issued, in order, each no earlier than it was issued.
//  - Side streams of a rank: run what was issued on them, in order, each no earlier than it was
//    issued and than what it is to follow on other streams (StreamOrder). What runs there does not
//    compute.
//  - Communication stream: one for the group, first in, first out. A collective starts when every
//    rank has issued it, every rank's compute stream has reached it, and the stream is free. One
//    that is launched ahead of its place (Instruction::launched_after) asks nothing of the compute
//    stream but that this instruction has ended; then there are no side streams. Of two streams
//    each goes its own way, but for what follows a collective of the other.
//  - Interference: while a collective is in flight, computing runs slower by its compute_slowdown,
//    by the larger one of two; while any rank computes, it runs slower by its
//    communication_slowdown. Each activity carries its remaining work, and its rate changes when
//    the other side starts or ends.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/units.h"
#include "sim/program/program.h"

namespace bucketwise {

// How long one rank spends in each part of a step, waiting included.
struct StepTimes {
    Duration forward{0};
    Duration backward{0};
    Duration optimizer{0};
    // What of backward the call takes that finishes synchronisation: on the compute stream, from
    // the end of what backward and its hooks left there; and on the host, which may run ahead.
    Duration finishing{0};
    Duration finishing_host{0};
    bool operator==(const StepTimes&) const = default;

    void add(const StepTimes& other, std::int64_t times = 1) {
        for (const auto part : {&StepTimes::forward, &StepTimes::backward, &StepTimes::optimizer,
                                &StepTimes::finishing, &StepTimes::finishing_host}) {
            this->*part += times * other.*part;
        }
    }
    [[nodiscard]] Duration step() const { return forward + backward + optimizer; }
    [[nodiscard]] Duration& of(Phase phase) {
        return phase == Phase::forward ? forward : phase == Phase::backward ? backward : optimizer;
    }
};

// How far a host may be ahead: it issues an instruction once the one that is the queue's length
// before it has run.
struct LaunchQueue {
    // When the last instructions were done on the device, as many as the queue holds, the one
    // issued first at `next`. Empty: the queue never fills.
    std::vector<Duration> ends;
    std::size_t next = 0;
    bool operator==(const LaunchQueue&) const = default;

    // When it issues the instruction that is so many after the first that has not run.
    [[nodiscard]] Duration has_room(Duration host, std::size_t ahead = 0) const {
        if (ends.empty()) {
            return host;
        }
        const std::size_t place = next + ahead;
        return std::max(host, ends[place < ends.size() ? place : place - ends.size()]);
    }
    // Whether enough has run to tell that.
    [[nodiscard]] bool knows_room(std::size_t ahead) const {
        return ends.empty() || ahead < ends.size();
    }
    void push(Duration end) {
        if (!ends.empty()) {
            ends[next] = end;
            next = next + 1 == ends.size() ? 0 : next + 1;
        }
    }
};

// Before any moment of a step: a host that is this far ahead holds nothing up.
constexpr Duration far_ahead = -2 * longest_duration;

// When what was issued on each stream beside the compute stream has ended.
struct SideStreams {
    std::vector<Duration> ends = {};  // from stream 1 on; others have never run anything
    bool operator==(const SideStreams&) const = default;

    [[nodiscard]] Duration end_of(std::size_t stream) const {
        return stream > ends.size() ? far_ahead : ends[stream - 1];
    }
    // When all has ended that it is after, where the compute stream's is done at `computed`.
    [[nodiscard]] Duration awaited(StreamOrder order, Duration computed) const {
        Duration latest = order.is_after(compute_stream) ? computed : far_ahead;
        for (std::size_t stream = 1; stream <= ends.size(); ++stream) {
            latest = order.is_after(stream) ? std::max(latest, ends[stream - 1]) : latest;
        }
        return latest;
    }
    // When an operation begins on its side stream that is issued at this moment.
    [[nodiscard]] Duration begin(StreamOrder order, Duration issued, Duration computed) const {
        return std::max({issued, end_of(order.stream), awaited(order, computed)});
    }
    void set_end(std::uint8_t stream, Duration end) {
        if (stream > ends.size()) {
            ends.resize(stream, far_ahead);
        }
        ends[stream - std::size_t{1}] = end;
    }
    // The host has come so far: nothing can begin earlier on any of them, so that no earlier end
    // tells anything.
    void forget_before(Duration host) {
        for (Duration& end : ends) {
            end = std::max(end, host);
        }
    }
};

// Where one rank stands between two programs: what its host has issued has also run, but for what
// is left on side streams.
struct RankProgress {
    Duration host{0};      // when the host finished issuing
    Duration device{0};    // when the compute stream finished
    StepTimes times = {};  // of what came before
    LaunchQueue queue = {};
    SideStreams sides = {};
    bool operator==(const RankProgress&) const = default;
};

enum class Track : std::uint8_t { host, compute, communication, side };

struct Span {
    Duration start{0};
    Duration end{0};
    std::int32_t rank = 0;
    // Index into Program::instructions; on the communication track into Program::collectives.
    std::int32_t subject = 0;
    Track track = Track::compute;
    bool operator==(const Span&) const = default;
};

// What ran when on which track of which rank.
struct Timeline {
    std::vector<Span> spans;  // in the order they ended, but for side streams' and the host's
    bool operator==(const Timeline&) const = default;
};

// FNV-1a over every field of every span: equal on every machine and at every optimisation level.
std::uint64_t hash_of(const Timeline& timeline);

struct Simulation {
    std::vector<StepTimes> ranks;
    std::vector<RankProgress> progress;  // by rank, at the end
    Timeline timeline;                   // empty unless asked for
    std::uint64_t events = 0;            // handled, stale ones included
    bool operator==(const Simulation&) const = default;
};

enum class Record : std::uint8_t { times_only, timeline };

// One program per rank, or a single one standing for a group of equal ranks, all starting from
// `start`. All programs issue the same collectives in the same order (asserted); the first one's
// collectives and host_is_device hold.
Simulation simulate(std::span<const Program> ranks, Record record, const RankProgress& start = {});

// The same, each rank from a start of its own.
Simulation simulate(std::span<const Program> ranks, Record record,
                    std::span<const RankProgress> starts);

// Whether any collective and computing slow each other.
bool disturbs(const Program& program);

// Moves each rank on to the end of its program. Preconditions as simulate()'s; no collective
// disturbs.
void run_undisturbed(std::span<const Program> ranks, std::span<RankProgress> progress);

// The same of a single rank, or a group of equal ones, whose collectives may disturb, all on one
// stream and each launched in its place (asserted).
void run_disturbed(const Program& program, RankProgress& progress);

// Moves each rank on to the end of its program: the progress that simulate() gives. Without its
// events, several times as fast, where collectives and computing do not disturb each other, or all
// ranks are alike.
void run_programs(std::span<const Program> ranks, std::span<RankProgress> progress);

// A group of equal ranks.
StepTimes simulate_times(const Program& program, const RankProgress& start = {});

}  // namespace bucketwise
