// How late the ranks of a run come to its all-reduces, as traces of several of them tell.
#pragma once

#include <cstddef>
#include <vector>

#include "import/replay/traced_run.h"
#include "import/source/findings.h"
#include "sim/base/units.h"

namespace bucketwise {

// Whether the ranks' traces are of the same steps.
bool same_steps(const TracedRun& run);

// What the k-th all-reduce of the s-th step took each rank, or the one rank whose steps stand for
// all; those of which it is known.
std::vector<Duration> times_of(const TracedRun& run, std::size_t k, std::size_t s, bool all_ranks);

// Says how far apart the ranks come to each all-reduce, and sets the run's rank_spread where steps
// tell it. All of it from how long all-reduces last on each rank: they end together, so that who
// comes first is in them for longest, whatever clock each rank has.
void find_arrival(TracedRun& run, std::size_t all_reduces, Findings& findings);

}  // namespace bucketwise
