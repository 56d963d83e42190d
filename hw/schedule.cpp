#include "hw/schedule.h"

#include <numeric>
#include <utility>

namespace bucketwise {

std::string_view name_of(Protocol protocol) {
    switch (protocol) {
        case Protocol::all_reduce:
            return "allreduce";
        case Protocol::compute:
            return "compute";
        case Protocol::contention:
            return "contention";
        case Protocol::step:
            return "steps";
    }
    return {};
}

// SplitMix64's output function, applied to each part in turn.
std::uint64_t seeded_bits(std::uint64_t seed, std::int64_t round, std::int64_t item) {
    std::uint64_t bits = seed;
    for (const std::int64_t part : {round, item}) {
        bits += 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(part);
        bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9ULL;
        bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111ebULL;
        bits ^= bits >> 31U;
    }
    return bits;
}

// Fisher and Yates. std::shuffle's result differs between standard libraries.
std::vector<std::int32_t> order_of_round(const Schedule& schedule, std::int64_t round) {
    std::vector<std::int32_t> order(schedule.items.size());
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t left = order.size(); left > 1; --left) {
        const std::uint64_t bits =
            seeded_bits(schedule.seed, round, static_cast<std::int64_t>(left));
        std::swap(order[left - 1], order[bits % left]);
    }
    return order;
}

}  // namespace bucketwise
