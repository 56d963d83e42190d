// The rows of `bucketwise bench allreduce`, `allgather` and `reducescatter`: measured, simulated
// and published, by algorithm, size and number of ranks.
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
    std::string algorithm;  // by its name in --algorithms
    auto operator<=>(const AllReducePlace&) const = default;
};

struct SimulatedAllReduce {
    double time_us = 0;
    // Message and scratch; none: unknown for this algorithm.
    std::optional<std::int64_t> added_memory_bytes = {};
    std::optional<std::int64_t> peak_memory_bytes = {};  // with the process itself, where known
    std::optional<double> largest_difference = {};       // for the message that ranks here measure
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
    // All rounds in one record: every sample, the largest difference, the most memory.
    std::optional<CollectiveRecord> measured = {};
    std::optional<SimulatedAllReduce> simulated = {};
    std::optional<PublishedAllReduce> published = {};
};

// Reads a published table, a CSV file of one of three forms, known by its columns:
//   comparison, world_size, tensor_elements, ring_max_s, other_max_s, ...: two algorithms in a row,
//     `ring_vs_butterfly` (our direct) or `ring_vs_library`
//   backend, data_size_mb, time_s, std_s: a library by size, on 2 ranks; MB is 2^20 bytes; rows of
//     another backend than `backend` are left out
//   world_size, bytes, algorithm, time_s, ...: the output of --format csv
// Elements are of `dtype`. Throws InputError that names the line, and for a file without rows.
std::vector<PublishedAllReduce> read_published_all_reduces(const std::string& path, DType dtype,
                                                           const std::string& backend);

}  // namespace bucketwise
