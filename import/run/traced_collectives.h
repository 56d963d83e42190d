// The all-reduces of a traced run's gradients, with their wire times.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "import/run/traced_run.h"
#include "import/source/findings.h"

namespace bucketwise {

// Sets the run's group, the one that moves most in backward, and whether DDP reduces a map of
// unused parameters.
void find_group(TracedRun& run, Findings& findings);

// DDP's map of unused parameters: an int32 per parameter, all-reduced once all gradients are ready.
// On a GPU it comes from the host's memory.
bool is_unused_map(const TracedStep& step, const TracedCollective& collective);

// An all-reduce of gradients: in backward, of the run's group.
bool is_reduction(const TracedRun& run, const TracedStep& step, const TracedCollective& collective);

// The step's all-reduces of gradients, as issued.
std::vector<const TracedCollective*> reductions(const TracedRun& run, const TracedStep& step);

// The same for all steps, without wire times. Throws InputError where steps differ.
std::vector<TypicalCollective> all_reduces_of(const TracedRun& run);

// Assumes 2 where neither a trace nor `requested` tells, and 1 without all-reduces. Throws
// InputError where both tell, and differently.
std::int64_t number_of_ranks(const TracedRun& run, std::optional<std::int64_t> requested,
                             Findings& findings);

// Throws InputError unless `requested` is the number of ranks that the trace tells, or missing.
void check_requested_ranks(std::int64_t ranks, std::optional<std::int64_t> requested);

// The k-th all-reduce's time in the s-th step, on each rank where it is known: on all ranks, or on
// the primary one.
std::vector<Duration> times_of(const TracedRun& run, std::size_t k, std::size_t s, bool all_ranks);

// The last rank to arrive sees the wire alone: the shortest time over the ranks, by step. Where not
// all ranks were traced, the shortest of all steps.
std::vector<double> wire_estimates(const std::vector<std::vector<Duration>>& times_by_step,
                                   bool all_ranks);

// Reports how wire times of `collective` ("all-reduce") were found; `any`: there are some.
void report_wire_times(const TracedRun& run, std::int64_t ranks, bool any, bool all_ranks,
                       const char* collective, Findings& findings);

void find_wire_times(const TracedRun& run, std::int64_t ranks,
                     std::vector<TypicalCollective>& all_reduces, Findings& findings);

}  // namespace bucketwise
