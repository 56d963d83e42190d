// The costs of overlapping collectives with computing where nobody measured them: from none to the
// strongest that public measurements show. Evidence and limits: docs/decisions/overlap_costs.md.
#pragma once

#include <array>

#include "sim/base/units.h"
#include "sim/link/link.h"

namespace bucketwise {

// Each cost from 0, none, over 0.5, as assumed (sim/link/assumed_interference.h), to 1, the
// strongest; linear on both sides of 0.5.
struct OverlapPlace {
    double of_computing = 0.5;   // its slowdown while bytes travel
    double of_collective = 0.5;  // the slowdown of a collective's bytes beside computing
    double of_each = 0.5;        // the fixed costs of each collective
    bool operator==(const OverlapPlace&) const = default;
};

// Both ends of the costs of a byte and of a collective.
constexpr std::array<OverlapPlace, 4> overlap_ends{{{0, 0, 0}, {0, 0, 1}, {1, 1, 0}, {1, 1, 1}}};

// Precondition (asserted): the place lies between both ends.
Interference at_place(const Interference& assumed, const OverlapPlace& place);

// Computing that each collective costs once, whatever its size.
Duration computing_lost(const OverlapPlace& place);

// The factor on the host's time to issue a collective. It is never 0: a host always issues.
double host_issue_factor(const OverlapPlace& place);

// The host's time to issue a collective where a link does not say it: PyTorch's reducer in C++, or
// hooks in Python.
constexpr Duration issued_by_reducer = std::chrono::microseconds(10);
constexpr Duration issued_by_hooks = std::chrono::microseconds(48);

}  // namespace bucketwise
