#include "sim/workload/device.h"

#include <algorithm>

#include "sim/base/invariant.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

// Priors; a measured device file replaces them. Where a total is measured, only the ratio of
// arithmetic to memory counts.
constexpr double roofline_compute_efficiency = 0.6;
constexpr double roofline_memory_efficiency = 0.85;
constexpr double roofline_launch_us = 8.0;
constexpr double prior_graph_launch_us = 10.0;  // host time of one CUDA graph
// The shortest copies of traces from V100 and A100 take 1.6 us, and 0.75 to 1.15 us pass from one
// kernel to the next.
constexpr double prior_copy_fixed_us = 2.5;

// Dense rates in TFLOP/s, tensor cores with float32 sums: float32, tfloat32, float16, bfloat16,
// float64 without tensor cores (a 64th of float32 for GA10x, Ada and GB202).
using Peaks = std::array<double, every<Arithmetic>.size()>;

enum class Lanes : std::uint8_t { narrow, wide };      // 64 or 128 of float32 in a multiprocessor
enum class Attention : std::uint8_t { fused, flash };  // the best kernel there is

struct Chip {
    std::string_view name;
    std::string_view what;
    Peaks peak_tflop_per_s{};
    double memory_gb_per_s = 0;
    // Data sheets call it GB: an "80 GB" A100 has 81,920 MiB. Some V100 have 16. B200 and GB200:
    // eighths of a DGX B200's 1,440 GB and 72nds of an NVL72's 13.4 TB.
    std::int64_t memory_gib = 0;
    std::int64_t multiprocessors = 0;
    Lanes lanes = Lanes::wide;
    Attention attention = Attention::flash;
    double sustained = 1;
    double synchronous_share = 1;  // Device's, as the next
    double tensor_sustained = 1;
    std::string_view source;
};

// Boards with little power for their rates cannot hold the peak's clock. The sustained rate is
// taken as proportional to power, relative to the board of the same process with the most power:
// V100 (300 W for 125 TFLOP/s) for T4 (70 W for 65); H100 (700 W for 989) for L4 (72 W for 121) and
// MI300X (750 W for 1,307).
constexpr double sustained_t4 = 0.45;
constexpr double sustained_l4 = 0.84;
constexpr double sustained_mi300x = 0.81;

// A share of the tensor cores' peak lasts for hours (docs/decisions/device_priors.md). 500 instead
// of 700 W lower the clock by less than the power.
constexpr double sustained_h100 = 0.825;
constexpr double sustained_h100_500w = 0.675;

// mma.sync on an H100 (Luo et al. 2024, arXiv 2402.13499: about 60 % of the peak that wgmma
// reaches), and the same rate of a multiprocessor and clock on a B200.
constexpr double hopper_synchronous = 0.60;
constexpr double blackwell_synchronous = 0.30;

