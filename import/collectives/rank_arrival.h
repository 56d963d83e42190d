// The all-reduces of one run as its ranks logged them, and how far apart the ranks come to them.
#pragma once

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

// One all-reduce on each rank; null: the rank's log lacks it.
using OnRanks = std::vector<const LoggedCollective*>;

// The first rank's all-reduces, by step and in order, each matched by its number in the group.
std::vector<std::vector<OnRanks>> matched(const std::vector<LoggedRank>& ranks);

// The standard deviation of a rank's arrival at a step's last all-reduce. By the durations of
// all-reduces where they are known, as all ranks end together; else by the hosts' clocks, without
// each one's median offset unless `same_host`. Nothing where the logs do not tell. Reports arrival.
std::optional<Duration> arrival_deviation(const std::vector<LoggedRank>& ranks, bool same_host,
                                          Findings& findings);

}  // namespace bucketwise
