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

// The NICs of a node. No NICs: one node only.
struct PresetNics {
    std::int64_t per_node = 0;
    PresetRange gb_per_s{};
    PresetRange us{};  // from GPU to GPU of two nodes, beyond NCCL's own constants
    NicPath path = NicPath::pxb;
    PresetRange clock{};  // NcclClock::network
};

// Nodes of GPUs, for NCCL's cost model.
struct PresetNodes {
    GpuGeneration generation = GpuGeneration::hopper;
    std::optional<std::int64_t> compute_capability = {};
    std::int64_t gpus = 8;
    HostCpu cpu = HostCpu::intel;
    Fabric fabric = Fabric::nvlink;
    bool multicast = false;
    std::int64_t channels = 16;
    PresetRange gpu_gb_per_s{};  // of one GPU into the node's fabric
    PresetRange launch_us{};     // of a collective on its stream
    PresetRange ring_ll{};       // NcclClock::ring_ll
    PresetNics nics = {};
};

// A step from one rank to the next around a ring.
struct PresetHop {
    std::optional<Bytes> up_to = {};  // none: of all larger messages
    PresetRange step_us{};
    PresetRange gb_per_s{};
};

// A ring: over sockets with one rank a host, or through one node of GPUs that NCCL does not know.
struct PresetRing {
    std::array<PresetHop, 2> hops{};  // by size; the first is not used where its rate is 0
    PresetRange launch_us{};
    double host_issue_us = 0;
    std::string_view backend = "";
    std::optional<std::int64_t> most_ranks = {};
};

// Error of the typical values against public all-reduces of 64 KiB to 1 GiB, by nccl-tests on such
// hardware: results/links.
struct PresetLogs {
    std::int64_t count = 0;
    double error_percent = 0;  // the median of their mean errors
};

struct LinkPreset {
    std::string_view name;
    std::string_view gpu;   // that it is of, as device presets name it; empty: of any
    std::string_view what;  // it is, in a few words
    std::variant<PresetNodes, PresetRing> hardware;
    std::string_view source;
    PresetLogs logs = {};
    std::string_view question = {};  // that tells it from its neighbours: a caveat of its link
};

// The source of a preset's link begins with this, before the preset's own.
constexpr std::string_view prior_source = "prior, not measured here: ";

std::span<const LinkPreset> link_presets();

// Whether a link named like this can only be a preset or a file of that very name.
bool looks_like_preset(std::string_view name);

// Null: there is none.
const LinkPreset* find_preset(std::string_view name);

// The presets with the most similar names, nearest first, at most three.
std::vector<std::string_view> nearest_presets(std::string_view name);

// The preset as a link. The typical link has the preset's name; each end has a name of its own.
LinkParameters preset_link(const LinkPreset& preset, PresetEnd end);

// An end of the preset that `typical` is, under its version of NCCL and with its thread blocks.
LinkParameters preset_end(const LinkPreset& preset, PresetEnd end, const LinkParameters& typical);

// The typical link, as a link file holds it.
Json preset_document(const LinkPreset& preset);

// The first preset that holds so many ranks of such a GPU; null: there is none.
const LinkPreset* preset_of_gpu(std::string_view gpu, std::int64_t ranks);

// The most ranks that it holds; none: any number. Only presets of one node have a limit.
std::optional<std::int64_t> most_ranks_of(const LinkPreset& preset);

// The ranks that a table shows it with: a full node, two nodes, two hosts.
std::int64_t shown_ranks(const LinkPreset& preset);

// Where there are too many ranks: presets of several nodes of such GPUs, in words.
std::string larger_presets(const LinkPreset& preset);

}  // namespace bucketwise
