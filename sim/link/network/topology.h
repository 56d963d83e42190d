// A topology: what connects the ranks of a cluster. Either regular, as clusters are built: nodes of
// GPUs, their NICs, tiers of a fat tree, sites; or a graph that lists every link.
//
// All links are full duplex. Bandwidths are per direction. A regular topology spreads the traffic
// of a tier evenly over its parallel links (ideal ECMP), so that all of these count as one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/names.h"
#include "sim/base/units.h"

namespace bucketwise {

enum class Fabric : std::uint8_t { nvlink, pcie };

template <>
inline constexpr auto names_of<Fabric> = names("nvlink", "pcie");

// GPUs of one node and what connects them: any two at the bandwidth of a GPU.
struct NodeTopology {
    std::int64_t gpus = 1;
    Fabric fabric = Fabric::nvlink;
    bool multicast = false;    // NVSwitch that reduces and multicasts (NVLink SHARP, NVLS)
    Duration latency{0};       // from GPU to GPU
    BytesPerSecond bandwidth;  // of one GPU into the fabric
    bool operator==(const NodeTopology&) const = default;
};

enum class GpuGeneration : std::uint8_t { volta, ampere, hopper, blackwell };

template <>
inline constexpr auto names_of<GpuGeneration> = names("volta", "ampere", "hopper", "blackwell");

// The last release of each: 2.18.5, 2.20.5, 2.23.4, 2.27.7, 2.28.9, 2.30.7.
enum class NcclVersion : std::uint8_t { v2_18, v2_20, v2_23, v2_27, v2_28, v2_30 };

template <>
inline constexpr auto names_of<NcclVersion> = names("2.18", "2.20", "2.23", "2.27", "2.28", "2.30");

enum class HostCpu : std::uint8_t { intel, amd, arm, power };

template <>
inline constexpr auto names_of<HostCpu> = names("intel", "amd", "arm", "power");

// How much longer collectives take than NCCL's model expects, which is made to choose among
// algorithms and not to tell the time. Their meaning: sim/link/network/nccl_clock.h.
struct NcclClock {
    double ring_ll = 0.45;
    double nvls = 1.5;
    double network = 1.5;
    bool operator==(const NcclClock&) const = default;
};

// Further inputs of NCCL's cost model.
struct NcclSettings {
    GpuGeneration generation = GpuGeneration::hopper;
    std::int64_t channels = 24;  // that a collective may use, each a thread block
    NcclVersion version = NcclVersion::v2_28;
    std::optional<std::int64_t> compute_capability = {};  // 86: 8.6; none: the generation's first
    HostCpu cpu = HostCpu::intel;
    bool collnet = false;  // switches between nodes that sum (SHARP), with a plugin that uses them
    NcclClock clock = {};
    bool operator==(const NcclSettings&) const = default;
};

// The compute capabilities of a generation: from this one up to the next generation's.
constexpr std::int64_t first_capability(GpuGeneration generation) {
    constexpr std::array<std::int64_t, every<GpuGeneration>.size()> first{70, 80, 90, 100};
    return first[static_cast<std::size_t>(generation)];
}

// The way of a GPU's data to its NIC, in NCCL's words (src/graph/topo.h): PCIe switches alone; the
// GPU's own link to its CPU (NVLink-C2C), and PCIe from there; the CPU's PCIe host bridge.
enum class NicPath : std::uint8_t { pxb, p2c, phb };

template <>
inline constexpr auto names_of<NicPath> = names("pxb", "p2c", "phb");

// Equal NICs, each serving gpus / per_node neighbouring GPUs.
struct NicTopology {
    std::int64_t per_node = 1;
    Duration latency{0};       // from GPU to GPU of two nodes, but for the switches between them
    BytesPerSecond bandwidth;  // of one NIC
    bool rails = false;        // NIC i of every node on switches of their own, rail i
    NicPath path = NicPath::pxb;
    bool operator==(const NicTopology&) const = default;
};

// Switches that connect `nodes` nodes, or in the second tier and up the groups below them.
struct TierTopology {
    std::string name;
    std::int64_t nodes = 1;       // below one switch of this tier, of a rail where there are rails
    Duration latency{0};          // of crossing it
    double oversubscription = 1;  // bandwidth from below / bandwidth to the next tier
    std::optional<std::int64_t> ports = {};  // of one switch, those to the next tier included
    bool operator==(const TierTopology&) const = default;
};

// Equal sites in a ring, each connected to two neighbours; traffic takes the shorter way.
struct SitesTopology {
    std::int64_t count = 2;
    Duration latency{0};       // from one site to the next
    BytesPerSecond bandwidth;  // between two sites
    bool operator==(const SitesTopology&) const = default;
};

struct RegularTopology {
    NodeTopology node;
    std::optional<NicTopology> nics;
    std::vector<TierTopology> tiers;  // from the nodes up, each a multiple of the one before
    std::optional<SitesTopology> sites;
    bool operator==(const RegularTopology&) const = default;
};

// One full-duplex link of a graph.
struct GraphLink {
    std::int32_t a = 0;  // ranks first, then switches
    std::int32_t b = 0;
    Duration latency{0};
    BytesPerSecond bandwidth;
    bool operator==(const GraphLink&) const = default;
};

// Traffic takes the way of least latency, among equals that of fewest links, then of the links that
// are listed first.
struct GraphTopology {
    std::int64_t ranks = 1;
    std::vector<std::string> names;  // of ranks, then of switches
    std::vector<GraphLink> links;
    bool operator==(const GraphTopology&) const = default;
};

// A GPU's own link, in both directions: slower than the topology says.
struct SlowRank {
    std::int64_t rank = 0;
    double bandwidth_factor = 1;  // above 0, up to 1
    Duration extra_latency{0};    // of every message it sends
    bool operator==(const SlowRank&) const = default;
};

// A constant stream of data of somebody else's, at most at `bandwidth`.
struct BackgroundFlow {
    std::int64_t from = 0;
    std::int64_t to = 0;
    BytesPerSecond bandwidth;
    bool operator==(const BackgroundFlow&) const = default;
};

struct Topology {
    std::optional<RegularTopology> regular;  // one of both
    std::optional<GraphTopology> graph;
    std::vector<SlowRank> slow_ranks;
    std::vector<BackgroundFlow> background;
    std::optional<NcclSettings> nccl;
    bool operator==(const Topology&) const = default;

    // Whether only message by message can tell what a collective takes.
    [[nodiscard]] bool irregular() const {
        return graph.has_value() || !slow_ranks.empty() || !background.empty();
    }
};

}  // namespace bucketwise
