#include "sim/workload/device.h"

#include <algorithm>

#include "sim/base/invariant.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

// Share of peak that large matrix products and streaming kernels reach in practice, and the host
// time of one eager-mode operator and of one CUDA graph. Priors; a measured device file replaces
// them.
constexpr double prior_compute_efficiency = 0.6;
constexpr double prior_memory_efficiency = 0.85;
constexpr double prior_launch_us = 8.0;
constexpr double prior_graph_launch_us = 10.0;
// The shortest copies of traces from V100 and A100 take 1.6 us, and 0.75 to 1.15 us pass from one
// kernel to the next.
constexpr double prior_copy_fixed_us = 2.5;

Device gpu(std::string name, std::array<double, every<Arithmetic>.size()> peak_tflop_per_s,
           double memory_gb_per_s, std::int64_t multiprocessors) {
    return {.name = std::move(name),
            .peak_tflop_per_s = peak_tflop_per_s,
            .memory_bandwidth = bandwidth_from_gb_per_s(memory_gb_per_s),
            .compute_efficiency = prior_compute_efficiency,
            .memory_efficiency = prior_memory_efficiency,
            .launch = duration_from_us(prior_launch_us),
            .copy_fixed = duration_from_us(prior_copy_fixed_us),
            .graph_launch = duration_from_us(prior_graph_launch_us),
            .multiprocessors = multiprocessors};
}

// Dense rates in TFLOP/s (float32, tfloat32, float16, bfloat16, float64), GB/s and multiprocessors,
// from NVIDIA's data sheets: A100 80GB SXM, H100 SXM5, H200 SXM, V100 SXM2, RTX A4000.
const std::vector<Device>& presets() {
    static const std::vector<Device> table{
        gpu("A100", {19.5, 156, 312, 312, 9.7}, 2039, 108),
        gpu("A4000", {19.2, 38.3, 76.7, 76.7, 0.6}, 448, 48),
        gpu("H100", {67, 494.5, 989, 989, 34}, 3350, 132),
        gpu("H200", {67, 494.5, 989, 989, 34}, 4800, 132),
        gpu("V100", {15.7, 0, 125, 0, 7.8}, 900, 80),
    };
    return table;
}

}  // namespace

Bytes element_size(Arithmetic arithmetic) {
    constexpr std::array<Bytes, every<Arithmetic>.size()> sizes{{{4}, {4}, {2}, {2}, {8}}};
    return sizes[static_cast<std::size_t>(arithmetic)];
}

std::optional<Device> device_preset(std::string_view name) {
    const auto found = std::find_if(presets().begin(), presets().end(),
                                    [&](const Device& d) { return d.name == name; });
    return found == presets().end() ? std::nullopt : std::optional(*found);
}

const std::vector<std::string_view>& device_preset_names() {
    static const auto names =
        transformed(presets(), [](const Device& device) { return std::string_view(device.name); });
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
