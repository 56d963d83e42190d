#include "sim/link/link_presets.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/edit_distance.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

// NCCL 2.28 (src/graph/topo.h) counts an NVLink as 20 GB/s on sm80, 20.6 on sm90 and 40.1 on sm100:
// 12, 18 and 18 of them. The fast end is that, the slow end a node whose links or NVLS do not all
// work as they should. InfiniBand: a NIC's rate, of which about 94 % arrive.
constexpr PresetRange nvlink_a100{195, 235, 240};
constexpr PresetRange nvlink_h100{275, 365, 371};
constexpr PresetRange nvlink_b200{540, 710, 722};
// What launching a collective takes on its stream. nccl-tests shows some 12 us more for its
// smallest messages than NCCL's constants add up to; CUDA graphs save most of it.
constexpr PresetRange launching_us{16, 10, 4};
constexpr PresetRange launching_sockets_us{60, 20, 10};
constexpr PresetRange infiniband_us{6, 2, 1.5};
constexpr PresetRange efa_us{30, 20, 15};

// Channels of one node are what NCCL's search finds there, run twice: 12 of 20 GB/s with A100, 12
// of 30 with H100, 16 of 45 with B200 (src/graph/search.cc, ncclTopoCompute and
// ncclTopoDupChannels).
constexpr PresetNodes nvlink_nodes(GpuGeneration generation, PresetRange gpu) {
    return {.generation = generation,
            .fabric = Fabric::nvlink,
            .multicast = generation != GpuGeneration::ampere,
            .channels = generation == GpuGeneration::blackwell ? 32 : 24,
            .gpu_gb_per_s = gpu};
}

// On several nodes of H100 with 8 NICs it finds one a NIC.
constexpr PresetNodes with_nics(PresetNodes nodes, std::int64_t nics, PresetRange gb_per_s,
                                PresetRange us) {
    nodes.channels = nodes.generation == GpuGeneration::hopper ? 16 : nodes.channels;
    nodes.nics = nics;
    nodes.nic_gb_per_s = gb_per_s;
    nodes.nic_us = us;
    return nodes;
}

constexpr PresetNodes pcie_nodes(GpuGeneration generation, PresetRange gpu) {
    return {.generation = generation, .fabric = Fabric::pcie, .channels = 4, .gpu_gb_per_s = gpu};
}

constexpr PresetNodes a100_nodes = nvlink_nodes(GpuGeneration::ampere, nvlink_a100);
constexpr PresetNodes h100_nodes = nvlink_nodes(GpuGeneration::hopper, nvlink_h100);

// Name, what it is, its nodes or sockets, source.
constexpr std::array<LinkPreset, 17> presets{{
    {"nvlink-a100-8", "one node of 8 A100, NVLink 3", a100_nodes,
     "NCCL's 12 x 20 GB/s; published bus bandwidths are 200 to 240 GB/s"},
    {"nvlink-h100-8", "one node of 8 H100, NVLink 4 with NVLS", h100_nodes,
     "NCCL's 18 x 20.6 GB/s; published bus bandwidths are 360 (no NVLS) to 480 GB/s"},
    {"nvlink-h200-8", "one node of 8 H200, NVLink 4 with NVLS", h100_nodes,
     "as nvlink-h100-8: H200 has the same NVLink"},
    {"nvlink-b200-8", "one node of 8 B200, NVLink 5 with NVLS",
     nvlink_nodes(GpuGeneration::blackwell, nvlink_b200),
     "NCCL's 18 x 40.1 GB/s; no measurement was at hand"},
    {"pcie-gen4", "one node of up to 8 GPUs, PCIe 4.0 x16",
     pcie_nodes(GpuGeneration::ampere, {8, 18, 24}),
     "NCCL's 24 GB/s at best; published: 10 to 22 GB/s, by peer access and CPU sockets"},
    {"pcie-gen5", "one node of up to 8 GPUs, PCIe 5.0 x16",
     pcie_nodes(GpuGeneration::hopper, {20, 36, 48}),
     "NCCL's 48 GB/s at best; published: 28 to 45 GB/s, by peer access and CPU sockets"},
    {"ib-hdr-200", "nodes of 8 A100, 8 HDR InfiniBand NICs each",
     with_nics(a100_nodes, 8, {18, 23.5, 24.5}, infiniband_us),
     "200 Gbit/s a NIC; typical is what 2 x 8 A100 reached in one published log"},
    {"ib-ndr-400", "nodes of 8 H100, 8 NDR InfiniBand NICs each",
     with_nics(h100_nodes, 8, {38, 47, 49}, infiniband_us), "400 Gbit/s a NIC, 94 % of it"},
    {"roce-100g", "nodes of 8 A100, one 100 Gbit/s RoCE NIC each",
     with_nics(a100_nodes, 1, {7.5, 11, 12.1}, {15, 5, 2.5}),
     "100 Gbit/s a node; congestion control decides how much of it arrives"},
    {"efa-p4d", "AWS p4d: nodes of 8 A100, 4 x 100 Gbit/s EFA",
     with_nics(a100_nodes, 4, {8, 11, 12}, efa_us),
     "400 Gbit/s a node; latency as in one published log of p5"},
    {"efa-p5", "AWS p5: nodes of 8 H100, 3200 Gbit/s EFA",
     with_nics(h100_nodes, 8, {36, 45, 49}, efa_us),
     "3200 Gbit/s a node; latency as in one published log of 2 x 8 H100"},
    {"eth-1g", "1 Gbit/s Ethernet, one rank a host, sockets",
     PresetSockets{{150, 50, 25}, {0.105, 0.117, 0.1185}},
     "94 % of the line's rate is TCP's payload; steps of 25 to 150 us are kernels'"},
    {"eth-10g", "10 Gbit/s Ethernet, one rank a host, sockets",
     PresetSockets{{80, 30, 15}, {0.8, 1.15, 1.185}},
     "94 % of the line's rate is TCP's payload; less with small frames or few sockets"},
    {"eth-25g", "25 Gbit/s Ethernet, one rank a host, sockets",
     PresetSockets{{80, 30, 15}, {1.6, 2.6, 2.95}},
     "what several sockets get through a kernel; one alone is at the slow end"},
    {"eth-100g", "100 Gbit/s Ethernet, one rank a host, sockets",
     PresetSockets{{80, 30, 15}, {3, 6.5, 11}},
     "what sockets get through a kernel; RDMA (roce-100g) is faster"},
    {"wan-1gbit-20ms", "two or more sites, 1 Gbit/s, 20 ms there and back",
     PresetSockets{{15000, 10000, 10000}, {0.03, 0.1, 0.117}},
     "half the round trip a step; loss and TCP's window decide the bandwidth"},
    {"wan-100mbit-50ms", "two or more sites, 100 Mbit/s, 50 ms there and back",
     PresetSockets{{35000, 25000, 25000}, {0.005, 0.0112, 0.0118}},
     "half the round trip a step; loss and TCP's window decide the bandwidth"},
}};

