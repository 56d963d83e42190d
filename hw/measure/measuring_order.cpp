#include "hw/measure/measuring_order.h"

#include <numeric>
#include <utility>

namespace bucketwise {

std::uint64_t seeded_bits(std::uint64_t seed, std::int64_t round, std::int64_t item) {
    // SplitMix64's output function. Each part is mixed before the next one joins, so that no two
    // of them can stand for each other.
    const auto mixed = [](std::uint64_t x) {
        x += 0x9e3779b97f4a7c15ULL;
        x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
        x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
        return x ^ (x >> 31U);
    };
    const std::uint64_t with_round = mixed(mixed(seed) ^ static_cast<std::uint64_t>(round));
    return mixed(with_round ^ static_cast<std::uint64_t>(item));
}

// Fisher and Yates. std::shuffle's result differs between standard libraries.
std::vector<std::int32_t> order_of_round(std::size_t items, std::uint64_t seed,
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
