// The lateness of ranks at all-reduces, by traces of several ranks.
#pragma once

#include <cstddef>

#include "import/run/traced_run.h"
#include "import/source/findings.h"

namespace bucketwise {

// Reports how far apart the ranks come to each all-reduce, and sets the run's rank_spread where
// steps tell it. Uses only the durations of all-reduces, so clocks may differ: all ranks end
// together, and the first to arrive is in them for longest.
void find_arrival(TracedRun& run, std::size_t all_reduces, Findings& findings);

}  // namespace bucketwise