double at(const PresetRange& range, PresetEnd end) {
    return range[static_cast<std::size_t>(end)];
}

Topology topology_of(const PresetNodes& nodes, PresetEnd end) {
    Topology topology;
    RegularTopology& regular = topology.regular.emplace();
    regular.node = {.gpus = preset_node_gpus,
                    .fabric = nodes.fabric,
                    .multicast = nodes.multicast,
                    .bandwidth = bandwidth_from_gb_per_s(at(nodes.gpu_gb_per_s, end))};
    if (nodes.nics > 0) {
        regular.nics = {.per_node = nodes.nics,
                        .latency = duration_from_us(at(nodes.nic_us, end)),
                        .bandwidth = bandwidth_from_gb_per_s(at(nodes.nic_gb_per_s, end))};
    }
    topology.nccl = {nodes.generation, nodes.channels};
    return topology;
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
        // What is left out at an end is no mistake.
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
    link.provenance.source = fmt::format("prior, not measured here: {}", preset.source);
    link.provenance.hardware = preset.what;
    link.preset = name;
    if (const auto* nodes = std::get_if<PresetNodes>(&preset.hardware)) {
        link.algorithm = Algorithm::nccl;
        link.topology = topology_of(*nodes, end);
        link.launch = duration_from_us(at(launching_us, end));
        link.host_issue = std::chrono::microseconds(10);
    } else {
        const auto& sockets = std::get<PresetSockets>(preset.hardware);
        link.segments = {{.latency = duration_from_us(at(sockets.step_us, end)),
                          .bandwidth = bandwidth_from_gb_per_s(at(sockets.gb_per_s, end))}};
        link.launch = duration_from_us(at(launching_sockets_us, end));
        link.host_issue = std::chrono::microseconds(20);
    }
    return link;
}

LinkParameters preset_end(const LinkPreset& preset, PresetEnd end, const LinkParameters& typical) {
    LinkParameters link = preset_link(preset, end);
    if (link.topology && link.topology->nccl && typical.topology && typical.topology->nccl) {
        link.topology->nccl->version = typical.topology->nccl->version;
    }
    return link;
}

Json preset_document(const LinkPreset& preset) {
    const LinkParameters link = preset_link(preset, PresetEnd::typical);
    Json document = link_json(link);
    document["host_issue_us"] = link.host_issue / std::chrono::microseconds(1);  // without ".0"
    return document;
}

std::optional<std::int64_t> most_ranks_of(const LinkPreset& preset) {
    const auto* nodes = std::get_if<PresetNodes>(&preset.hardware);
    return nodes != nullptr && nodes->nics == 0 ? std::optional(preset_node_gpus) : std::nullopt;
}

std::int64_t shown_ranks(const LinkPreset& preset) {
    const bool has_nodes = std::holds_alternative<PresetNodes>(preset.hardware);
    return has_nodes ? most_ranks_of(preset).value_or(2 * preset_node_gpus) : 2;
}

std::string larger_presets(const LinkPreset& preset) {
    std::string names;
    const auto* nodes = std::get_if<PresetNodes>(&preset.hardware);
    for (const LinkPreset& other : presets) {
        const auto* larger = std::get_if<PresetNodes>(&other.hardware);
        if (nodes != nullptr && larger != nullptr && larger->nics > 0 &&
            larger->generation == nodes->generation && larger->fabric == nodes->fabric) {
            names += (names.empty() ? "" : ", ") + std::string(other.name);
        }
    }
    return names.empty() ? "ib-ndr-400" : names;
}

}  // namespace bucketwise
