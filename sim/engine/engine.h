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

#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/rank_progress.h"
#include "sim/program/program.h"

namespace bucketwise {

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
