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

JsonType<Bytes> memory_gib() {
    return {as::number({1e-3, 1 << 20}), [](const JsonPlace& place) {
                const double gib = read_number(place, {1e-3, 1 << 20});
                return Bytes{
                    static_cast<std::int64_t>(gib * 1024 * static_cast<double>(bytes_per_mib))};
            }};
}

const JsonTable<Device>& peak_keys() {
    static const JsonTable<Device> table = [] {
        std::vector<JsonKey<Device>> keys;
        for (const Arithmetic arithmetic : every<Arithmetic>) {
            keys.push_back(
                {name_of(arithmetic),
                 target_in<Device>(
                     [arithmetic](Device& device) -> double& {
                         return device.peak_tflop_per_s[static_cast<std::size_t>(arithmetic)];
                     },
                     as::number({1e-6, 1e6})),
                 "the preset's, or not supported",
                 "peak dense rate of matrix products, in 10^12 floating-point "
                 "operations per second"});
        }
        return JsonTable<Device>{"peak rates", "Peak rates by arithmetic", std::move(keys)};
    }();
    return table;
}

// A factor of a prior. Shares of a peak may exceed it a little: above 1 an algorithm needs fewer
// operations.
JsonKey<Device> factor_key(GpuFactor factor, std::string_view meaning) {
    const bool is_share = factor != GpuFactor::kernel_us && factor != GpuFactor::host_scale &&
                          factor != GpuFactor::rank_spread;
    const JsonType<double> type =
        as::number(is_share ? NumberRange{1e-3, 1.5} : NumberRange{0, 100});
    KeyUse<Device> use{type};
    use.read = [factor, read = type.read](const JsonPlace& place, Device& device) {
        if (!device.prior) {
            place.fail("a preset whose efficiencies and launch_us stay as they are",
                       "a device without a prior");
        }
        device.prior->given[static_cast<std::size_t>(factor)] = read(place);
    };
    return {name_of(factor), use, "a prior's", meaning};
}

// Some values of a GPU's preset are none of a CPU.
KeyUse<Device> host_is_device() {
    KeyUse<Device> use{as::boolean()};
    use.read = [](const JsonPlace& place, Device& device) {
        device.host_is_device = read_boolean(place);
        if (device.host_is_device) {
            device.graph_launch = Duration{0};
            device.memory.reset();
            device.prior.reset();
        }
    };
    return use;
}

// Without a preset; or the prior's factors, with one.
std::vector<Json> device_conditions() {
    Json factors;
    for (const GpuFactor factor : every<GpuFactor>) {
        factors[std::string(name_of(factor))] = {"preset"};
    }
    return {{{"dependentRequired", factors}},
            {{"anyOf",
              {{{"required", {"preset"}}},
               {{"required", {"name", "peak_tflop_per_s", "memory_bandwidth_gb_per_s"}}}}}}};
}

const JsonTable<Device>& device_keys() {
    const JsonType<double> efficiency = as::number({1e-3, 1});
    using enum GpuFactor;
    static const JsonTable<Device> table{
        "device",
        "A device of your own",
        {{"preset", JsonDescription{as::names_schema(device_preset_names()), "name"}, "none",
          "where the other values come from"},
         {"name", target(&Device::name, as::text()), "the preset's", "shown in reports"},
         {"peak_tflop_per_s",
          JsonDescription{reference_to(peak_keys().text()), "object", {&peak_keys().text()}},
          "the preset's", "peak dense rate by arithmetic"},
         {"memory_bandwidth_gb_per_s", target(&Device::memory_bandwidth, as::gb_per_s()),
          "the preset's", "peak memory bandwidth"},
         {"compute_efficiency", target(&Device::compute_efficiency, efficiency),
          "the preset's, or 1", "share of the peak rate that matrix products reach, 0.001 to 1"},
         {"memory_efficiency", target(&Device::memory_efficiency, efficiency), "the preset's, or 1",
          "share of the peak bandwidth that passes over memory reach, 0.001 to 1"},
         {"launch_us", target(&Device::launch, as::microseconds()), "the preset's, or 0",
          "host time to launch one operation; if launching takes longer than computing, the step "
          "is launch-bound"},
         {"copy_launch_us", target(&Device::copy_launch, as::microseconds()), "`launch_us`",
          "host time to launch one copy or cast, which is a single launch where an operation may "
          "be several"},
         {"copy_fixed_us", target(&Device::copy_fixed, as::microseconds()), "the preset's, or 0",
          "time of a copy or cast on the device beyond moving its bytes. Not where a link or "
          "workload says `copy_gb_per_s`, which was measured with it"},
         {"host_is_device", host_is_device(), "false",
          "a CPU: the thread that launches also computes"},
         {"graph_launch_us", target(&Device::graph_launch, as::microseconds()),
          "the preset's, or 0",
          "host time to launch a whole step captured as one CUDA graph, for `cuda_graph`"},
         {"multiprocessors", target(&Device::multiprocessors, as::integer(1, 4096)),
          "the preset's, or as GPUs of the link's generation have",
          "of a GPU. Collectives take some away from computing, and a prior's matrix products are "
          "spread over them. Peaks stay those of the whole GPU"},
         {"memory_gib", target(&Device::memory, memory_gib()), "the preset's",
          "memory, which `predict` compares with [what training "
          "needs](../docs/predict.md#memory)"},
         factor_key(tensor_efficiency,
                    "share of the tensor cores' peak that products of large tiles reach, 0.001 to "
                    "1.5 as the next ones"),
         factor_key(vector_efficiency,
                    "share of the other units' peak that products of large tiles reach"),
         factor_key(convolution_efficiency, "share of those two that convolutions reach"),
         factor_key(flash_efficiency,
                    "share that attention reaches in one kernel that overlaps its loads"),
         factor_key(fused_efficiency, "share that attention reaches in one kernel that does not"),
         factor_key(pass_efficiency, "share of the peak bandwidth that passes over tensors reach"),
         factor_key(kernel_us, "time of each kernel beyond its work, 0 to 100"),
         factor_key(host_scale,
                    "host times, 1 as a server's, 0 to 100; about 0.6 for a fast desktop's CPU, "
                    "1.8 for an old or a busy server's"),
         factor_key(
             rank_spread,
             "how much longer than on the mean rank computing takes on the slowest of e "
             "ranks, of e² twice as much; all others wait for it. Not where the scenario has "
             "`stragglers` or says itself how ranks vary")},
        {},
        device_conditions()};
    return table;
}

}  // namespace

Device read_device(const JsonPlace& place) {
    if (!place.value->is_object()) {
        return read_preset(place, preset_list() + " or an object");
    }
    const JsonObject object = device_keys().open(place);
    Device device;
    if (object.has("preset")) {
        device = read_preset(object.at("preset"), preset_list());
    } else {
        for (const char* key : {"name", "peak_tflop_per_s", "memory_bandwidth_gb_per_s"}) {
            static_cast<void>(object.at(key));
        }
    }
    use_present(object, "peak_tflop_per_s",
                [&](const JsonPlace& peaks) { peak_keys().read(peak_keys().open(peaks), device); });
    if (object.has("compute_efficiency") || object.has("memory_efficiency") ||
        object.has("launch_us")) {
        device.prior.reset();  // these replace it
    }
    device_keys().read(object, device);
    return device;
}

JsonType<Device> device_type() {
    return {
        {{{"oneOf", {as::names_schema(device_preset_names()), reference_to(device_keys().text())}}},
         "preset or object",
         {&device_keys().text()}},
        read_device};
}

}  // namespace bucketwise
