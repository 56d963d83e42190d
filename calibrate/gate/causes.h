// Why a step takes longer than it did, from the observations of both sides alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/gate/gate_run.h"
#include "sim/base/names.h"

namespace bucketwise {

enum class CauseKind : std::uint8_t {
    slower_link,     // collectives of the same sizes take longer
    late_gradient,   // a bucket waits for one, though no more is computed
    more_copies,     // into buckets and out of them
    launch_bound,    // the device waits for the host's launches
    more_computing,  // computing takes longer
    waiting,         // for other ranks or other streams
    other_buckets,   // gradients are bucketed otherwise
    more_exposed     // collectives of steps without buckets, as sharded ones, are waited for longer
};

template <>
inline constexpr auto names_of<CauseKind> = names("slower_link", "late_gradient", "more_copies",
                                                  "launch_bound", "more_computing", "waiting",
                                                  "other_buckets", "more_exposed");

struct GateCause {
    CauseKind kind = CauseKind::more_computing;
    double step_ms = 0;                      // extra time of the step; 0: unknown
    std::optional<std::size_t> bucket = {};  // in launch order, from 0
    std::string gradient = {};
    std::string text;  // a sentence without its end
    bool operator==(const GateCause&) const = default;
};

// The causes that are beyond chance in 99 of 100 cases and explain a fifth or more of the step's
// extra time (`longer_ms`), the largest first. The costs of communication are separated by the
// recurrence of one stream, start = max(ready, end of the one before), with the times of one side
// in place of the other's. Precondition: both have runs.
std::vector<GateCause> causes_of(const GateCase& before, const GateCase& after, double longer_ms);

}  // namespace bucketwise
