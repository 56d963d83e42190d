// The gradients of a traced run, how large they are and what they are called; the all-reduces of
// them among what it communicates, and what the wire takes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "import/run/traced_run.h"
#include "import/source/findings.h"
#include "sim/link/network/algorithm.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// One all-reduce of gradients, alike in every step.
struct TracedAllReduce {
    static constexpr CollectiveKind kind = CollectiveKind::all_reduce;
    Bytes bytes;
    Duration start{0};                 // median over the steps, from the start of the step
    std::vector<double> wire_us = {};  // estimates of what it takes once every rank is there
    std::int32_t blocks = -1;          // thread blocks of its kernel; -1: not said
    bool operator==(const TracedAllReduce&) const = default;
};

// What travels, by c10d's name of it: float32 where that is not said; none: no gradient is so.
std::optional<DType> travelling_dtype(const TracedCollective& collective);

// Sets the run's group, that which moves most in backward, and whether it has a map of unused
// parameters.
void find_group(TracedRun& run, Findings& findings);

// DDP's map of unused parameters: an int32 for each parameter, all-reduced when all are ready. On a
// GPU from the host's memory.
bool is_unused_map(const TracedStep& step, const TracedCollective& collective);

// An all-reduce of gradients: in backward, of the run's group.
bool is_reduction(const TracedRun& run, const TracedStep& step, const TracedCollective& collective);

// The step's, as issued.
std::vector<const TracedCollective*> reductions(const TracedRun& run, const TracedStep& step);

// In the order they were issued, without wire times. Throws InputError where steps differ.
std::vector<TracedAllReduce> all_reduces_of(const TracedRun& run);

// 2 where neither a trace nor `requested` tells, 1 without all-reduces, and that is said. Throws
// InputError where both tell, and differently.
std::int64_t number_of_ranks(const TracedRun& run, std::optional<std::int64_t> requested,
                             Findings& findings);

// Whether the ranks' traces are of the same steps.
bool same_steps(const TracedRun& run);

// What the k-th all-reduce of the s-th step took each rank, or the one rank whose steps stand for
// all; those of which it is known.
std::vector<Duration> times_of(const TracedRun& run, std::size_t k, std::size_t s, bool all_ranks);

// Once all ranks are there, the last to arrive sees nothing but the wire: so the shortest of the
// ranks' times, by step; where not all ranks were traced, of all steps.
std::vector<double> wire_estimates(const std::vector<std::vector<Duration>>& times_by_step,
                                   bool all_ranks);

// How what the wire takes was told of collectives that are called so: of all ranks, or of some.
void report_wire_times(const TracedRun& run, std::int64_t ranks, bool any, bool all_ranks,
                       const char* collective, Findings& findings);

void find_wire_times(const TracedRun& run, std::int64_t ranks,
                     std::vector<TracedAllReduce>& all_reduces, Findings& findings);

// By readiness, with names and sizes. `model` has them as the user knows them: without gradients
// the trace has to tell the sizes. Throws InputError where nothing tells them, and where the
// model's are others.
std::vector<Gradient> traced_gradients(const TracedRun& run, const Workload& model,
                                       Findings& findings);

// Where no event has an all-reduce's size: DDP launches a bucket as its last gradient is ready.
// With the sizes it is told which all-reduces are the gradients', and so their dtype.
void complete_sizes(TracedRun& run, std::vector<Gradient>& gradients, Findings& findings);

// With find_unused_parameters buckets also hold what has no gradient in the step: what the
// all-reduces move beyond the gradients is counted to the last gradient of each.
void add_unused(const TracedRun& run, std::vector<Gradient>& gradients, Findings& findings);

// Says whether the all-reduces hold these gradients, in the order of readiness.
void check_sums(const TracedRun& run, const std::vector<Gradient>& gradients, Findings& findings);

}  // namespace bucketwise
