// How late the ranks of a run come to its all-reduces, as traces of several of them tell.
#pragma once

#include <cstddef>

#include "import/run/traced_run.h"
#include "import/source/findings.h"

namespace bucketwise {

// Says how far apart the ranks come to each all-reduce, and sets the run's rank_spread where steps
// tell it. All of it from how long all-reduces last on each rank: they end together, so that who
// comes first is in them for longest, whatever clock each rank has.
void find_arrival(TracedRun& run, std::size_t all_reduces, Findings& findings);

}  // namespace bucketwise
