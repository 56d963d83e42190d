// How far apart the ranks of one run come to their all-reduces.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "import/collectives/collective_log.h"
#include "import/collectives/gradient_steps.h"
#include "import/source/findings.h"
#include "sim/base/units.h"

namespace bucketwise {

// A rank's log and its steps.
struct LoggedRank {
    const CollectiveLog* log = nullptr;
    GradientSteps gradients = {};
};

// What each all-reduce of the first rank's steps took every rank that has it, matched by its number
// in the group: by step, then by all-reduce, then by rank. Where a rank's log has no duration of
// it, the rank is left out.
std::vector<std::vector<std::vector<Duration>>> durations_by_step(
    const std::vector<LoggedRank>& ranks);

// How much the times at which ranks come to a step's last all-reduce vary, as a standard deviation
// of one rank. By what all-reduces take each rank where that is known, as all end together; else by
// the hosts' clocks, of which each one's median offset is taken out but where `same_host`. None:
// the logs do not tell. Says what was seen.
std::optional<Duration> arrival_deviation(const std::vector<LoggedRank>& ranks, bool same_host,
                                          Findings& findings);

}  // namespace bucketwise
