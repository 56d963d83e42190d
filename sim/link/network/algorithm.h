// Collectives and their algorithms.
#pragma once

#include <cstdint>

#include "sim/base/names.h"
#include "sim/base/units.h"

namespace bucketwise {

enum class CollectiveKind : std::uint8_t { all_reduce, all_gather, reduce_scatter, broadcast };

template <>
inline constexpr auto names_of<CollectiveKind> = names("all-reduce", "all-gather", "reduce-scatter",
                                                       "broadcast");

// An all-reduce is a reduce-scatter and an all-gather.
constexpr std::int64_t rounds_of(CollectiveKind kind) {
    return kind == CollectiveKind::all_reduce ? 2 : 1;
}

// The least that a rank must send, as a share of n (nccl-tests, PERFORMANCE.md), and the bus
// bandwidth that follows from it.
constexpr double bus_factor(CollectiveKind kind, std::int64_t ranks) {
    const double others = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
    return kind == CollectiveKind::broadcast ? 1 : static_cast<double>(rounds_of(kind)) * others;
}
constexpr double bus_gb_per_s(CollectiveKind kind, Bytes n, std::int64_t ranks, double us) {
    return bus_factor(kind, ranks) * static_cast<double>(n.count) / us / 1e3;
}

enum class Algorithm : std::uint8_t {
    ring,
    direct,
    recursive_halving_doubling,
    double_binary_tree,
    hierarchical,
    nvls,  // a switch that sums and multicasts (NVLink SHARP)
    nccl   // on a topology: whatever NCCL's cost model expects to be fastest
};

template <>
inline constexpr auto names_of<Algorithm> = names("ring", "direct", "recursive_halving_doubling",
                                                  "double_binary_tree", "hierarchical", "nvls",
                                                  "nccl");

}  // namespace bucketwise
