// In which order a run measures: in rounds, each of which measures every item once, in a seeded
// random order of its own, so that drift of the machine falls on all items alike.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/units.h"

namespace bucketwise {

enum class Protocol : std::uint8_t {
    all_reduce,  // isolated all-reduces of one size
    compute,     // a step without any communication, operation by operation
    contention,  // all-reduces of one size while backward runs, against both alone
    step         // a whole step at one cap, and the same with free communication
};

std::string_view name_of(Protocol protocol);

struct Item {
    Protocol protocol = Protocol::step;
    Bytes message{0};  // all_reduce, contention
    std::optional<Bytes> cap =
        {};  // step; none: the framework's default, or the strategy has no cap
    // contention; most thread blocks of a collective; none: as many as in steps
    std::optional<std::int64_t> ctas = {};
    bool operator==(const Item&) const = default;
};

struct Schedule {
    std::vector<Item> items;
    std::int64_t rounds = 1;  // that are kept; one more before them warms up
    std::uint64_t seed = 0;
    bool operator==(const Schedule&) const = default;
};

// Indices into Schedule::items. The same on every machine and with every compiler.
std::vector<std::int32_t> order_of_round(const Schedule& schedule, std::int64_t round);

// Bits that depend on the seed, the round and the item alone.
std::uint64_t seeded_bits(std::uint64_t seed, std::int64_t round, std::int64_t item);

}  // namespace bucketwise
