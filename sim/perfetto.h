// A simulated step as a trace that the Perfetto UI and chrome://tracing open.
#pragma once

#include <string>

#include "sim/engine.h"
#include "sim/program.h"

namespace bucketwise {

// Chrome trace event JSON: one process per rank with a track each for host, compute stream and
// communication stream; buckets labelled with number and size; a flow from the operation that
// completes a bucket to its all-reduce. Times in microseconds from the start of the step.
// `simulation` is the recorded run of `program`.
std::string perfetto_trace(const std::string& name, const StepInput& input, const Program& program,
                           const Simulation& simulation);

}  // namespace bucketwise
