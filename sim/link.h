// Link parameters: what calibrate writes and predict reads. Latency and bandwidth per segment of
// message size, what a collective costs to launch, and how it disturbs computing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/units.h"

namespace bucketwise {

enum class Algorithm : std::uint8_t {
    ring,
    direct,
    recursive_halving_doubling,
    double_binary_tree,
    hierarchical
};

std::string_view name_of(Algorithm algorithm);

// Serves messages up to `up_to`, the last segment all larger. The message is the collective's whole
// buffer on one rank, as nccl-tests counts its size, not the chunk of one step.
struct Segment {
    std::optional<Bytes> up_to;
    Duration latency{0};       // per step of the algorithm
    BytesPerSecond bandwidth;  // of the bytes on the wire, per rank
    bool operator==(const Segment&) const = default;
};

// How much slower each side runs while the other is active.
struct Interference {
    std::int64_t compute_slowdown_ppm = undisturbed_ppm;
    std::int64_t communication_slowdown_ppm = undisturbed_ppm;
    bool operator==(const Interference&) const = default;
};

// Where the numbers are from. Shown to the user, never computed with but for `ranks`.
struct Provenance {
    std::string backend;
    std::optional<std::int64_t> ranks;
    std::string hardware;
    std::string versions;
    std::string date;
    std::optional<std::int64_t> samples;
    std::string source;  // the file, table or command behind the numbers
    bool operator==(const Provenance&) const = default;
};

struct LinkParameters {
    std::string name;
    Algorithm algorithm = Algorithm::ring;
    std::vector<Segment> segments;      // at least one, unless hierarchical
    std::vector<LinkParameters> tiers;  // hierarchical: {intra-node, inter-node}; else empty
    Duration launch{0};      // part of every collective's time on the communication stream
    Duration host_issue{0};  // host time to issue one collective
    Interference interference;
    std::optional<BytesPerSecond> copy_bandwidth;  // payload copied into or out of a bucket
    Provenance provenance;
    bool operator==(const LinkParameters&) const = default;
};

// Precondition (asserted): the link has segments.
const Segment& segment_for(const LinkParameters& link, Bytes message);

}  // namespace bucketwise
