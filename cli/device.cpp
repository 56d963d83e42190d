// bucketwise device list: the presets. bucketwise device show DEVICE: one of them, and how its
// data sheet becomes times where nothing was measured.
#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <boost/program_options.hpp>

#include "cli/commands.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/result_table.h"
#include "cli/shell/scenario_document.h"
#include "sim/base/error.h"
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

DEVICE is a preset. Each factor is the same for all of them, and a key by which a scenario's device can replace it.
)";

ResultTable device_table() {
    ResultTable table;
    table.title = "presets: peak rates of dense products in TFLOP/s, from data sheets";
    table.columns = {{"name", "preset"}, {"what", "what it is"}};
    for (const Arithmetic arithmetic : every<Arithmetic>) {
        const std::string name(name_of(arithmetic));
        table.columns.push_back(
            {name + "_tflop_per_s", name, -4, arithmetic != Arithmetic::float64});
    }
    table.columns.push_back({"memory_gb_per_s", "memory\nGB/s", 0});
    table.columns.push_back({"multiprocessors", "multi-\nprocessors", 0});
    table.columns.push_back({"sustained", "sustained", 2});
    table.columns.push_back({"source", "source", 0, false});
    for (const DevicePreset& preset : device_presets()) {
        const Device& device = preset.device;
        std::vector<Cell> row{device.name, std::string(preset.what)};
        for (const Arithmetic arithmetic : every<Arithmetic>) {
            const double peak = device.peak(arithmetic);
            row.push_back(peak > 0 ? Cell(peak) : Cell());
        }
        row.emplace_back(static_cast<double>(device.memory_bandwidth.count) * 1e-9);
        row.emplace_back(device.multiprocessors.value());
        row.emplace_back(device.sustained);
        row.emplace_back(std::string(preset.source));
        table.rows.push_back(std::move(row));
    }
    table.notes = {"sustained: share of its rates that a board's power lets last"};
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
    ResultTable table;
    table.title = fmt::format("{}: what a step makes of the data sheet where nothing was measured",
                              preset.what);
    table.columns = {{"factor", "factor"}};
    for (const PresetEnd end : every<PresetEnd>) {
        const std::string name(name_of(end));
        table.columns.push_back({name, name, 2});
    }
    table.columns.push_back({"what", "what it is"});
    for (const GpuFactor factor : every<GpuFactor>) {
        const FactorRange& known = range_of(factor);
        std::vector<Cell> row{std::string(name_of(factor))};
        row.insert(row.end(), known.range.begin(), known.range.end());
        row.emplace_back(std::string(known.what));
        table.rows.push_back(std::move(row));
    }
    const HostCosts eager = host_costs(Execution::eager);
    const HostCosts compiled = host_costs(Execution::compiled);
    table.notes = {
        fmt::format("peaks: {}", preset.source),
        fmt::format("host, eager: {:g} us for an operation forward, {:g} backward, {:g} for each "
                    "kernel, {:g} for a gradient; compiled: {:g} for each kernel",
                    eager.operation_us, eager.node_us, eager.kernel_us, eager.gradient_us,
                    compiled.kernel_us),
        "host_scale: about 0.6 for a fast desktop's CPU, 1.8 for an old or a busy server's",
        "a prior, fitted to published steps of single GPUs: results/devices has each row's error"};
    return table;
}

}  // namespace

CommandHelp device_list_help() {
    return {.usage = {"bucketwise device list [--format text|csv|json]"},
            .options = options_of({{"format", "text, csv or json", "text"}}),
            .text = device_list_text,
            .arguments = {.files = false}};
}

CommandHelp device_show_help() {
    return {.usage = {"bucketwise device show DEVICE [--format text|csv|json]"},
            .options = options_of({{"format", "text, csv or json", "text"}}),
            .text = device_show_text,
            .arguments = devices(),
            .positional = {"operand"},
            .required = {"operand"},
            .wants = "one device"};
}

int run_device_list(const CommandLine& line) {
    refuse_scenario(line.values, "device list");
    const auto format = choice_value(line.values, "format", every<TableFormat>);
    write_output("-", render(device_table(), format, Json::object()));
    return exit_done;
}

int run_device_show(const CommandLine& line) {
    const DevicePreset& preset = preset_named(text_value(line.values, "operand"));
    const auto format = choice_value(line.values, "format", every<TableFormat>);
    write_output("-", render(factor_table(preset), format, Json{{"device", preset.device.name}}));
    return exit_done;
}

}  // namespace bucketwise
