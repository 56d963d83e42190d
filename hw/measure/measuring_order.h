// In which order a run measures: in rounds, each of which measures every item once, in a seeded
// random order of its own, so that drift of the machine falls on all items alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bucketwise {

struct MeasuringOrder {
    std::int64_t rounds = 1;  // that are kept; one more before them may warm up
    std::uint64_t seed = 0;
    bool operator==(const MeasuringOrder&) const = default;
};

// Indices of `items` items. The same on every machine and with every compiler.
std::vector<std::int32_t> order_of_round(std::size_t items, std::uint64_t seed, std::int64_t round);

// Bits that depend on the seed, the round and the item alone.
std::uint64_t seeded_bits(std::uint64_t seed, std::int64_t round, std::int64_t item);

}  // namespace bucketwise
