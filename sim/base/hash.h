// Bits that follow from what is hashed, equal on every machine and at every optimisation level.
#pragma once

#include <cstdint>
#include <string_view>

namespace bucketwise {

// Bits that look random, of a counter: SplitMix64's output function.
constexpr std::uint64_t mixed_bits(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31U);
}

// Fowler, Noll and Vo's hash of 64 bits, variant 1a: different when what is hashed is, but for
// accidents.
class FnvHash {
  public:
    constexpr void add(std::string_view text) {
        for (const char c : text) {
            add_byte(static_cast<unsigned char>(c));
        }
    }
    // Byte by byte from the least significant one.
    constexpr void add(std::int64_t value) {
        for (int shift = 0; shift < 64; shift += 8) {
            add_byte(static_cast<unsigned char>(static_cast<std::uint64_t>(value) >> shift));
        }
    }
    [[nodiscard]] constexpr std::uint64_t value() const { return hash_; }

  private:
    constexpr void add_byte(unsigned char byte) { hash_ = (hash_ ^ byte) * 0x100000001b3ULL; }

    std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

constexpr std::uint64_t fnv_hash(std::string_view text) {
    FnvHash hash;
    hash.add(text);
    return hash.value();
}

}  // namespace bucketwise
