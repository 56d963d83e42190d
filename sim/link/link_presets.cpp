#include "sim/link/link_presets.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/transformed.h"
#include "sim/text/edit_distance.h"

namespace bucketwise {
namespace {

// Ranges are slow, typical, fast.
//
// NCCL 2.28 (src/graph/topo.h) counts an NVLink as 20 GB/s on sm70 and sm80, 20.6 on sm90 and 40.1
// on sm100: 6, 12, 18 and 18 of them. The fast end is that, the slow end a node whose links or NVLS
// do not all work as they should. InfiniBand: about 94 % of a NIC's rate arrive.
constexpr PresetRange nvlink_v100{95, 118, 132};
constexpr PresetRange nvlink_a100{195, 235, 240};
constexpr PresetRange nvlink_h100{275, 365, 371};
constexpr PresetRange nvlink_b200{540, 710, 800};
constexpr PresetRange infiniband_us{6, 2, 1.5};
constexpr PresetRange efa_us{30, 20, 15};
// Launch time of a collective on its stream beyond NCCL's constants: the smallest messages of
// nccl-tests, with a process for each GPU and with one for all, which is slower.
constexpr PresetRange launching_us{16, 7, 0.5};
constexpr PresetRange launching_on_grace_us{10, 1, 0};
constexpr PresetRange launching_sockets_us{60, 20, 10};
// Factors from NCCL's model to the clock, as docs/links.md has them.
constexpr PresetRange clock_ring_ll{1.3, 0.45, 0.3};
constexpr PresetRange clock_ring_ll_before_hopper{1.3, 0.7, 0.35};  // no measurement was at hand
constexpr PresetRange clock_nvls{2.2, 1.5, 1.1};
constexpr PresetRange clock_infiniband{2.3, 1.5, 1.1};
constexpr PresetRange clock_efa{2.4, 1.3, 1.0};
constexpr PresetRange clock_slingshot{2.6, 1.6, 1.1};
constexpr PresetRange clock_slingshot_a100{2.8, 1.65, 1.1};

// Channels of one node are what NCCL's search finds there, run twice: 12 of 20 GB/s with A100, 12
// of 30 with H100, 16 of 45 with B200 (src/graph/search.cc, ncclTopoCompute and
// ncclTopoDupChannels).
constexpr PresetNodes nvlink_nodes(GpuGeneration generation, PresetRange gpu) {
    return {.generation = generation,
            .fabric = Fabric::nvlink,
            .multicast = generation >= GpuGeneration::hopper,
            .channels = generation == GpuGeneration::volta       ? 12
                        : generation == GpuGeneration::blackwell ? 32
                                                                 : 24,
            .gpu_gb_per_s = gpu,
            .launch_us = launching_us,
            .ring_ll =
                generation < GpuGeneration::hopper ? clock_ring_ll_before_hopper : clock_ring_ll};
}

// On several nodes of 8 A100 with fewer NICs or of 8 H100 it finds one a NIC.
constexpr PresetNodes with_nics(PresetNodes nodes, PresetNics nics) {
    const bool one_a_nic = nodes.gpus == 8 && (nodes.generation == GpuGeneration::hopper ||
                                               nics.per_node < nodes.gpus);
    nodes.channels = one_a_nic ? 2 * nics.per_node : nodes.channels;
    nodes.nics = nics;
    return nodes;
}

constexpr PresetNodes pcie_nodes(GpuGeneration generation, PresetRange gpu) {
    return {.generation = generation,
            .fabric = Fabric::pcie,
            .channels = 4,
            .gpu_gb_per_s = gpu,
            .launch_us = launching_us,
            .ring_ll = clock_ring_ll};
}

// GPUs that reach each other by NVLink without a switch.
constexpr PresetNodes meshed(PresetNodes nodes, std::int64_t gpus) {
    nodes.gpus = gpus;
    nodes.multicast = false;
    return nodes;
}

constexpr PresetNodes on_grace(PresetNodes nodes) {
    nodes.cpu = HostCpu::arm;
    nodes.launch_us = launching_on_grace_us;
    return nodes;
}

constexpr PresetNodes on_amd(PresetNodes nodes) {
    nodes.cpu = HostCpu::amd;
    return nodes;
}

constexpr PresetNodes with_capability(PresetNodes nodes, std::int64_t capability) {
    nodes.compute_capability = capability;
    return nodes;
}

constexpr PresetNodes a100_nodes = nvlink_nodes(GpuGeneration::ampere, nvlink_a100);
constexpr PresetNodes h100_nodes = nvlink_nodes(GpuGeneration::hopper, nvlink_h100);
constexpr PresetNodes b200_nodes = nvlink_nodes(GpuGeneration::blackwell, nvlink_b200);
constexpr PresetNodes gh200_nodes =
    on_grace(meshed(nvlink_nodes(GpuGeneration::hopper, {290, 340, 360}), 4));

constexpr PresetNodes gb200_nodes() {
    PresetNodes nodes = on_grace(nvlink_nodes(GpuGeneration::blackwell, {430, 530, 710}));
    nodes.gpus = 72;
    return nodes;
}

constexpr PresetRing sockets(PresetRange step_us, PresetRange gb_per_s) {
    return {.hops = {{{}, {.step_us = step_us, .gb_per_s = gb_per_s}}},
            .launch_us = launching_sockets_us,
            .host_issue_us = 20};
}

// RCCL (src/graph/tuning.cc, rcclTuningModel, tuning=5; src/graph/topo.h, GFX94X_XGMI_WIDTH): hops
// of LL and Simple, 0.08 of the bandwidth with LL, seven links of 48 GB/s.
constexpr PresetRing rccl_mi300x{
    .hops = {{{.up_to = Bytes{256 << 10}, .step_us = {1.2, 0.8, 0.6}, .gb_per_s = {18, 27, 36}},
              {.step_us = {3.2, 2.1, 1.6}, .gb_per_s = {230, 310, 336}}}},
    .launch_us = {30, 15, 6},
    .host_issue_us = 10,
    .backend = "nccl",
    .most_ranks = 8};

// Between two sockets. NCCL (src/graph/topo.h) counts QPI as 6 GB/s each way (Broadwell), UPI as 10
// (Skylake) and 22 (Sapphire Rapids), EPYC's links as 16; a copy between GPUs through an Intel CPU
// as 6/5 of its bytes (INTEL_P2P_OVERHEAD). A ring of 8 GPUs crosses at least once each way, at
// worst at every hop: then four flows share a direction. Typical: UPI 10, halved by copies through
// host memory, which write each byte and read it.
constexpr double worst_between_sockets = 6.0 / 4 * 5 / 6;
constexpr double worst_between_new_sockets = 22.0 / 4 * 5 / 6;  // CPUs with PCIe 5.0
constexpr PresetRange pcie_between_sockets{worst_between_sockets, 5, 16.0 * 5 / 6};

constexpr std::string_view which_pcie_gen3 =
    "does `nvidia-smi topo -m` say SYS between GPUs? Then name pcie-sys; pcie-shm for GPUs without "
    "peer access; pcie-gen3-one-socket where it says PIX, PXB, PHB or NODE throughout";
constexpr std::string_view which_pcie_gen4 =
    "does `nvidia-smi topo -m` say SYS between GPUs? Then name pcie-sys; pcie-shm for GPUs without "
    "peer access; pcie-gen4-one-socket where it says PIX, PXB, PHB or NODE throughout";
constexpr std::string_view which_pcie_gen5 =
    "does `nvidia-smi topo -m` say PIX, PXB, PHB or NODE throughout? Then name "
    "pcie-gen5-one-socket; pcie-shm for GPUs without peer access";
constexpr std::string_view which_sockets =
    "does `nvidia-smi topo -m` say SYS between GPUs? The slow end is for two sockets";

// Name, GPU, what it is, its nodes or ring, source. A GH200's GPU is an H100 with more memory.
constexpr std::array<LinkPreset, 30> presets{{
    {"nvlink-v100-8", "V100", "one node of 8 V100, NVLink 2",
     nvlink_nodes(GpuGeneration::volta, nvlink_v100),
     "NCCL's 6 x 20 GB/s; no measurement was at hand"},
    {"nvlink-a100-8", "A100", "one node of 8 A100, NVLink 3", a100_nodes,
     "NCCL's 12 x 20 GB/s; published bus bandwidths are 200 to 240 GB/s"},
    {"nvlink-h100-8",
     "H100",
     "one node of 8 H100, NVLink 4 with NVLS",
     h100_nodes,
     "NCCL's 18 x 20.6 GB/s; published bus bandwidths are 360 (no NVLS) to 480 GB/s",
     {2, 11}},
    {"nvlink-h200-8", "H200", "one node of 8 H200, NVLink 4 with NVLS", h100_nodes,
     "as nvlink-h100-8: H200 has the same NVLink"},
    {"nvlink-b200-8",
     "B200",
     "one node of 8 B200, NVLink 5 with NVLS",
     b200_nodes,
     "NCCL's 18 x 40.1 GB/s; 730 at 1 GiB and 845 at 16 GiB in two published sets",
     {1, 6}},
    {"nvlink-gb200-72",
     "GB200",
     "GB200 NVL72: 72 GPUs, NVLink 5 with NVLS",
     gb200_nodes(),
     "one published log of 72 GPUs, 512 MiB to 8 GiB",
     {1, 10}},
    {"mi300x-8", "MI300X", "one node of 8 MI300X, Infinity Fabric, RCCL", rccl_mi300x,
     "RCCL's 7 x 48 GB/s and its constants of a ring; no measurement was at hand"},
    {"pcie-gen3",
     "V100",
     "one node of up to 8 GPUs, PCIe 3.0 x16",
     pcie_nodes(GpuGeneration::volta, {worst_between_sockets, 9.5, 12}),
     "NCCL's 12 GB/s at best; the slow end is two sockets whose 8 GPUs all cross QPI",
     {},
     which_pcie_gen3},
    {"pcie-gen4",
     "A100",
     "one node of up to 8 GPUs, PCIe 4.0 x16",
     pcie_nodes(GpuGeneration::ampere, {worst_between_sockets, 19, 24}),
     "NCCL's 24 GB/s at best; published: 10 to 22 GB/s; the slow end is two sockets, as pcie-sys",
     {},
     which_pcie_gen4},
    {"pcie-gen5",
     "H100",
     "one node of up to 8 GPUs, PCIe 5.0 x16",
     pcie_nodes(GpuGeneration::hopper, {worst_between_new_sockets, 36, 48}),
     "NCCL's 48 GB/s at best; published: 28 to 45 GB/s; the slow end is two sockets on UPI",
     {},
     which_pcie_gen5},
    {"pcie-gen3-one-socket", "V100", "up to 8 GPUs behind one CPU, PCIe 3.0 x16",
     pcie_nodes(GpuGeneration::volta, {4, 9.5, 12}),
     "NCCL's 12 GB/s at best; less where GPUs share a switch or copy through host memory"},
    {"pcie-gen4-one-socket", "A100", "up to 8 GPUs behind one CPU, PCIe 4.0 x16",
     pcie_nodes(GpuGeneration::ampere, {8, 19, 24}),
     "NCCL's 24 GB/s at best; published: 10 to 22 GB/s, by peer access"},
    {"pcie-gen5-one-socket", "H100", "up to 8 GPUs behind one CPU, PCIe 5.0 x16",
     pcie_nodes(GpuGeneration::hopper, {20, 36, 48}),
     "NCCL's 48 GB/s at best; published: 28 to 45 GB/s, by peer access"},
    {"pcie-sys", "A100", "one node of up to 8 GPUs on two CPU sockets (SYS), PCIe",
     pcie_nodes(GpuGeneration::ampere, pcie_between_sockets),
     "NCCL's 6 to 16 GB/s between sockets, shared by up to four flows, halved by host memory"},
    {"pcie-shm",
     "L40S",
     "one node without peer access (L40S, L4, RTX), host memory",
     with_capability(pcie_nodes(GpuGeneration::ampere, {worst_between_sockets, 5.8, 14}), 89),
     "three published sets of 4 GPUs: 5.4, 5.5 and 7.3 GB/s; the slow end is two sockets",
     {1, 7.5},
     which_sockets},
    {"ib-hdr-200",
     "A100",
     "nodes of 8 A100, 8 HDR InfiniBand NICs each",
     with_nics(on_amd(a100_nodes), {.per_node = 8,
                                    .gb_per_s = {18, 23.5, 24.5},
                                    .us = infiniband_us,
                                    .clock = clock_infiniband}),
     "200 Gbit/s a NIC; typical is what 2 x 8 A100 reached in one published log",
     {1, 8}},
    {"ib-ndr-400", "H100", "nodes of 8 H100, 8 NDR InfiniBand NICs each",
     with_nics(
         h100_nodes,
         {.per_node = 8, .gb_per_s = {38, 47, 49}, .us = infiniband_us, .clock = clock_infiniband}),
     "400 Gbit/s a NIC, 94 % of it"},
    {"ib-ndr-400-b200", "B200", "nodes of 8 B200, 8 NDR InfiniBand NICs each",
     with_nics(
         b200_nodes,
         {.per_node = 8, .gb_per_s = {36, 47, 49}, .us = infiniband_us, .clock = clock_infiniband}),
     "400 Gbit/s a NIC, 94 % of it; EFA's 4 x 8 B200 reached 382 GB/s in one published table"},
    {"roce-100g", "A100", "nodes of 8 A100, one 100 Gbit/s RoCE NIC each",
     with_nics(a100_nodes, {.per_node = 1,
                            .gb_per_s = {7.5, 11, 12.1},
                            .us = {15, 5, 2.5},
                            .clock = clock_infiniband}),
     "100 Gbit/s a node; congestion control decides how much of it arrives"},
    {"efa-p4d", "A100", "AWS p4d: nodes of 8 A100, 4 x 100 Gbit/s EFA",
     with_nics(a100_nodes,
               {.per_node = 4, .gb_per_s = {8, 11, 12}, .us = efa_us, .clock = clock_efa}),
     "400 Gbit/s a node; latency as in one published log of p5"},
    {"efa-p5",
     "H100",
     "AWS p5: nodes of 8 H100, 3200 Gbit/s EFA",
     with_nics(on_amd(h100_nodes),
               {.per_node = 8, .gb_per_s = {36, 45, 49}, .us = efa_us, .clock = clock_efa}),
     "3200 Gbit/s a node; latency as in one published log of 2 x 8 H100",
     {1, 7}},
    {"gcp-tcpxo", "H100", "GCP a3-megagpu: nodes of 8 H100, 8 x 200 Gbit/s, TCPXO",
     with_nics(
         h100_nodes,
         {.per_node = 8, .gb_per_s = {15, 20.5, 24}, .us = {40, 20, 10}, .clock = {2.6, 1.6, 1.1}}),
     "1600 Gbit/s a node; no measurement was at hand"},
    {"slingshot-gh200",
     "H100",
     "nodes of 4 GH200, a 200 Gbit/s Slingshot NIC each",
     with_nics(gh200_nodes, {.per_node = 4,
                             .gb_per_s = {18, 23.5, 25},
                             .us = {6, 2.4, 1.5},
                             .path = NicPath::p2c,
                             .clock = clock_slingshot}),
     "five published logs of 1 to 256 nodes",
     {5, 14}},
    {"slingshot-a100",
     "A100",
     "nodes of 4 A100, 2 or 4 Slingshot NICs of 200 Gbit/s",
     with_nics(on_amd(meshed(a100_nodes, 4)), {.per_node = 4,
                                               .gb_per_s = {8, 9.25, 23.5},
                                               .us = {6, 2.4, 1.5},
                                               .path = NicPath::phb,
                                               .clock = clock_slingshot_a100}),
     "typical: one published log of 8 nodes with 2 NICs; fast: 4 NICs",
     {1, 17}},
    {"eth-1g", "", "1 Gbit/s Ethernet, one rank a host, sockets",
     sockets({150, 50, 25}, {0.105, 0.117, 0.1185}),
     "94 % of the line's rate is TCP's payload; steps of 25 to 150 us are kernels'"},
    {"eth-10g", "", "10 Gbit/s Ethernet, one rank a host, sockets",
     sockets({80, 30, 15}, {0.8, 1.15, 1.185}),
     "94 % of the line's rate is TCP's payload; less with small frames or few sockets"},
    {"eth-25g", "", "25 Gbit/s Ethernet, one rank a host, sockets",
     sockets({80, 30, 15}, {1.6, 2.6, 2.95}),
     "what several sockets get through a kernel; one alone is at the slow end"},
    {"eth-100g", "", "100 Gbit/s Ethernet, one rank a host, sockets",
     sockets({80, 30, 15}, {3, 6.5, 11}),
     "what sockets get through a kernel; RDMA (roce-100g) is faster"},
    {"wan-1gbit-20ms", "", "two or more sites, 1 Gbit/s, 20 ms there and back",
     sockets({15000, 10000, 10000}, {0.03, 0.1, 0.117}),
     "half the round trip a step; loss and TCP's window decide the bandwidth"},
    {"wan-100mbit-50ms", "", "two or more sites, 100 Mbit/s, 50 ms there and back",
     sockets({35000, 25000, 25000}, {0.005, 0.0112, 0.0118}),
     "half the round trip a step; loss and TCP's window decide the bandwidth"},
}};

double at(const PresetRange& range, PresetEnd end) {
    return range[static_cast<std::size_t>(end)];
}

Topology topology_of(const PresetNodes& nodes, PresetEnd end) {
    Topology topology;
    RegularTopology& regular = topology.regular.emplace();
    regular.node = {.gpus = nodes.gpus,
                    .fabric = nodes.fabric,
                    .multicast = nodes.multicast,
                    .bandwidth = bandwidth_from_gb_per_s(at(nodes.gpu_gb_per_s, end))};
    NcclSettings& nccl = topology.nccl.emplace();
    nccl.generation = nodes.generation;
    nccl.channels = nodes.channels;
    nccl.compute_capability = nodes.compute_capability;
    nccl.cpu = nodes.cpu;
    nccl.clock.ring_ll = at(nodes.ring_ll, end);
    nccl.clock.nvls = at(clock_nvls, end);
    if (nodes.nics.per_node > 0) {
        regular.nics = {.per_node = nodes.nics.per_node,
                        .latency = duration_from_us(at(nodes.nics.us, end)),
                        .bandwidth = bandwidth_from_gb_per_s(at(nodes.nics.gb_per_s, end)),
                        .path = nodes.nics.path};
        nccl.clock.network = at(nodes.nics.clock, end);
    }
    return topology;
}

std::vector<Segment> segments_of(const PresetRing& ring, PresetEnd end) {
    std::vector<Segment> segments;
    for (const PresetHop& hop : ring.hops) {
        if (at(hop.gb_per_s, end) > 0) {
            segments.push_back({.up_to = hop.up_to,
                                .latency = duration_from_us(at(hop.step_us, end)),
                                .bandwidth = bandwidth_from_gb_per_s(at(hop.gb_per_s, end))});
        }
    }
    return segments;
}

}  // namespace

std::span<const LinkPreset> link_presets() {
    return presets;
}

bool looks_like_preset(std::string_view name) {
    return !name.empty() && name.find('/') == std::string_view::npos &&
           name.find(".json") == std::string_view::npos;
}

const LinkPreset* find_preset(std::string_view name) {
    const auto* const found = std::find_if(presets.begin(), presets.end(),
                                           [&](const LinkPreset& p) { return p.name == name; });
    return found == presets.end() ? nullptr : &*found;
}

std::vector<std::string_view> nearest_presets(std::string_view name) {
    constexpr std::size_t most = 3;
    constexpr std::size_t longest = 64;  // no longer name is near any
    std::vector<std::pair<std::size_t, std::string_view>> by_distance;
    for (const LinkPreset& preset : presets) {
        // A name left out at one end is no mistake.
        const bool part = !name.empty() && preset.name.find(name) != std::string_view::npos;
        by_distance.emplace_back(part ? 0 : edit_distance(name.substr(0, longest), preset.name),
                                 preset.name);
    }
    std::stable_sort(by_distance.begin(), by_distance.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    by_distance.resize(most);
    return transformed(by_distance, [](const auto& near) { return near.second; });
}

LinkParameters preset_link(const LinkPreset& preset, PresetEnd end) {
    const std::string name(preset.name);
    LinkParameters link;
    link.name =
        end == PresetEnd::typical ? name : fmt::format("{}, {} end", preset.name, name_of(end));
    link.provenance.source = fmt::format("{}{}", prior_source, preset.source);
    link.provenance.hardware = preset.what;
    link.preset = name;
    if (!preset.question.empty()) {
        link.caveats.push_back({std::string(preset.question)});
    }
    if (const auto* nodes = std::get_if<PresetNodes>(&preset.hardware)) {
        link.algorithm = Algorithm::nccl;
        link.topology = topology_of(*nodes, end);
        link.launch = duration_from_us(at(nodes->launch_us, end));
        link.host_issue = std::chrono::microseconds(10);
    } else {
        const auto& ring = std::get<PresetRing>(preset.hardware);
        link.segments = segments_of(ring, end);
        link.launch = duration_from_us(at(ring.launch_us, end));
        link.host_issue = duration_from_us(ring.host_issue_us);
        link.provenance.backend = ring.backend;
    }
    return link;
}

LinkParameters preset_end(const LinkPreset& preset, PresetEnd end, const LinkParameters& typical) {
    LinkParameters link = preset_link(preset, end);
    if (link.topology && link.topology->nccl && typical.topology && typical.topology->nccl) {
        link.topology->nccl->version = typical.topology->nccl->version;
    }
    link.ctas = typical.ctas;
    return link;
}

Json preset_document(const LinkPreset& preset) {
    const LinkParameters link = preset_link(preset, PresetEnd::typical);
    Json document = link_json(link);
    document["host_issue_us"] = link.host_issue / std::chrono::microseconds(1);  // without ".0"
    return document;
}

std::optional<std::int64_t> most_ranks_of(const LinkPreset& preset) {
    if (const auto* ring = std::get_if<PresetRing>(&preset.hardware)) {
        return ring->most_ranks;
    }
    const auto& nodes = std::get<PresetNodes>(preset.hardware);
    return nodes.nics.per_node == 0 ? std::optional(nodes.gpus) : std::nullopt;
}

const LinkPreset* preset_of_gpu(std::string_view gpu, std::int64_t ranks) {
    const auto* const found = std::ranges::find_if(presets, [&](const LinkPreset& preset) {
        return preset.gpu == gpu && ranks <= most_ranks_of(preset).value_or(ranks);
    });
    return found == presets.end() ? nullptr : &*found;
}

std::int64_t shown_ranks(const LinkPreset& preset) {
    const auto* nodes = std::get_if<PresetNodes>(&preset.hardware);
    return most_ranks_of(preset).value_or(nodes != nullptr ? 2 * nodes->gpus : 2);
}

std::string larger_presets(const LinkPreset& preset) {
    std::string names;
    const auto* nodes = std::get_if<PresetNodes>(&preset.hardware);
    for (const LinkPreset& other : presets) {
        const auto* larger = std::get_if<PresetNodes>(&other.hardware);
        if (nodes != nullptr && larger != nullptr && larger->nics.per_node > 0 &&
            larger->generation == nodes->generation && larger->fabric == nodes->fabric) {
            names += (names.empty() ? "" : ", ") + std::string(other.name);
        }
    }
    return names.empty() ? "none, of such GPUs" : names;
}

}  // namespace bucketwise
