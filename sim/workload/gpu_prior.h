// What a GPU makes of its data sheet where nobody has measured it: a few factors, the same for all
// devices, each with its range. Fitted to published steps of single GPUs, none to one of them
// alone: docs/decisions/device_priors.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/base/names.h"
#include "sim/link/preset_end.h"

namespace bucketwise {

enum class GpuFactor : std::uint8_t {
    tensor_efficiency,
    vector_efficiency,
    convolution_efficiency,
    flash_efficiency,
    fused_efficiency,
    pass_efficiency,
    kernel_us,
    host_scale
};

template <>
inline constexpr auto names_of<GpuFactor> = names("tensor_efficiency", "vector_efficiency",
                                                  "convolution_efficiency", "flash_efficiency",
                                                  "fused_efficiency", "pass_efficiency",
                                                  "kernel_us", "host_scale");

struct FactorRange {
    PresetRange range{};
    std::string_view what;
};
const FactorRange& range_of(GpuFactor factor);

// The factors at one end of their ranges, but for those that were given.
struct GpuPrior {
    PresetEnd end = PresetEnd::typical;
    std::array<std::optional<double>, every<GpuFactor>.size()> given = {};
    bool operator==(const GpuPrior&) const = default;

    [[nodiscard]] double operator[](GpuFactor factor) const {
        return given[static_cast<std::size_t>(factor)].value_or(
            range_of(factor).range[static_cast<std::size_t>(end)]);
    }
};

// How a framework runs a model.
enum class Execution : std::uint8_t { eager, compiled };

template <>
inline constexpr auto names_of<Execution> = names("eager", "compiled");

// Attention: its scores written to memory and read again; kept on the chip by a kernel of any GPU;
// by one that overlaps its loads, for 16-bit tensors from Ampere on. Automatic: what PyTorch's
// scaled_dot_product_attention would choose; of a model that writes it out (CS336's), eager.
enum class AttentionKernel : std::uint8_t { automatic, eager, fused, flash };

template <>
inline constexpr auto names_of<AttentionKernel> = names("automatic", "eager", "fused", "flash");

// Host time in eager PyTorch on a server's CPU, in microseconds; host_scale multiplies all of it.
// Of a compiled graph each kernel is launched by generated code.
struct HostCosts {
    double operation_us = 0;  // forward: Python, dispatch and recording for autograd
    double node_us = 0;       // backward: one of autograd's nodes
    double kernel_us = 0;     // one launch, output's memory included
    double gradient_us = 0;   // a parameter's gradient is put in place
};
constexpr HostCosts host_costs(Execution execution) {
    return execution == Execution::eager ? HostCosts{23, 15, 15, 11} : HostCosts{0, 0, 7, 3};
}

}  // namespace bucketwise
