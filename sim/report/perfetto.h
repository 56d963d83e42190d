// A simulated step as a trace that the Perfetto UI and chrome://tracing open.
#pragma once

#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/program/program.h"

namespace bucketwise {

// A slice of a track that was seen elsewhere: measured, or traced.
struct TraceSlice {
    std::string name;
    Duration begin{0};  // from the start of the step
    Duration end{0};
    bool operator==(const TraceSlice&) const = default;
};

struct TraceTrack {
    std::string name;
    std::vector<TraceSlice> slices;  // in order; none overlaps another
    bool operator==(const TraceTrack&) const = default;
};

// A real step, to be shown beside the simulated one.
struct TraceProcess {
    std::string name;
    std::vector<TraceTrack> tracks;
    bool operator==(const TraceProcess&) const = default;
};

// Chrome trace event JSON: one process per rank with a track each for host, compute stream and
// communication stream; buckets labelled with number and size; a flow from the operation that
// completes a bucket to its all-reduce. Each process of `beside` follows, with the tracks it has;
// slices of theirs that begin before an earlier one has ended begin there. Times in microseconds
// from the start of the step, which all processes share; a host that is then some steps ahead is
// shown with what it issues meanwhile, which says of how many steps later it is. No process and no
// thread has number 0, which Perfetto takes for the idle one, and no two threads have the same.
// `simulation` is the recorded run of `program`. Of a sharded step `groups` are the names of those
// whose parameters move, in the place of buckets, and a second communication stream has a track.
std::string perfetto_trace(const std::string& name, const StepInput& input, const Program& program,
                           const Simulation& simulation,
                           const std::vector<TraceProcess>& beside = {},
                           const std::vector<std::string>& groups = {});

}  // namespace bucketwise
