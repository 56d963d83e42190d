// How long a rank spends in a step, and how far it has got in one.
#pragma once

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

    [[nodiscard]] Duration step() const { return forward + backward + optimizer; }
    [[nodiscard]] Duration& of(Phase phase) {
        return phase == Phase::forward ? forward : phase == Phase::backward ? backward : optimizer;
    }
};

// Where one rank stands between two programs of a step: what its host has issued has also run.
struct RankProgress {
    Duration host{0};    // when the host finished issuing
    Duration device{0};  // when the compute stream finished
    StepTimes times;     // of what came before
    bool operator==(const RankProgress&) const = default;
};

}  // namespace bucketwise
