// From a GPU's data sheet to its rates, without measurements: a few factors with ranges, the same
// for all devices, fitted to published steps of many single GPUs
// (docs/decisions/device_priors.md).
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
    host_scale,
    rank_spread
};

template <>
inline constexpr auto names_of<GpuFactor> = names("tensor_efficiency", "vector_efficiency",
                                                  "convolution_efficiency", "flash_efficiency",
                                                  "fused_efficiency", "pass_efficiency",
                                                  "kernel_us", "host_scale", "rank_spread");

struct FactorRange {
    PresetRange range{};
    std::string_view what;
};
inline const FactorRange& range_of(GpuFactor factor) {
    static constexpr std::array<FactorRange, every<GpuFactor>.size()> ranges{{
        {{0.73, 0.855, 0.95}, "of the tensor cores' peak, of large tiles"},
        {{0.80, 0.96, 1.08}, "of the other units' peak; above 1: fewer operations (Winograd)"},
        {{0.70, 0.86, 1.05}, "of that, convolutions"},
        {{0.50, 0.70, 0.85}, "of that, attention in one kernel that overlaps its loads"},
        {{0.05, 0.085, 0.2}, "of that, attention in one kernel that does not"},
        {{0.76, 0.87, 0.95}, "of the memory's peak, of passes over tensors"},
        {{4.5, 3.0, 2.0}, "of each kernel, what it takes beyond its work, in us"},
        {{1.8, 1.0, 0.5}, "of a server's host times"},
        {{0.02, 0.012, 0.0}, "slower than the mean rank is the slowest of e; of e^2 twice as much"},
    }};
    return ranges[static_cast<std::size_t>(factor)];
}

// The factors at one end of their ranges, except the given ones.
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

// Attention's scores: written to memory and read again (eager); kept on the chip by a kernel of any
// GPU (fused); by one that overlaps its loads, for 16-bit tensors from Ampere on: FlashAttention-2
// (flash), the first FlashAttention, in CUDA or Triton (flash_1), or one for the asynchronous
// products of Hopper and later, FlashAttention-3 and cuDNN's (flash_3). Automatic: the choice of
// PyTorch's scaled_dot_product_attention; eager for a model that writes attention out (CS336's).
enum class AttentionKernel : std::uint8_t { automatic, eager, fused, flash, flash_1, flash_3 };

template <>
inline constexpr auto names_of<AttentionKernel> = names("automatic", "eager", "fused", "flash",
                                                        "flash_1", "flash_3");

constexpr bool is_flash(AttentionKernel kernel) {
    return kernel >= AttentionKernel::flash;
}

// Host time in eager PyTorch on a server's CPU, in microseconds; host_scale multiplies all of it.
// In a compiled graph generated code launches each kernel; entering it checks guards and unpacks
// arguments (a guess).
struct HostCosts {
    double operation_us = 0;  // forward: Python, dispatch and recording for autograd
    double node_us = 0;       // backward: one of autograd's nodes
    double kernel_us = 0;     // one launch, output's memory included
    double gradient_us = 0;   // a parameter's gradient is put in place
    double graph_us = 0;      // a graph is entered, forward or backward
};
constexpr HostCosts host_costs(Execution execution) {
    return execution == Execution::eager ? HostCosts{23, 15, 15, 11} : HostCosts{0, 0, 7, 3, 50};
}

}  // namespace bucketwise
