// Going on with a file that an earlier run of `bucketwise measure` left.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/ranks/measure_rank.h"
#include "hw/record/measurement.h"

namespace bucketwise {

// Throws InputError unless the records are of a run like the one that is asked for, one environment
// at least: the same ranks, transport, link rate, seed and scenario.
void check_same_run(const MeasureOptions& options, const std::vector<Measurement>& records);

// What is left to do: 1 for every item that has no record in a round yet, else 0, round by round,
// items in their order.
std::vector<std::int64_t> open_positions(const MeasureOptions& options,
                                         const std::vector<Measurement>& records);

}  // namespace bucketwise
