// The trace of one real step of one rank, instruction by instruction.
#pragma once

#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/program/program.h"

namespace bucketwise {

struct Interval {
    Duration begin{0};  // from the start of the step
    Duration end{0};
    bool operator==(const Interval&) const = default;
    [[nodiscard]] Duration length() const { return end - begin; }
};

struct StepTrace {
    std::vector<Interval> instructions;  // parallel to Program::instructions
    std::vector<Interval> collectives;   // parallel to Program::collectives
    // When the host issued each instruction, parallel to Program::instructions; empty: the host
    // runs them itself, at the times above.
    std::vector<Interval> host = {};
    // Host time to launch each instruction, parallel to Program::instructions; empty but from
    // RankDevice::run_each().
    std::vector<Duration> launches = {};
    std::optional<Duration> graph_launch = {};  // host time to launch the whole step as one graph
    bool operator==(const StepTrace&) const = default;
};

struct MeasuredStep {
    Duration forward{0};  // with the broadcast of buffers
    Duration backward{0};
    Duration optimizer{0};
    Duration waiting{0};  // of these, blocked until a collective had ended
    // Part of backward: in the call that finishes synchronisation. On the device, from the end of
    // what backward and its hooks left there; and on the host, which may run ahead of it.
    Duration finishing{0};
    Duration finishing_host{0};
    bool operator==(const MeasuredStep&) const = default;
    [[nodiscard]] Duration step() const { return forward + backward + optimizer; }
};

// The time between the ends of two instructions counts to the phase of the later one.
// Precondition (asserted): one interval per instruction.
MeasuredStep summarize(const Program& program, const StepTrace& trace);

}  // namespace bucketwise
