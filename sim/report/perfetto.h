// A simulated step as a trace that the Perfetto UI and chrome://tracing open.
#pragma once

#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/program/program.h"

namespace bucketwise {

// A slice of a measured or traced track.
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

// A real step, shown beside the simulated one.
struct TraceProcess {
    std::string name;
    std::vector<TraceTrack> tracks;
    bool operator==(const TraceProcess&) const = default;
};

// Chrome trace event JSON: one process per rank with a track each for host, compute stream and
// communication stream; buckets labelled with number and size; a flow from the operation that
// completes a bucket to its all-reduce. The processes of `beside` follow with their tracks; a slice
// of theirs that overlaps an earlier one begins at its end. Times are in microseconds from the
// start of the step, for all processes. A host that runs some steps ahead is shown with the
// instructions that it issues meanwhile, labelled with the number of steps. Processes and threads
// are numbered from 1, as Perfetto takes 0 for the idle one, and no two threads share a number.
// `simulation` is the recorded run of `program`. For a sharded step `groups` are the names of its
// groups of parameters, in place of buckets, and a second communication stream has a track.
std::string perfetto_trace(const std::string& name, const StepInput& input, const Program& program,
                           const Simulation& simulation,
                           const std::vector<TraceProcess>& beside = {},
                           const std::vector<std::string>& groups = {});

}  // namespace bucketwise
