// bucketwise bench compute SCENARIO: one rank's step without communication, predicted and measured,
// as a whole and layer by layer.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "bench/benches.h"
#include "calibrate/comparison/compute_comparison.h"
#include "cli/ranks/backends.h"
#include "cli/ranks/rank_job.h"
#include "cli/ranks/temporary_folder.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/progress.h"
#include "cli/shell/result_table.h"
#include "cli/shell/scenario_document.h"
#include "hw/measure/measurer.h"
#include "hw/record/environment.h"
#include "sim/base/error.h"
#include "sim/base/json_output.h"
#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::string_view compute_explanation = R"(
examples:
  bucketwise bench compute scenarios/transformer_small.json
  bucketwise bench compute scenarios/transformer_small.json --backend nccl --set /workload/batch=64
  bucketwise bench compute scenarios/resnet_small.json --backend nccl --set /step/cuda_graph=true --format csv

Each operation is measured by itself, and so is what the host takes to launch it; from these the step is predicted, and
compared with steps that ran freely. The fitted device is the roofline that explains all operations best.
)";

po::options_description compute_options() {
    po::options_description options("options", 100);
    add_options(options, {{"backend", "gloo: on the CPU; nccl: on the first GPU", "gloo"},
                          {"rounds", "how often to measure; one more round warms up", "20"},
                          {"format", "text, csv (every operation) or json (all)", "text"}});
    add_scenario_options(options);
    add_options(options, {{"help,h", "show this", no_value}});
    return options;
}

struct Measured {
    EnvironmentRecord environment;
    std::vector<ComputeRecord> records;
};

// As the only rank of a job.
Measured measure_compute(const Backend& backend, const Scenario& scenario, std::int64_t rounds) {
    const TemporaryFolder store;
    const MeetingPoint meeting{
        .store = store.path(), .job = "compute", .address = "127.0.0.1", .interface = {}};
    const StepInput input = replay_input(scenario);
    MeasureProgress line;
    RankSession session(backend.connect(meeting, {}, {}),
                        [&](const std::string& text) { line.show(text); });
    const std::unique_ptr<RankDevice> device =
        session.connection().device(scenario, input.workload, settings_of_replay(scenario.sync));
    Measured measured;
    measured.environment.machine = read_environment();
    measured.environment.gpu = session.connection().gpu();
    ReplayMeasurer measurer(scenario, input, backend.transport({}, 1), *device, session);
    device->calibrate();
    for (std::int64_t round = -1; round < rounds; ++round) {
        session.expect(rounds, std::max<std::int64_t>(round, 0));
        session.show("compute alone");
        for (const Measurement& record : measurer.measure({.protocol = Protocol::compute}, round,
                                                          static_cast<std::uint64_t>(round & 1))) {
            if (round >= 0) {
                measured.records.push_back(std::get<ComputeRecord>(record));
            }
        }
    }
    return measured;
}

// --- reports -------------------------------------------------------------------------------------

std::string time_row(const char* name, const ComparedTime& time) {
    return fmt::format("  {:<10} {:>14.3f} {:>14.3f} {:>9.1f} %\n", name, time.predicted_us / 1e3,
                       time.measured_us / 1e3, 100 * time.error());
}

std::string bound_text(const ComputeComparison& comparison) {
    if (comparison.graph_launch) {
        return fmt::format(
            "launched as one CUDA graph in {:.1f} us; the device is busy for "
            "{:.3f} ms\n",
            to_us(comparison.graph_launch->time), comparison.device_us / 1e3);
    }
    if (!comparison.launch) {
        return "the host is the device: launching is part of the operations\n";
    }
    return fmt::format(
        "{}-bound: launching {} operations takes the host {:.3f} ms ({:.2f} us each, spread "
        "{:.0f} %), the device is busy for {:.3f} ms\n",
        comparison.is_launch_bound() ? "launch" : "compute", comparison.operations.size(),
        comparison.host_us / 1e3, to_us(comparison.launch->time), 100 * comparison.launch->spread,
        comparison.device_us / 1e3);
}

std::string layers_text(const ComputeComparison& comparison, Arithmetic arithmetic) {
    if (!comparison.device) {
        return "no device could be fitted: too few operations, or all bound by the same roof\n";
    }
    const DeviceFit& fit = *comparison.device;
    std::string text = fmt::format(
        "\nlayer by layer against the fitted device ({:.2f} TFLOP/s {}, {:.1f} GB/s)\n"
        "median of |error| over operations {:.1f} %; the longest ten:\n"
        "  {:<44} {:>12} {:>12} {:>9}\n",
        fit.device.peak(arithmetic), name_of(arithmetic), to_gb_per_s(fit.device.memory_bandwidth),
        100 * fit.typical_residual, "operation", "measured us", "fitted us", "error");
    std::vector<ComparedOperation> longest = comparison.operations;
    std::stable_sort(longest.begin(), longest.end(),
                     [](const auto& a, const auto& b) { return a.measured_us > b.measured_us; });
    longest.resize(std::min<std::size_t>(longest.size(), 10));
    for (const ComparedOperation& operation : longest) {
        text += fmt::format("  {:<44} {:>12.1f} {:>12.1f} {:>7.1f} %\n", operation.name,
                            operation.measured_us, operation.fitted_us,
                            100 * (operation.fitted_us / operation.measured_us - 1));
    }
    return text;
}

