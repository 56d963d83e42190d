// A timeline: what ran when on which track of which rank.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/units.h"
#include "sim/program/program.h"

namespace bucketwise {

enum class Track : std::uint8_t { host, compute, communication };

struct Span {
    Duration start{0};
    Duration end{0};
    std::int32_t rank = 0;
    // Index into Program::instructions; on the communication track into Program::collectives.
    std::int32_t subject = 0;
    Track track = Track::compute;
    bool operator==(const Span&) const = default;
};

struct Timeline {
    std::vector<Span> spans;  // in the order they ended
    bool operator==(const Timeline&) const = default;
};

// FNV-1a over every field of every span: equal on every machine and at every optimisation level.
std::uint64_t hash_of(const Timeline& timeline);

}  // namespace bucketwise
