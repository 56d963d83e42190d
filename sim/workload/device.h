// The device of one rank: rates that turn work into time, and the host's cost of a launch.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/names.h"
#include "sim/base/units.h"
#include "sim/workload/gpu_prior.h"
#include "sim/workload/model.h"

namespace bucketwise {

// The arithmetic a matrix product runs in. float32 and tfloat32 read the same 4-byte tensors. With
// float8 the linear layers of blocks multiply in 8 bits, with a scale for each tensor or each row
// (sim/workload/float8.h); all else is as with bfloat16.
enum class Arithmetic : std::uint8_t {
    float32,
    tfloat32,
    float16,
    bfloat16,
    float64,
    float8_tensorwise,
    float8_rowwise
};

constexpr bool is_float8(Arithmetic arithmetic) {
    return arithmetic == Arithmetic::float8_tensorwise || arithmetic == Arithmetic::float8_rowwise;
}
// The arithmetic of products that float8 leaves alone.
constexpr Arithmetic beside_float8(Arithmetic arithmetic) {
    return is_float8(arithmetic) ? Arithmetic::bfloat16 : arithmetic;
}

template <>
inline constexpr auto names_of<Arithmetic> = names("float32", "tfloat32", "float16", "bfloat16",
                                                   "float64", "float8_tensorwise",
                                                   "float8_rowwise");

template <>
inline constexpr std::array other_names_of<Arithmetic>{
    OtherName<Arithmetic>{"fp32", Arithmetic::float32},
    OtherName<Arithmetic>{"float", Arithmetic::float32},
    OtherName<Arithmetic>{"tf32", Arithmetic::tfloat32},
    OtherName<Arithmetic>{"fp16", Arithmetic::float16},
    OtherName<Arithmetic>{"half", Arithmetic::float16},
    OtherName<Arithmetic>{"bf16", Arithmetic::bfloat16},
    OtherName<Arithmetic>{"fp64", Arithmetic::float64},
    OtherName<Arithmetic>{"double", Arithmetic::float64}};

// The size of tensors around the products: 2 with float8, to which only operands are cast.
Bytes element_size(Arithmetic arithmetic);

struct Device {
    std::string name;
    // Peak rate by Arithmetic, in 10^12 floating-point operations per second; 0 = not supported.
    std::array<double, every<Arithmetic>.size()> peak_tflop_per_s{};
    BytesPerSecond memory_bandwidth;  // peak
    double compute_efficiency = 1.0;  // share of the peak rate that matrix products reach, (0, 1]
    double memory_efficiency = 1.0;   // share of the peak bandwidth that passes reach, (0, 1]
    Duration launch{0};               // host time to launch one operation
    // Host time to launch one copy or cast, always a single launch; none: as an operation.
    std::optional<Duration> copy_launch = {};
    Duration copy_fixed{0};       // a copy's time on the device beyond moving its bytes
    bool host_is_device = false;  // a CPU: the thread that launches also computes
    Duration graph_launch{0};     // host time to launch a whole step as one CUDA graph
    std::optional<std::int64_t> multiprocessors = {};  // of a GPU
    std::optional<Bytes> memory = {};                  // none: not known
    // For presets: the factors from peaks to rates where nothing was measured, and their inputs.
    std::optional<GpuPrior> prior = {};
    bool wide = false;             // 128 float32 lanes a multiprocessor, not 64
    bool flash_attention = false;  // has kernels for it: Ampere and later
    // Share of the tensor cores' peak that Ampere's synchronous instructions reach; below 1 there
    // are asynchronous ones.
    double synchronous_share = 1;
    double sustained = 1;         // share of the peak rates that its power lets last
    double tensor_sustained = 1;  // of the tensor cores besides
    bool operator==(const Device&) const = default;

    [[nodiscard]] Duration time_to_launch_copy() const { return copy_launch.value_or(launch); }
    [[nodiscard]] double peak(Arithmetic arithmetic) const {
        return peak_tflop_per_s[static_cast<std::size_t>(arithmetic)];
    }
};

// Published peak figures, and the way to times where nothing was measured.
struct DevicePreset {
    Device device;
    std::string_view what;    // a short description
    std::string_view source;  // of its peaks
};
const std::vector<DevicePreset>& device_presets();  // sorted by name
// Ignores case, spaces, hyphens and the maker's name, and accepts the names of the board among
// others of its chip ("h100", "a100-80gb", "NVIDIA GeForce RTX 4090"). Null: no such preset.
const DevicePreset* find_device_preset(std::string_view name);
std::optional<Device> device_preset(std::string_view name);
const std::vector<std::string_view>& device_preset_names();

// Roofline (Williams, Waterman and Patterson 2009): a pass takes as long as its arithmetic or its
// memory traffic, whichever is longer. In seconds, not rounded.
// Precondition (asserted): the device supports the arithmetic.
double roofline_seconds(const Work& work, const Device& device, Arithmetic arithmetic);

// Bandwidth of copies within device memory: each byte is read and written.
BytesPerSecond copy_bandwidth(const Device& device);

}  // namespace bucketwise
