// In which order a run measures: in rounds, each of which measures every item once, in a seeded
// random order of its own, so that drift of the machine falls on all items alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "sim/base/hash.h"

namespace bucketwise {

struct MeasuringOrder {
    std::int64_t rounds = 1;  // that are kept; one more before them may warm up
    std::uint64_t seed = 0;
    bool operator==(const MeasuringOrder&) const = default;
};

// Bits that depend on the seed, the round and the item alone. Each part is mixed before the next
// one joins, so that no two of them can stand for each other.
inline std::uint64_t seeded_bits(std::uint64_t seed, std::int64_t round, std::int64_t item) {
    const std::uint64_t with_round =
        mixed_bits(mixed_bits(seed) ^ static_cast<std::uint64_t>(round));
    return mixed_bits(with_round ^ static_cast<std::uint64_t>(item));
}

// Indices of `items` items, the same on every machine and with every compiler: by Fisher and Yates,
// as std::shuffle's result differs between standard libraries.
inline std::vector<std::int32_t> order_of_round(std::size_t items, std::uint64_t seed,
                                                std::int64_t round) {
    std::vector<std::int32_t> order(items);
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t left = order.size(); left > 1; --left) {
        const std::uint64_t bits = seeded_bits(seed, round, static_cast<std::int64_t>(left));
        std::swap(order[left - 1], order[bits % left]);
    }
    return order;
}

}  // namespace bucketwise
