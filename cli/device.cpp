// bucketwise device list: the presets. bucketwise device show DEVICE: how one's data sheet becomes
// times where nothing was measured.
#include <memory>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "sim/base/error.h"
#include "sim/base/transformed.h"
#include "sim/workload/device.h"
#include "sim/workload/gpu_prior.h"

namespace bucketwise {
namespace {

constexpr std::string_view device_list_text = R"(
examples:
  bucketwise device list
  bucketwise device list --format csv

A preset is a GPU's data sheet, and a prior, with a range, of what a training step makes of it.
)";

constexpr std::string_view device_show_text = R"(
examples:
  bucketwise device show A100
  bucketwise device show "RTX 4090" --format json

DEVICE is a preset. All presets share the factors. A scenario's device can replace each by the key of its name.
)";

NamedRow device_row(const DevicePreset& preset) {
    const Device& device = preset.device;
    NamedRow row{{"name", device.name},
                 {"what", std::string(preset.what)},
                 {"memory_gb_per_s", static_cast<double>(device.memory_bandwidth.count) * 1e-9},
                 {"multiprocessors", device.multiprocessors.value()},
                 {"sustained", device.sustained * device.tensor_sustained},
                 {"source", std::string(preset.source)}};
    for (const Arithmetic arithmetic : every<Arithmetic>) {
        if (const double peak = device.peak(arithmetic); peak > 0) {
            row[std::string(name_of(arithmetic)) + "_tflop_per_s"] = peak;
        }
    }
    return row;
}

ResultTable device_table() {
    std::vector<Column> columns{{"name", "preset"}, {"what", "what it is"}};
    for (const Arithmetic arithmetic : every<Arithmetic>) {
        if (arithmetic == Arithmetic::float8_rowwise) {
            continue;  // presets do not tell the two apart
        }
        const std::string name(name_of(arithmetic));
        columns.push_back({name + "_tflop_per_s", is_float8(arithmetic) ? "float8" : name, -4,
                           arithmetic != Arithmetic::float64});
    }
    columns.push_back({"memory_gb_per_s", "memory\nGB/s", 0});
    columns.push_back({"multiprocessors", "multi-\nprocessors", 0});
    columns.push_back({"sustained", "sustained", 2});
    columns.push_back({"source", "source", 0, false});
    ResultTable table = table_of(columns, transformed(device_presets(), device_row));
    table.title = "presets: peak rates of dense products in TFLOP/s, from data sheets";
    table.notes = {"sustained: share of its tensor cores' rates that a board's power lets last"};
    return table;
}

const DevicePreset& preset_named(const std::string& name) {
    const DevicePreset* const found = find_device_preset(name);
    if (found == nullptr) {
        const std::vector<std::string_view>& names = device_preset_names();
        throw InputError("device show", "", fmt::format("one of {}", fmt::join(names, ", ")),
                         name + did_you_mean(name, names));
    }
    return *found;
}

ResultTable factor_table(const DevicePreset& preset) {
    std::vector<Column> columns{{"factor", "factor"}};
    for (const PresetEnd end : every<PresetEnd>) {
        columns.push_back({std::string(name_of(end)), std::string(name_of(end)), 2});
    }
    columns.push_back({"what", "what it is"});
    std::vector<NamedRow> rows;
    for (const GpuFactor factor : every<GpuFactor>) {
        const FactorRange& known = range_of(factor);
        NamedRow& row = rows.emplace_back(
            NamedRow{{"factor", std::string(name_of(factor))}, {"what", std::string(known.what)}});
        for (const PresetEnd end : every<PresetEnd>) {
            row[std::string(name_of(end))] = known.range[static_cast<std::size_t>(end)];
        }
    }
    ResultTable table = table_of(columns, rows);
    table.title = fmt::format("{}: what a step makes of the data sheet where nothing was measured",
                              preset.what);
    const HostCosts eager = host_costs(Execution::eager);
    const HostCosts compiled = host_costs(Execution::compiled);
    table.notes = {
        fmt::format("peaks: {}", preset.source),
        fmt::format("host, eager: {:g} us for an operation forward, {:g} backward, {:g} for each "
                    "kernel, {:g} for a gradient; compiled: {:g} for each kernel",
                    eager.operation_us, eager.node_us, eager.kernel_us, eager.gradient_us,
                    compiled.kernel_us),
        "host_scale: about 0.6 for a fast desktop's CPU, 1.8 for an old or a busy server's",
        "a prior, fitted to published steps: results/scoreboard has the error of each source"};
    return table;
}

}  // namespace

CommandHelp device_list_help() {
    return list_help("bucketwise device list", device_list_text, device_table);
}

CommandHelp device_show_help() {
    struct Options {
        std::string name;
        TableFormat format = TableFormat::text;
    };
    const auto o = std::make_shared<Options>();
    return {.usage = {"bucketwise device show DEVICE [--format text|csv|json]"},
            .options = options_of({format_row(o->format)}),
            .text = device_show_text,
            .arguments = devices(),
            .positional = {"operand", 1, o->name},
            .required = {"operand"},
            .wants = "one device",
            .run = [o](const CommandLine&) {
                const DevicePreset& preset = preset_named(o->name);
                write_output("-", render(factor_table(preset), o->format,
                                         Json{{"device", preset.device.name}}));
                return exit_done;
            }};
}

}  // namespace bucketwise