std::string text_report(const ComputeComparison& comparison, Arithmetic arithmetic,
                        const std::string& hardware) {
    return fmt::format("one rank without communication; {}\n  {:<10} {:>14} {:>14} {:>11}\n",
                       hardware, "", "predicted ms", "measured ms", "error") +
           time_row("forward", comparison.forward) + time_row("backward", comparison.backward) +
           time_row("step", comparison.step) +
           fmt::format("spread of the measured step {:.1f} %\n", 100 * comparison.noise) +
           bound_text(comparison) + layers_text(comparison, arithmetic);
}

std::string csv_report(const ComputeComparison& comparison) {
    std::string text = "operation,pass,measured_us,fitted_us,launch_us\n";
    for (const ComparedOperation& operation : comparison.operations) {
        text += fmt::format("\"{}\",{},{:.6g},{:.6g},{:.6g}\n", operation.name,
                            operation.in_backward ? "backward" : "forward", operation.measured_us,
                            operation.fitted_us, operation.launch_us);
    }
    return text;
}

Json time_json(const ComparedTime& time) {
    return {{"predicted_ms", time.predicted_us / 1e3},
            {"measured_ms", time.measured_us / 1e3},
            {"error", time.error()}};
}

std::string json_report(const ComputeComparison& comparison, Arithmetic arithmetic,
                        const std::string& hardware, const std::string& libraries) {
    Json operations = Json::array();
    for (const ComparedOperation& operation : comparison.operations) {
        operations.push_back({{"name", operation.name},
                              {"pass", operation.in_backward ? "backward" : "forward"},
                              {"measured_us", operation.measured_us},
                              {"fitted_us", operation.fitted_us},
                              {"launch_us", operation.launch_us}});
    }
    Json document{{"hardware", hardware},
                  {"libraries", libraries},
                  {"date", utc_now()},
                  {"forward", time_json(comparison.forward)},
                  {"backward", time_json(comparison.backward)},
                  {"step", time_json(comparison.step)},
                  {"noise", comparison.noise},
                  {"host_ms", comparison.host_us / 1e3},
                  {"device_ms", comparison.device_us / 1e3},
                  {"operations", std::move(operations)}};
    const auto time_us = [](const auto& launch) { return to_us(launch.time); };
    add_optional(document, "launch_us", comparison.launch, time_us);
    add_optional(document, "graph_launch_us", comparison.graph_launch, time_us);
    if (comparison.device) {
        document["device"] = {
            {"tflop_per_s", comparison.device->device.peak(arithmetic)},
            {"arithmetic", name_of(arithmetic)},
            {"memory_gb_per_s", to_gb_per_s(comparison.device->device.memory_bandwidth)},
            {"typical_residual", comparison.device->typical_residual}};
    }
    return json_text(document);
}

}  // namespace

CommandHelp bench_compute_help() {
    return {.usage = {"bucketwise bench compute SCENARIO [OPTIONS]"},
            .options = compute_options(),
            .text = compute_explanation};
}

int run_bench_compute(const CommandLine& line) {
    const po::variables_map& values = line.values;
    const std::string file = scenario_file(values, "bench compute");
    const Backend& backend = requested_backend(values);
    backend.check({});
    Scenario scenario = parse_scenario(read_scenario_document(values, file), file, read_text_file);
    backend.check_scenario(scenario, file);
    const auto* workload = std::get_if<ModelWorkload>(&scenario.workload);
    if (workload == nullptr) {
        throw InputError(file, "/workload", "a model, whose operations can be computed",
                         "gradients of which only the time is known");
    }
    const std::int64_t rounds = whole_number(values, "rounds", {1, 100'000});
    const auto format = choice_value(values, "format", every<TableFormat>);
    scenario.group = {.ranks = 1, .ranks_per_node = 1};
    const Measured measured = measure_compute(backend, scenario, rounds);
    const ComputeComparison comparison = compare_compute(measured.records, scenario);
    const std::string hardware = hardware_of(measured.environment);
    const Arithmetic arithmetic = workload->arithmetic;
    write_output("-", format == TableFormat::text ? text_report(comparison, arithmetic, hardware)
                      : format == TableFormat::csv
                          ? csv_report(comparison)
                          : json_report(comparison, arithmetic, hardware, backend.libraries()));
    return exit_done;
}

}  // namespace bucketwise
