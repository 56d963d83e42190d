// The rows of `bucketwise bench allreduce` and its like: what was measured, simulated and published
// of one algorithm, size and number of ranks.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hw/record/measurement.h"
#include "sim/base/dtype.h"
#include "sim/base/units.h"

namespace bucketwise {

struct AllReducePlace {
    std::int64_t ranks = 1;
    Bytes size;             // of the whole buffer on one rank
    std::string algorithm;  // as --algorithms names it
    auto operator<=>(const AllReducePlace&) const = default;
};

// All rounds.
struct MeasuredAllReduce {
    Transport transport;
    std::vector<double> samples_us;  // of the slowest rank
    double median_us = 0;
    double largest_difference = 0;       // of an element's mean from the exact one
    std::int64_t peak_memory_bytes = 0;  // of the rank with most
    std::optional<std::int64_t> memory_before_bytes = {};  // of that rank, before any message
};

struct SimulatedAllReduce {
    double time_us = 0;
    // Message and scratch; none: not known of this algorithm.
    std::optional<std::int64_t> added_memory_bytes = {};
    std::optional<std::int64_t> peak_memory_bytes = {};  // with the process itself, where known
    std::optional<double> largest_difference = {};       // of the message that ranks here measure
};

struct PublishedAllReduce {
    AllReducePlace place;
    std::optional<double> time_s = {};
    std::optional<double> std_s = {};
    std::optional<double> peak_memory_kib = {};
    std::optional<double> largest_difference = {};
};

struct AllReduceRow {
    AllReducePlace place;
    CollectiveKind kind = CollectiveKind::all_reduce;
    DType dtype = DType::float32;
    std::optional<MeasuredAllReduce> measured = {};
    std::optional<SimulatedAllReduce> simulated = {};
    std::optional<PublishedAllReduce> published = {};
};

}  // namespace bucketwise
