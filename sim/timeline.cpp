#include "sim/timeline.h"

namespace bucketwise {
namespace {

void mix(std::uint64_t& hash, std::int64_t value) {
    constexpr std::uint64_t fnv_prime = 1099511628211ULL;
    for (int shift = 0; shift < 64; shift += 8) {
        hash = (hash ^ ((static_cast<std::uint64_t>(value) >> shift) & 0xffU)) * fnv_prime;
    }
}

}  // namespace

std::uint64_t hash_of(const Timeline& timeline) {
    constexpr std::uint64_t fnv_offset_basis = 14695981039346656037ULL;
    std::uint64_t hash = fnv_offset_basis;
    for (const Span& span : timeline.spans) {
        mix(hash, span.start.count());
        mix(hash, span.end.count());
        mix(hash, span.rank);
        mix(hash, span.subject);
        mix(hash, static_cast<std::int64_t>(span.track));
    }
    return hash;
}

}  // namespace bucketwise