// clang-format off
constexpr std::array<Chip, 18> chips{{
    {"A100", "A100 80GB SXM", {19.5, 156, 312, 312, 9.7}, 2039, 80, 108,
     Lanes::narrow, Attention::flash, 1, 1, 1,
     "NVIDIA A100 Tensor Core GPU data sheet; A100 white paper"},
    {"A100 40GB", "A100 40GB SXM", {19.5, 156, 312, 312, 9.7}, 1555, 40, 108,
     Lanes::narrow, Attention::flash, 1, 1, 1,
     "NVIDIA A100 Tensor Core GPU data sheet; A100 white paper"},
    {"A10G", "A10G, of AWS g5", {35, 35, 70, 70, 0.55}, 600, 24, 80,
     Lanes::wide, Attention::flash, 1, 1, 1,
     "NVIDIA A10G data sheet for AWS; multiprocessors as CUDA reports them"},
    {"A40", "A40", {37.4, 74.8, 149.7, 149.7, 0.58}, 696, 48, 84,
     Lanes::wide, Attention::flash, 1, 1, 1,
     "NVIDIA A40 data sheet; Ampere GA102 white paper"},
    {"A4000", "RTX A4000", {19.2, 38.3, 76.7, 76.7, 0.3}, 448, 16, 48,
     Lanes::wide, Attention::flash, 1, 1, 1,
     "NVIDIA RTX A4000 data sheet, halved to dense; Ampere GA102 white paper"},
    {"B200", "B200 SXM", {75, 1125, 2250, 2250, 37}, 8000, 180, 148,
     Lanes::wide, Attention::flash, 1, blackwell_synchronous, 1,
     "NVIDIA HGX platform page, halved to dense; memory of DGX B200 data sheet"},
    {"GB200", "one of GB200's two", {80, 1250, 2500, 2500, 40}, 8000, 186, 152,
     Lanes::wide, Attention::flash, 1, blackwell_synchronous, 1,
     "NVIDIA GB200 NVL72 page, halved to dense; multiprocessors as CUDA reports them"},
    {"H100", "H100 SXM5 80GB", {67, 494.5, 989, 989, 34}, 3350, 80, 132,
     Lanes::wide, Attention::flash, 1, hopper_synchronous, sustained_h100,
     "NVIDIA H100 Tensor Core GPU data sheet, halved to dense; H100 white paper"},
    {"H100 96GB", "H100 with 96 GB of HBM2e and 500 W", {67, 494.5, 989, 989, 34}, 2400, 96, 132,
     Lanes::wide, Attention::flash, 1, hopper_synchronous, sustained_h100_500w,
     "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md"},
    {"H200", "H200 SXM", {67, 494.5, 989, 989, 34}, 4800, 141, 132,
     Lanes::wide, Attention::flash, 1, hopper_synchronous, sustained_h100,
     "NVIDIA H200 Tensor Core GPU data sheet, halved to dense; H100 white paper"},
    {"L4", "L4", {30.3, 60, 121, 121, 0.47}, 300, 24, 58,
     Lanes::wide, Attention::flash, sustained_l4, 1, 1,
     "NVIDIA L4 Tensor Core GPU data sheet, halved to dense; Ada white paper"},
    {"L40S", "L40S", {91.6, 183, 362, 362, 1.4}, 864, 48, 142,
     Lanes::wide, Attention::flash, 1, 1, 1,
     "NVIDIA L40S data sheet; Ada white paper"},
    {"MI300X", "AMD Instinct MI300X", {163.4, 653.7, 1307.4, 1307.4, 81.7}, 5300, 192, 304,
     Lanes::narrow, Attention::flash, sustained_mi300x, 1, 1,
     "AMD Instinct MI300X data sheet"},
    {"RTX 3090", "GeForce RTX 3090", {35.6, 35.6, 71, 71, 0.56}, 936, 24, 82,
     Lanes::wide, Attention::flash, 1, 1, 1,
     "NVIDIA Ampere GA102 white paper"},
    {"RTX 4090", "GeForce RTX 4090", {82.6, 82.6, 165.2, 165.2, 1.3}, 1008, 24, 128,
     Lanes::wide, Attention::flash, 1, 1, 1,
     "NVIDIA Ada white paper"},
    {"RTX PRO 6000", "RTX PRO 6000 Blackwell", {125, 251.9, 503.8, 503.8, 2.0}, 1792, 96, 188,
     Lanes::wide, Attention::flash, 1, 1, 1,
     "NVIDIA RTX Blackwell PRO white paper"},
    {"T4", "T4", {8.1, 0, 65, 0, 0.25}, 320, 16, 40,
     Lanes::narrow, Attention::fused, sustained_t4, 1, 1,
     "NVIDIA T4 data sheet; Turing white paper"},
    {"V100", "V100 SXM2", {15.7, 0, 125, 0, 7.8}, 900, 32, 80,
     Lanes::narrow, Attention::fused, 1, 1, 1,
     "NVIDIA V100 data sheet; V100 white paper"},
}};
// clang-format on

// Dense rates in TFLOP/s with float32 sums, of the same sources. Other chips have no float8.
struct Float8Peak {
    std::string_view chip;
    double tflop_per_s = 0;
};
constexpr std::array<Float8Peak, 10> float8_peaks{{{"B200", 4500},
                                                   {"GB200", 5000},
                                                   {"H100", 1979},
                                                   {"H100 96GB", 1979},
                                                   {"H200", 1979},
                                                   {"L4", 242.5},
                                                   {"L40S", 733},
                                                   {"MI300X", 2614.9},
                                                   {"RTX 4090", 330.3},
                                                   {"RTX PRO 6000", 1007.6}}};

Peaks peaks_of(const Chip& chip) {
    Peaks peaks = chip.peak_tflop_per_s;
    const auto* const found = std::ranges::find(float8_peaks, chip.name, &Float8Peak::chip);
    for (const Arithmetic arithmetic : every<Arithmetic>) {
        if (is_float8(arithmetic) && found != float8_peaks.end()) {
            peaks[static_cast<std::size_t>(arithmetic)] = found->tflop_per_s;
        }
    }
    return peaks;
}

