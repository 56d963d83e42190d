#include "sim/link/link_presets.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/edit_distance.h"
#include "sim/link/link_json.h"

namespace bucketwise {
namespace {

// NCCL 2.28 (src/graph/topo.h) counts an NVLink as 20 GB/s on sm80, 20.6 on sm90 and 40.1 on sm100:
// 12, 18 and 18 of them. The fast end is that, the slow end a node whose links or NVLS do not all
// work as they should. InfiniBand: a NIC's rate, of which about 94 % arrive.
constexpr PresetRange nvlink_a100{195, 235, 240};
constexpr PresetRange nvlink_h100{275, 365, 371};
constexpr PresetRange nvlink_b200{540, 710, 722};
constexpr PresetRange launching{16, 10, 4};
constexpr PresetRange launching_sockets{60, 20, 10};
constexpr PresetRange infiniband_us{6, 2, 1.5};
constexpr PresetRange efa_us{30, 20, 15};

constexpr PresetNodes nodes_of(GpuGeneration generation, bool multicast, PresetRange gpu) {
    return {.generation = generation,
            .fabric = Fabric::nvlink,
            .multicast = multicast,
            .channels = generation == GpuGeneration::ampere ? 24 : 16,
            .gpu_gb_per_s = gpu};
}

constexpr PresetNodes with_nics(PresetNodes nodes, std::int64_t nics, PresetRange gb_per_s,
                                PresetRange us) {
    nodes.nics = nics;
    nodes.nic_gb_per_s = gb_per_s;
    nodes.nic_us = us;
    return nodes;
}

constexpr PresetNodes pcie_nodes(GpuGeneration generation, PresetRange gpu) {
    return {.generation = generation,
            .fabric = Fabric::pcie,
            .multicast = false,
            .channels = 4,
            .gpu_gb_per_s = gpu};
}

constexpr PresetNodes a100_nodes = nodes_of(GpuGeneration::ampere, false, nvlink_a100);
constexpr PresetNodes h100_nodes = nodes_of(GpuGeneration::hopper, true, nvlink_h100);

constexpr std::array<LinkPreset, 17> presets{{
    {.name = "nvlink-a100-8",
     .what = "one node of 8 A100, NVLink 3",
     .nodes = a100_nodes,
     .launch_us = launching,
     .source = "NCCL's 12 x 20 GB/s; published bus bandwidths are 200 to 240 GB/s"},
    {.name = "nvlink-h100-8",
     .what = "one node of 8 H100, NVLink 4 with NVLS",
     .nodes = h100_nodes,
     .launch_us = launching,
     .source = "NCCL's 18 x 20.6 GB/s; published bus bandwidths are 360 (no NVLS) to 480 GB/s"},
    {.name = "nvlink-h200-8",
     .what = "one node of 8 H200, NVLink 4 with NVLS",
     .nodes = h100_nodes,
     .launch_us = launching,
     .source = "as nvlink-h100-8: H200 has the same NVLink"},
    {.name = "nvlink-b200-8",
     .what = "one node of 8 B200, NVLink 5 with NVLS",
     .nodes = nodes_of(GpuGeneration::blackwell, true, nvlink_b200),
     .launch_us = launching,
     .source = "NCCL's 18 x 40.1 GB/s; LL128 limits are Hopper's; no measurement was at hand"},
    {.name = "pcie-gen4",
     .what = "one node of up to 8 GPUs, PCIe 4.0 x16",
     .nodes = pcie_nodes(GpuGeneration::ampere, {8, 18, 24}),
     .launch_us = launching,
     .source = "NCCL's 24 GB/s at best; published: 10 to 22 GB/s, by peer access and CPU sockets"},
    {.name = "pcie-gen5",
     .what = "one node of up to 8 GPUs, PCIe 5.0 x16",
     .nodes = pcie_nodes(GpuGeneration::hopper, {20, 36, 48}),
     .launch_us = launching,
     .source = "NCCL's 48 GB/s at best; published: 28 to 45 GB/s, by peer access and CPU sockets"},
    {.name = "ib-hdr-200",
     .what = "nodes of 8 A100, 8 HDR InfiniBand NICs each",
     .nodes = with_nics(a100_nodes, 8, {18, 23.5, 24.5}, infiniband_us),
     .launch_us = launching,
     .source = "200 Gbit/s a NIC; typical is what 2 x 8 A100 reached in one published log"},
    {.name = "ib-ndr-400",
     .what = "nodes of 8 H100, 8 NDR InfiniBand NICs each",
     .nodes = with_nics(h100_nodes, 8, {38, 47, 49}, infiniband_us),
     .launch_us = launching,
     .source = "400 Gbit/s a NIC, 94 % of it"},
    {.name = "roce-100g",
     .what = "nodes of 8 A100, one 100 Gbit/s RoCE NIC each",
     .nodes = with_nics(a100_nodes, 1, {7.5, 11, 12.1}, {15, 5, 2.5}),
     .launch_us = launching,
     .source = "100 Gbit/s a node; congestion control decides how much of it arrives"},
    {.name = "efa-p4d",
     .what = "AWS p4d: nodes of 8 A100, 4 x 100 Gbit/s EFA",
     .nodes = with_nics(a100_nodes, 4, {8, 11, 12}, efa_us),
     .launch_us = launching,
     .source = "400 Gbit/s a node; latency as in one published log of p5"},
    {.name = "efa-p5",
     .what = "AWS p5: nodes of 8 H100, 3200 Gbit/s EFA",
     .nodes = with_nics(h100_nodes, 8, {36, 45, 49}, efa_us),
     .launch_us = launching,
     .source = "3200 Gbit/s a node; latency as in one published log of 2 x 8 H100"},
    {.name = "eth-1g",
     .what = "1 Gbit/s Ethernet, one rank a host, sockets",
     .sockets = {.step_us = {150, 50, 25}, .gb_per_s = {0.105, 0.117, 0.1185}},
     .launch_us = launching_sockets,
     .host_issue_us = 20,
     .source = "94 % of the line's rate is TCP's payload; steps of 25 to 150 us are kernels'"},
    {.name = "eth-10g",
     .what = "10 Gbit/s Ethernet, one rank a host, sockets",
     .sockets = {.step_us = {80, 30, 15}, .gb_per_s = {0.8, 1.15, 1.185}},
     .launch_us = launching_sockets,
     .host_issue_us = 20,
     .source = "94 % of the line's rate is TCP's payload; less with small frames or few sockets"},
    {.name = "eth-25g",
     .what = "25 Gbit/s Ethernet, one rank a host, sockets",
     .sockets = {.step_us = {80, 30, 15}, .gb_per_s = {1.6, 2.6, 2.95}},
     .launch_us = launching_sockets,
     .host_issue_us = 20,
     .source = "what several sockets get through a kernel; one alone is at the slow end"},
    {.name = "eth-100g",
     .what = "100 Gbit/s Ethernet, one rank a host, sockets",
     .sockets = {.step_us = {80, 30, 15}, .gb_per_s = {3, 6.5, 11}},
     .launch_us = launching_sockets,
     .host_issue_us = 20,
     .source = "what sockets get through a kernel; RDMA (roce-100g) is faster"},
    {.name = "wan-1gbit-20ms",
     .what = "two or more sites, 1 Gbit/s, 20 ms there and back",
     .sockets = {.step_us = {15000, 10000, 10000}, .gb_per_s = {0.03, 0.1, 0.117}},
     .launch_us = launching_sockets,
     .host_issue_us = 20,
     .source = "half the round trip a step; loss and TCP's window decide the bandwidth"},
    {.name = "wan-100mbit-50ms",
     .what = "two or more sites, 100 Mbit/s, 50 ms there and back",
     .sockets = {.step_us = {35000, 25000, 25000}, .gb_per_s = {0.005, 0.0112, 0.0118}},
     .launch_us = launching_sockets,
     .host_issue_us = 20,
     .source = "half the round trip a step; loss and TCP's window decide the bandwidth"},
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
    std::vector<std::string_view> names;
    for (const auto& [distance, near] : by_distance) {
        if (names.size() < most) {
            names.push_back(near);
        }
    }
    return names;
}

LinkParameters preset_link(const LinkPreset& preset, PresetEnd end) {
    const std::string name(preset.name);
    LinkParameters link;
    link.name =
        end == PresetEnd::typical ? name : fmt::format("{}, {} end", preset.name, name_of(end));
    link.launch = duration_from_us(at(preset.launch_us, end));
    link.host_issue = std::chrono::microseconds(preset.host_issue_us);
    link.provenance.source = fmt::format("prior, not measured here: {}", preset.source);
    link.provenance.hardware = preset.what;
    link.preset = name;
    if (preset.nodes) {
        link.algorithm = Algorithm::nccl;
        link.topology = topology_of(*preset.nodes, end);
    } else {
        link.segments = {{.latency = duration_from_us(at(preset.sockets.step_us, end)),
                          .bandwidth = bandwidth_from_gb_per_s(at(preset.sockets.gb_per_s, end))}};
    }
    return link;
}

Json preset_document(const LinkPreset& preset) {
    Json document = link_json(preset_link(preset, PresetEnd::typical));
    document["host_issue_us"] = preset.host_issue_us;  // as the table above has it, without ".0"
    return document;
}

std::optional<std::int64_t> most_ranks_of(const LinkPreset& preset) {
    return preset.nodes && preset.nodes->nics == 0 ? std::optional(preset_node_gpus) : std::nullopt;
}

std::int64_t shown_ranks(const LinkPreset& preset) {
    if (!preset.nodes) {
        return 2;
    }
    return preset.nodes->nics == 0 ? preset_node_gpus : 2 * preset_node_gpus;
}

std::string larger_presets(const LinkPreset& preset) {
    std::string names;
    for (const LinkPreset& other : presets) {
        const bool alike = preset.nodes && other.nodes && other.nodes->nics > 0 &&
                           other.nodes->generation == preset.nodes->generation &&
                           other.nodes->fabric == preset.nodes->fabric;
        if (alike) {
            names += (names.empty() ? "" : ", ") + std::string(other.name);
        }
    }
    return names.empty() ? "ib-ndr-400" : names;
}

}  // namespace bucketwise
