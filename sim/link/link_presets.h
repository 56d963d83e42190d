// Links that ship with the program, for clusters that nobody has measured yet: priors from data
// sheets, NCCL's own constants and published measurements, each with the range these leave open.
//
// A preset is named where a link file is: a name has no '/' and no ".json", so that ./NAME is the
// file and NAME the preset.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/base/json.h"
#include "sim/base/names.h"
#include "sim/link/link.h"
#include "sim/link/network/topology.h"
#include "sim/link/preset_end.h"

namespace bucketwise {

// Nodes of GPUs, for NCCL's cost model.
struct PresetNodes {
    GpuGeneration generation = GpuGeneration::hopper;
    Fabric fabric = Fabric::nvlink;
    bool multicast = false;
    std::int64_t channels = 16;
    PresetRange gpu_gb_per_s{};  // of one GPU into the node's fabric
    std::int64_t nics = 0;       // of a node; 0: one node and no more
    PresetRange nic_gb_per_s{};
    PresetRange nic_us{};  // from GPU to GPU of two nodes, beyond NCCL's own constants
};

// One rank per host and a ring over sockets.
struct PresetSockets {
    PresetRange step_us{};
    PresetRange gb_per_s{};
};

struct LinkPreset {
    std::string_view name;
    std::string_view what;  // it is, in a few words
    std::variant<PresetNodes, PresetSockets> hardware;
    std::string_view source;
};

// GPUs of a node of every preset that has nodes.
constexpr std::int64_t preset_node_gpus = 8;

std::span<const LinkPreset> link_presets();

// Whether a link named like this can only be a preset or a file of that very name.
bool looks_like_preset(std::string_view name);

// Null: there is none.
const LinkPreset* find_preset(std::string_view name);

// The presets with the most similar names, nearest first, at most three.
std::vector<std::string_view> nearest_presets(std::string_view name);

// The preset as a link. What is typical has its name; the ends are named for themselves.
LinkParameters preset_link(const LinkPreset& preset, PresetEnd end);

// An end of the preset that `typical` is, under the version of NCCL that it assumes.
LinkParameters preset_end(const LinkPreset& preset, PresetEnd end, const LinkParameters& typical);

// What is typical, as a link file says it.
Json preset_document(const LinkPreset& preset);

// Ranks that it has a place for; none: any number. Presets of one node hold that.
std::optional<std::int64_t> most_ranks_of(const LinkPreset& preset);

// The ranks that a table shows it with: a full node, two nodes, two hosts.
std::int64_t shown_ranks(const LinkPreset& preset);

// Where there are too many ranks: presets of several nodes of such GPUs, in words.
std::string larger_presets(const LinkPreset& preset);

}  // namespace bucketwise