DevicePreset preset_of(const Chip& chip) {
    return {{.name = std::string(chip.name),
             .peak_tflop_per_s = peaks_of(chip),
             .memory_bandwidth = bandwidth_from_gb_per_s(chip.memory_gb_per_s),
             .compute_efficiency = roofline_compute_efficiency,
             .memory_efficiency = roofline_memory_efficiency,
             .launch = duration_from_us(roofline_launch_us),
             .copy_fixed = duration_from_us(prior_copy_fixed_us),
             .graph_launch = duration_from_us(prior_graph_launch_us),
             .multiprocessors = chip.multiprocessors,
             .memory = Bytes{chip.memory_gib * 1024 * bytes_per_mib},
             .prior = GpuPrior{},
             .wide = chip.lanes == Lanes::wide,
             .flash_attention = chip.attention == Attention::flash,
             .synchronous_share = chip.synchronous_share,
             .sustained = chip.sustained,
             .tensor_sustained = chip.tensor_sustained},
            chip.what,
            chip.source};
}

// The name without spelling and makers: "rtx4090" for "NVIDIA GeForce RTX 4090".
std::string spelt_alike(std::string_view name) {
    std::string text;
    for (const char c : name) {
        if (c >= 'A' && c <= 'Z') {
            text += static_cast<char>(c - 'A' + 'a');
        } else if (c != ' ' && c != '-' && c != '_') {
            text += c;
        }
    }
    for (const std::string_view maker : {"nvidia", "amd", "tesla", "geforce", "instinct"}) {
        if (text.starts_with(maker)) {
            text.erase(0, maker.size());
        }
    }
    return text;
}

// Names that distinguish a preset's board from other boards of its chip, whose rates differ (A100
// with 40 GB, H100 and V100 on PCIe), and nvidia-smi's names.
struct OtherSpelling {
    std::string_view text;  // as spelt_alike() makes it
    std::string_view chip;
};
constexpr std::array<OtherSpelling, 15> other_spellings{{{"a10080gb", "A100"},
                                                         {"a100sxm440gb", "A100 40GB"},
                                                         {"a100sxm480gb", "A100"},
                                                         {"a10080gbsxm", "A100"},
                                                         {"rtxa4000", "A4000"},
                                                         {"b200sxm", "B200"},
                                                         {"h100sxm", "H100"},
                                                         {"h100sxm5", "H100"},
                                                         {"h100sxm580gb", "H100"},
                                                         {"h10080gbhbm3", "H100"},
                                                         {"h200sxm", "H200"},
                                                         {"3090", "RTX 3090"},
                                                         {"4090", "RTX 4090"},
                                                         {"rtxpro6000blackwell", "RTX PRO 6000"},
                                                         {"v100sxm2", "V100"}}};

}  // namespace

Bytes element_size(Arithmetic arithmetic) {
    constexpr std::array<Bytes, every<Arithmetic>.size()> sizes{
        {{4}, {4}, {2}, {2}, {8}, {2}, {2}}};
    return sizes[static_cast<std::size_t>(arithmetic)];
}

const std::vector<DevicePreset>& device_presets() {
    static const std::vector<DevicePreset> presets = transformed(chips, preset_of);
    return presets;
}

const DevicePreset* find_device_preset(std::string_view name) {
    const std::string wanted = spelt_alike(name);
    const auto* const other = std::ranges::find(other_spellings, wanted, &OtherSpelling::text);
    const std::string spelt = other == other_spellings.end() ? wanted : spelt_alike(other->chip);
    const auto& presets = device_presets();
    const auto found = std::ranges::find_if(presets, [&](const DevicePreset& preset) {
        return spelt_alike(preset.device.name) == spelt;
    });
    return found == presets.end() ? nullptr : &*found;
}

std::optional<Device> device_preset(std::string_view name) {
    const DevicePreset* const found = find_device_preset(name);
    return found == nullptr ? std::nullopt : std::optional(found->device);
}

const std::vector<std::string_view>& device_preset_names() {
    static const auto names = transformed(chips, &Chip::name);
    return names;
}

double roofline_seconds(const Work& work, const Device& device, Arithmetic arithmetic) {
    invariant(device.peak(arithmetic) > 0, "the device supports the arithmetic");
    const double flop_per_s = device.peak(arithmetic) * 1e12 * device.compute_efficiency;
    const double bytes_per_s =
        static_cast<double>(device.memory_bandwidth.count) * device.memory_efficiency;
    const double bytes =
        static_cast<double>(work.elements) * static_cast<double>(element_size(arithmetic).count);
    return std::max(static_cast<double>(work.flops) / flop_per_s, bytes / bytes_per_s);
}

BytesPerSecond copy_bandwidth(const Device& device) {
    return {static_cast<std::int64_t>(static_cast<double>(device.memory_bandwidth.count) *
                                      device.memory_efficiency / 2)};
}

}  // namespace bucketwise
