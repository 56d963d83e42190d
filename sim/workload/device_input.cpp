#include "sim/workload/device_input.h"

#include <fmt/format.h>

namespace bucketwise {
namespace {

std::string preset_list() {
    return fmt::format("a device preset ({})", fmt::join(device_preset_names(), ", "));
}

Device read_preset(const JsonPlace& place, const std::string& expected) {
    const std::optional<Device> preset =
        place.value->is_string() ? device_preset(place.value->get_ref<const std::string&>())
                                 : std::nullopt;
    if (!preset) {
        place.fail_name(expected, device_preset_names());
    }
    return *preset;
}

Bytes read_memory(const JsonPlace& place) {
    const double gib = read_number(place, {1e-3, 1 << 20});
    return {static_cast<std::int64_t>(gib * 1024 * static_cast<double>(bytes_per_mib))};
}

void read_peaks(const JsonPlace& place, Device& device) {
    const JsonObject peaks(place, {"float32", "tfloat32", "float16", "bfloat16", "float64"});
    for (const Arithmetic arithmetic : every<Arithmetic>) {
        peaks.read_optional(name_of(arithmetic),
                            device.peak_tflop_per_s[static_cast<std::size_t>(arithmetic)],
                            read_number, NumberRange{1e-6, 1e6});
    }
}

std::vector<std::string_view> known_keys() {
    std::vector<std::string_view> keys{"preset",
                                       "name",
                                       "peak_tflop_per_s",
                                       "memory_bandwidth_gb_per_s",
                                       "compute_efficiency",
                                       "memory_efficiency",
                                       "launch_us",
                                       "copy_launch_us",
                                       "copy_fixed_us",
                                       "graph_launch_us",
                                       "host_is_device",
                                       "multiprocessors",
                                       "memory_gib"};
    keys.insert(keys.end(), names_of<GpuFactor>.begin(), names_of<GpuFactor>.end());
    return keys;
}

// Shares of a peak may exceed it a little, as above 1 an algorithm needs fewer operations.
NumberRange allowed_range(GpuFactor factor) {
    return factor == GpuFactor::kernel_us || factor == GpuFactor::host_scale
               ? NumberRange{0, 100}
               : NumberRange{1e-3, 1.5};
}

// The given factors of a prior; or no prior, where given efficiencies or a launch replace it.
void read_prior(const JsonObject& object, Device& device) {
    if (device.host_is_device || object.has("compute_efficiency") ||
        object.has("memory_efficiency") || object.has("launch_us")) {
        device.prior.reset();
    }
    for (const GpuFactor factor : every<GpuFactor>) {
        const auto place = object.find(name_of(factor));
        if (!place) {
            continue;
        }
        if (!device.prior) {
            place->fail("a preset whose efficiencies and launch_us stay as they are",
                        "a device without a prior");
        }
        device.prior->given[static_cast<std::size_t>(factor)] =
            read_number(*place, allowed_range(factor));
    }
}

}  // namespace

Device read_device(const JsonPlace& place) {
    if (!place.value->is_object()) {
        return read_preset(place, preset_list() + " or an object");
    }
    const JsonObject object(place, known_keys());
    const bool overrides = object.has("preset");
    Device device = overrides ? read_preset(object.at("preset"), preset_list()) : Device{};
    if (!overrides || object.has("name")) {
        device.name = read_string(object.at("name"));
    }
    if (!overrides || object.has("peak_tflop_per_s")) {
        read_peaks(object.at("peak_tflop_per_s"), device);
    }
    if (!overrides || object.has("memory_bandwidth_gb_per_s")) {
        device.memory_bandwidth = read_bandwidth_gb_per_s(object.at("memory_bandwidth_gb_per_s"));
    }
    constexpr NumberRange efficiency{1e-3, 1};
    object.read_optional("compute_efficiency", device.compute_efficiency, read_number, efficiency);
    object.read_optional("memory_efficiency", device.memory_efficiency, read_number, efficiency);
    object.read_optional("launch_us", device.launch, read_duration_us);
    object.read_optional("copy_launch_us", device.copy_launch, read_duration_us);
    object.read_optional("copy_fixed_us", device.copy_fixed, read_duration_us);
    if (const auto host_is_device = object.find("host_is_device")) {
        device.host_is_device = read_boolean(*host_is_device);
        if (device.host_is_device) {
            // The preset's are a GPU's.
            device.graph_launch = Duration{0};
            device.memory.reset();
        }
    }
    read_prior(object, device);
    object.read_optional("graph_launch_us", device.graph_launch, read_duration_us);
    object.read_optional("multiprocessors", device.multiprocessors, read_integer, 1, 4096);
    object.read_optional("memory_gib", device.memory, read_memory);
    return device;
}

}  // namespace bucketwise
