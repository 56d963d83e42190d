// Executes programs event by event on hosts, compute streams and one communication stream.
//
// Time moves from event to event, ordered by (time, sequence number), so that equal times resolve
// in the order they were scheduled and every run repeats to the picosecond.
//
//  - Host: issues its instructions one after another, each taking its host time. It runs ahead of
//    the device; where host_is_device, it issues the next one only when the device is idle.
//  - Compute stream of a rank: runs what was issued, in order, each no earlier than it was issued.
//  - Communication stream: one for the group, first in, first out. A collective starts when every
//    rank has issued it, every rank's compute stream has reached it, and the stream is free.
//  - Interference: while a collective is in flight, computing runs slower by its compute_slowdown;
//    while any rank computes, it runs slower by its communication_slowdown. Each activity carries
//    its remaining work, and its rate changes when the other side starts or ends.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/step_times.h"
#include "sim/engine/timeline.h"
#include "sim/program/program.h"

namespace bucketwise {

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

}  // namespace bucketwise
