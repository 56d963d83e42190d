// Link parameters: what calibrate writes and predict reads. Latency and bandwidth per segment of
// message size, what a collective costs to launch, and how it disturbs computing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/caveat.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/link/network/algorithm.h"
#include "sim/link/network/topology.h"

namespace bucketwise {

// Processors of one machine that ranks may share.
constexpr std::int64_t most_processors = 65536;

// Thread blocks that a collective may use on a GPU.
constexpr std::int64_t most_thread_blocks = 1024;

// All pieces of a link's interference: a list by size for each number of thread blocks measured.
constexpr std::size_t most_interference_segments = 1024;

// How sure a fit is of a segment: standard errors, and how the two errors go together.
struct SegmentErrors {
    double latency_us = 0;
    double bandwidth_gb_per_s = 0;
    double correlation = 0;  // of both estimates, -1 to 1
    bool operator==(const SegmentErrors&) const = default;
};

// Serves messages up to `up_to`, the last segment all larger. The message is the collective's whole
// buffer on one rank, as nccl-tests counts its size, not the chunk of one step.
struct Segment {
    std::optional<Bytes> up_to = {};
    Duration latency{0};            // per step of the algorithm
    BytesPerSecond bandwidth = {};  // of the bytes on the wire, per rank
    std::optional<SegmentErrors> errors = {};
    bool operator==(const Segment&) const = default;
};

// How much slower each side runs while the other is active, and how much longer a collective takes
// that begins while something computes: on a GPU its thread blocks find no room at once.
struct Interference {
    std::int64_t compute_slowdown_ppm = undisturbed_ppm;
    std::int64_t communication_slowdown_ppm = undisturbed_ppm;
    Duration start_delay{0};
    bool operator==(const Interference&) const = default;
};

// Standard errors of them.
struct InterferenceErrors {
    double compute_slowdown = 0;
    double communication_slowdown = 0;
    double start_delay_us = 0;
    bool operator==(const InterferenceErrors&) const = default;
};

// Parts of compute_slowdown_ppm: matrix products, and all other operations.
struct SlowdownsOfComputing {
    std::int64_t product_ppm = undisturbed_ppm;
    std::int64_t rest_ppm = undisturbed_ppm;
    bool operator==(const SlowdownsOfComputing&) const = default;
};

// The interference of collectives of up to `up_to`, the last segment's of all larger ones. With
// `ctas`, of collectives that use so many thread blocks: the segments of as many form a group.
struct InterferenceSegment {
    std::optional<Bytes> up_to = {};
    Interference slowdown = {};
    std::optional<InterferenceErrors> errors = {};
    std::optional<std::int64_t> ctas = {};
    // Empty: not measured apart. `slowdown` has the mixture of the workload that was measured.
    std::optional<SlowdownsOfComputing> computing = {};
    bool operator==(const InterferenceSegment&) const = default;
};

// Where the numbers are from. Shown to the user, never computed with, but that a prediction beyond
// `ranks` or the range of messages says so.
struct Provenance {
    std::string backend;
    std::optional<std::int64_t> ranks;
    std::optional<Bytes> smallest_message;
    std::optional<Bytes> largest_message;
    std::string hardware;
    std::string versions;
    std::string date;
    std::optional<std::int64_t> samples;
    std::string source;  // the file, table or command behind the numbers
    bool operator==(const Provenance&) const = default;
};

// How long an all-reduce of so many bytes takes, found by simulating its messages.
struct SimulatedTime {
    Bytes bytes;
    Duration time{0};
    bool operator==(const SimulatedTime&) const = default;
};

// Measured numbers of one kind of collectives: costs in place of the link's segments and launch
// (meeting, messages and processors stay the link's), and how they disturb computing. Both empty:
// the link's own numbers count.
struct OwnNumbers {
    std::vector<Segment> segments = {};  // empty where tiers or a topology say the cost
    Duration launch{0};                  // with the segments
    std::vector<InterferenceSegment> interference = {};
    bool operator==(const OwnNumbers&) const = default;
};

// Segments, two tiers (hierarchical) or a topology give the cost of a collective.
struct LinkParameters {
    std::string name;
    Algorithm algorithm = Algorithm::ring;
    std::vector<Segment> segments;
    std::vector<LinkParameters> tiers;  // {intra-node, inter-node}
    std::optional<Topology> topology = {};
    // By rising size, where only its messages can tell what a collective takes on the topology:
    // for the number of ranks it was prepared for. Linear between sizes.
    std::vector<SimulatedTime> simulated = {};
    Duration launch{0};      // part of every collective's time on the communication stream
    Duration meeting{0};     // once besides, where there is a rank to wait for
    Duration message{0};     // sending one message, while the sender can send no other
    Duration host_issue{0};  // host time to issue one collective
    Duration host_wait{0};   // host time to wait for one, where waiting does not block the host
    // Those of the one machine on which all ranks run and send by copying; none: each has its own.
    std::optional<std::int64_t> processors = {};
    // Empty: not known, and none until something is assumed (sim/link/assumed_interference.h). All
    // segments have ctas, groups by rising number of them, or none has.
    std::vector<InterferenceSegment> interference;
    bool assumes_interference = false;  // it is no measurement
    OwnNumbers all_gather = {};
    OwnNumbers reduce_scatter = {};
    std::optional<std::int64_t> ctas = {};         // thread blocks of one collective
    std::optional<BytesPerSecond> copy_bandwidth;  // payload copied into or out of a bucket
    Provenance provenance;
    std::vector<Caveat> caveats = {};  // what whoever wrote the file knew to be weak in it
    std::string preset = {};  // that it was named as (sim/link/link_presets.h); empty: none
    bool operator==(const LinkParameters&) const = default;
};

// Null: the kind never has numbers of its own.
const OwnNumbers* own_numbers(CollectiveKind kind, const LinkParameters& link);

// Cost of such a collective: its own numbers, or else the link's.
Duration launch_for(CollectiveKind kind, const LinkParameters& link);
// Precondition (asserted): the link has segments.
const Segment& segment_for(CollectiveKind kind, const LinkParameters& link, Bytes message);

// How a collective of that message and computing slow each other, by its own numbers or else the
// link's. With groups by thread blocks, the factors are linear between the two nearest groups, and
// the nearest group's beyond them. Precondition (asserted): a link with such groups says how many
// thread blocks it uses.
Interference interference_for(CollectiveKind kind, const LinkParameters& link, Bytes message);

inline bool has_cta_groups(const std::vector<InterferenceSegment>& interference) {
    return !interference.empty() && interference.front().ctas.has_value();
}

// Calls `use` with every segment of the link itself, its tiers' not, and with every piece of its
// interference.
template <typename Link, typename Use>
void for_each_segment(Link& link, Use use) {
    for (auto* segments :
         {&link.segments, &link.all_gather.segments, &link.reduce_scatter.segments}) {
        std::for_each(segments->begin(), segments->end(), use);
    }
}
template <typename Link, typename Use>
void for_each_interference(Link& link, Use use) {
    for (auto* interference :
         {&link.interference, &link.all_gather.interference, &link.reduce_scatter.interference}) {
        std::for_each(interference->begin(), interference->end(), use);
    }
}

// Whether any collective with that interference, or on that link, and computing slow each other.
bool interferes(const std::vector<InterferenceSegment>& interference);
bool interferes(const LinkParameters& link);

// Where matrix products and the rest were measured apart, sets the slowdown of computing that
// spends `share` of its time in products.
void set_product_share(double share, LinkParameters& link);

// Interference that does not depend on the message.
std::vector<InterferenceSegment> constant_interference(const Interference& slowdown);

// As a link file holds it. read_link() reads it back as it was, but for texts that are longer
// than it allows: they are cut. Numbers are as short as that permits.
Json link_json(const LinkParameters& link);

}  // namespace bucketwise
