// Bits that look random and are the same on every machine.
#pragma once

#include <cstdint>

namespace bucketwise {

// SplitMix64's output function on a counter.
constexpr std::uint64_t mixed_bits(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31U);
}

}  // namespace bucketwise
