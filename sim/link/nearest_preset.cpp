#include "sim/link/nearest_preset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string_view>

#include "sim/base/transformed.h"
#include "sim/link/collective.h"

namespace bucketwise {
namespace {

constexpr Bytes smallest_compared{64 << 10};

// Whether this is one node, and another preset connects several such nodes.
bool has_single_node(const PresetNodes& nodes) {
    return std::ranges::any_of(link_presets(), [&](const LinkPreset& preset) {
        const auto* one = std::get_if<PresetNodes>(&preset.hardware);
        return one != nullptr && one->nics.per_node == 0 && one->generation == nodes.generation &&
               one->gpus == nodes.gpus && one->fabric == nodes.fabric;
    });
}

// Presets of one rank a host have a place wherever there are as many hosts.
bool has_place(const LinkPreset& preset, std::int64_t ranks, std::int64_t nodes) {
    if (const auto most = most_ranks_of(preset)) {
        return nodes == 1 && ranks <= *most;
    }
    const auto* of_nodes = std::get_if<PresetNodes>(&preset.hardware);
    if (of_nodes == nullptr) {
        return nodes == ranks;
    }
    return divided(ranks, of_nodes->gpus) == nodes && (nodes > 1 || !has_single_node(*of_nodes));
}

// Longer names first, which hold shorter ones.
constexpr std::array<std::string_view, 8> gpu_names{"GB200", "GH200", "MI300X", "B200",
                                                    "H200",  "H100",  "A100",   "V100"};

std::string_view gpu_named_in(std::string_view text) {
    for (const std::string_view name : gpu_names) {
        if (text.find(name) != std::string_view::npos) {
            return name;
        }
    }
    return {};
}

// A preset without a name is of any GPU. A driver that does not know a GPU calls it so.
bool is_of(const LinkPreset& preset, std::string_view gpu) {
    const std::string_view own = gpu_named_in(preset.what);
    return gpu.empty() || gpu == "NVIDIA Graphics Device" || own.empty() ||
           own == gpu_named_in(gpu);
}

double log_distance(double a, double b) {
    return std::abs(std::log(a / b));
}

}  // namespace

std::optional<PresetDistance> nearest_preset(const MeasuredTimes& measured) {
    std::vector<MeasuredTime> compared;
    std::copy_if(measured.times.begin(), measured.times.end(), std::back_inserter(compared),
                 [](const MeasuredTime& time) { return time.bytes >= smallest_compared; });
    if (compared.empty()) {
        compared = measured.times;
    }
    std::erase_if(compared, [](const MeasuredTime& time) { return time.us <= 0; });
    if (compared.empty() || measured.ranks < 2) {
        return std::nullopt;
    }
    std::optional<PresetDistance> nearest;
    double least = 0;
    const RankGroup group{measured.ranks, 1};
    for (const LinkPreset& preset : link_presets()) {
        if (!has_place(preset, measured.ranks, measured.nodes) || !is_of(preset, measured.gpu)) {
            continue;
        }
        const std::vector<LinkParameters> ends =
            transformed(every<PresetEnd>, [&](PresetEnd end) { return preset_link(preset, end); });
        const auto us = [&](PresetEnd end, Bytes bytes) {
            return to_us(collective_time(CollectiveKind::all_reduce, bytes, group,
                                         ends[static_cast<std::size_t>(end)]));
        };
        PresetDistance found{.preset = &preset, .sizes = std::ssize(compared)};
        double distance = 0;
        for (const MeasuredTime& time : compared) {
            const double typical = us(PresetEnd::typical, time.bytes);
            distance += log_distance(typical, time.us);
            found.mean_error += std::abs(typical / time.us - 1) / static_cast<double>(found.sizes);
            const bool inside = std::min(us(PresetEnd::fast, time.bytes), typical) <= time.us &&
                                time.us <= std::max(us(PresetEnd::slow, time.bytes), typical);
            found.inside += inside ? 1 : 0;
        }
        if (!nearest || distance < least) {
            nearest = found;
            least = distance;
        }
    }
    return nearest;
}

}  // namespace bucketwise
