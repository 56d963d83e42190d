// The engine: moves ranks through their programs, event by event, on hosts, compute streams and
// communication streams. Without interference one pass over the program gives the same
// (sim/engine/undisturbed.cpp), and faster with interference if all ranks are
// alike (sim/engine/disturbed.cpp).
//
// Events are ordered by (time, sequence number): equal times resolve in the order they were
// scheduled, and every run repeats to the picosecond.
//
//  - Host: issues instructions one after another, each in its host time. It runs ahead of the
//    device as far as its launch queue allows; with host_is_device it waits for an idle device.
//  - Compute stream of a rank: runs issued instructions in order, each after it was issued.
//  - Side streams of a rank: run their instructions in order, each after it was issued and after
//    the streams that it follows (StreamOrder). They do not count as computing.
//  - Communication stream: one for the group, first in, first out. A collective starts when every
//    rank has issued it, every compute stream has reached it, and the stream is free. A launch
//    ahead of its place (Instruction::launched_after) waits for that instruction instead of the
//    compute stream; such programs have no side streams. A second stream is independent of the
//    first, except for collectives that follow one of the other stream.
//  - Interference: a collective in flight slows computing by its compute_slowdown (of two
//    collectives, the larger), and computing on any rank slows it by its communication_slowdown.
//    Each activity carries its remaining work; its rate changes when the other side starts or ends.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/units.h"
#include "sim/program/program.h"

namespace bucketwise {

// One rank's time in each part of a step, waits included.
struct StepTimes {
    Duration forward{0};
    Duration backward{0};
    Duration optimizer{0};
    // The part of backward in the call that finishes synchronisation: on the compute stream, from
    // the end of backward and its hooks; and on the host, which may run ahead.
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

// The limit of a host's lead: it issues an instruction once the instruction a queue's length
// earlier has run.
struct LaunchQueue {
    // Ends on the device of the last instructions, as many as the queue holds; the earliest issued
    // is at `next`. Empty: the queue never fills.
    std::vector<Duration> ends;
    std::size_t next = 0;
    bool operator==(const LaunchQueue&) const = default;

    // When the host can issue the instruction `ahead` places after the first that has not run.
    [[nodiscard]] Duration has_room(Duration host, std::size_t ahead = 0) const {
        if (ends.empty()) {
            return host;
        }
        const std::size_t place = next + ahead;
        return std::max(host, ends[place < ends.size() ? place : place - ends.size()]);
    }
    // Whether enough has run to know that.
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

// Before any moment of a step: a host this far ahead delays nothing.
constexpr Duration far_ahead = -2 * longest_duration;

struct SideStreams {
    std::vector<Duration> ends = {};  // of streams 1, 2, ...; later streams have never run anything
    bool operator==(const SideStreams&) const = default;

    [[nodiscard]] Duration end_of(std::size_t stream) const {
        return stream > ends.size() ? far_ahead : ends[stream - 1];
    }
    // When every stream that `order` follows has ended; the compute stream does at `computed`.
    [[nodiscard]] Duration awaited(StreamOrder order, Duration computed) const {
        Duration latest = order.is_after(compute_stream) ? computed : far_ahead;
        for (std::size_t stream = 1; stream <= ends.size(); ++stream) {
            latest = order.is_after(stream) ? std::max(latest, ends[stream - 1]) : latest;
        }
        return latest;
    }
    [[nodiscard]] Duration begin(StreamOrder order, Duration issued, Duration computed) const {
        return std::max({issued, end_of(order.stream), awaited(order, computed)});
    }
    void set_end(std::uint8_t stream, Duration end) {
        if (stream > ends.size()) {
            ends.resize(stream, far_ahead);
        }
        ends[stream - std::size_t{1}] = end;
    }
    // Nothing can begin before the host, so earlier ends make no difference.
    void forget_before(Duration host) {
        for (Duration& end : ends) {
            end = std::max(end, host);
        }
    }
};

// One rank's state between two programs: everything issued has run, except on side streams.
struct RankProgress {
    Duration host{0};      // when the host finished issuing
    Duration device{0};    // when the compute stream finished
    StepTimes times = {};  // so far
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

struct Timeline {
    std::vector<Span> spans;  // in the order they ended, except side streams' and the host's
    bool operator==(const Timeline&) const = default;
};

// FNV-1a over every field of every span: equal on every machine and at every optimisation level.
std::uint64_t hash_of(const Timeline& timeline);

struct Simulation {
    std::vector<StepTimes> ranks;
    std::vector<RankProgress> progress;  // by rank, at the end
    Timeline timeline;                   // with Record::timeline
    std::uint64_t events = 0;            // handled, including stale ones
    bool operator==(const Simulation&) const = default;
};

enum class Record : std::uint8_t { times_only, timeline };

// One program per rank, or a single one standing for a group of equal ranks, all starting from
// `start`. All programs issue the same collectives in the same order (asserted); the first one's
// collectives and host_is_device hold.
Simulation simulate(std::span<const Program> ranks, Record record, const RankProgress& start = {});

// With a start for each rank.
Simulation simulate(std::span<const Program> ranks, Record record,
                    std::span<const RankProgress> starts);

// Whether there is interference.
bool disturbs(const Program& program);

// Moves each rank on to the end of its program. Preconditions as simulate()'s; no interference.
void run_undisturbed(std::span<const Program> ranks, std::span<RankProgress> progress);

// With interference, for a single rank or a group of equal ranks, with all collectives on one
// stream and launched in their places (asserted).
void run_disturbed(const Program& program, RankProgress& progress);

// Moves each rank on to the end of its program, to the progress of simulate(); several times as
// fast without interference, or if all ranks are alike.
void run_programs(std::span<const Program> ranks, std::span<RankProgress> progress);

// A group of equal ranks.
StepTimes simulate_times(const Program& program, const RankProgress& start = {});

}  // namespace bucketwise
