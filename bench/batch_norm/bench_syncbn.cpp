// bucketwise bench syncbn: time and peak memory of a BatchNorm layer that is synchronised over
// ranks, by implementation, batch and width; on real ranks, simulated, and published.
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/batch_norm/layer_rank.h"
#include "bench/bench.h"
#include "bench/benches.h"
#include "cli/shell/files.h"
#include "cli/shell/scenario_document.h"
#include "hw/record/environment.h"
#include "sim/base/error.h"
#include "sim/base/statistics.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::string_view explanation = R"(
examples:
  bucketwise bench syncbn --ranks 2
  bucketwise bench syncbn --backend nccl --ranks 2 --batch 32,64 --format csv
  bucketwise bench syncbn scenarios/syncbn_a4000.json --simulate --published scenarios/published/syncbn.csv
  bucketwise bench syncbn scenarios/syncbn_a4000.json --simulate --backend gloo --passes forward

A BatchNorm layer over all ranks, on [batch, width] float32 on each of them. gather works like PyTorch's SyncBatchNorm
(an all-gather of statistics; an all-reduce in backward), fused sums both ways in one all-reduce each. A time runs from
the first launch until the device has finished, on the slowest rank. Memory is the peak of live tensors: input, output,
their gradients and parameters, each in whole blocks of 512 bytes, as PyTorch's allocator counts. pytorch and selfmade
are the systems of the published table; they run forward only, and can only be simulated.
)";

const std::vector<OptionText> own_options{
    {"simulate",
     "simulate the scenario's device, ranks and link; with --backend too, beside measured ranks",
     no_value},
    {"implementations",
     "gather, fused, pytorch, selfmade; default: the first two, or, only simulated, all"},
    {"batch", "rows of each rank; default: those of --published, or 32"},
    {"width", "channels; default: those of --published, or 128,256,512,1024"},
    {"passes", "of gather and fused: forward, or both (and backward)", "both"},
    {"ranks", "default: the scenario's, or 2"},
    {"rounds", "how often to measure everything, after a round that warms up", "5"},
    {"iterations", "steps back to back in each round", "20"},
    {"seed", "of the order within each round", "1"},
    {"published", "CSV file with the same columns, to print beside ours with errors"},
    {"format", "text, csv or json", "text"},
    {"link", "link file to use instead of the scenario's"}};

struct SimulatedMachine {
    std::string scenario;  // its name
    Device device;
    RankGroup group;
    LinkParameters link;
};

struct SyncBnOptions : BenchOptions {
    std::optional<SimulatedMachine> machine;  // none: nothing is simulated
    std::int64_t ranks = 2;
    std::vector<BatchNormLayer> layers;  // rows of the table, in its order
    std::int64_t iterations = 0;
    std::optional<CsvFile> published;
    TableFormat format = TableFormat::text;
};

// --- options -------------------------------------------------------------------------------------

// As typed, else each value of the published column once, else the standard.
std::vector<std::string> listed(const po::variables_map& values, const char* option,
                                const CsvFile* published, const char* column,
                                const char* standard) {
    if (values.count(option) != 0) {
        return list_value(values, option);
    }
    if (published == nullptr || published->rows() == 0) {
        return split_at_commas(standard);
    }
    std::vector<std::string> all;
    for (std::size_t row = 0; row < published->rows(); ++row) {
        all.push_back(published->text(row, column));
    }
    return each_once(all);
}

std::vector<BatchNormLayer> requested_layers(const po::variables_map& values,
                                             const SyncBnOptions& options) {
    // float32 counts the rows of all ranks together exactly, below 2^24 of them.
    const std::int64_t most_rows = ((std::int64_t{1} << 24U) - 1) / options.ranks;
    constexpr std::int64_t most_channels = std::int64_t{1} << 20U;
    constexpr std::int64_t most_elements = std::int64_t{1} << 30U;
    const bool measures = options.backend != nullptr;
    const CsvFile* published = options.published ? &*options.published : nullptr;
    const auto passes = choice_value(values, "passes", every<BatchNormPasses>);
    std::vector<BatchNormLayer> layers;
    for (const std::string& name :
         listed(values, "implementations", measures ? nullptr : published, "implementation",
                measures ? "gather,fused" : "gather,fused,pytorch,selfmade")) {
        const auto system = choice_named(name, every<BatchNormSystem>, "--implementations");
        if (measures && !real_layer_of(system)) {
            throw InputError("--implementations", "",
                             "gather or fused, as " + name + " can only be simulated", name);
        }
        for (const std::string& batch : listed(values, "batch", published, "batch_size", "32")) {
            for (const std::string& width :
                 listed(values, "width", published, "hidden_dim", "128,256,512,1024")) {
                layers.push_back(
                    {.system = system,
                     .passes = real_layer_of(system) ? passes : BatchNormPasses::forward,
                     .rows = whole_number(batch, "--batch", {0, most_rows}),
                     .channels = whole_number(width, "--width", {1, most_channels}),
                     .ranks = options.ranks});
                if (layers.back().rows * layers.back().channels > most_elements) {
                    throw InputError("--batch", "", "at most 2^30 elements on each rank",
                                     fmt::format("{} x {}", batch, width));
                }
            }
        }
    }
    return each_once(layers);
}

SimulatedMachine requested_machine(const po::variables_map& values,
                                   const std::optional<RankIdentity>& identity,
                                   SyncBnOptions& options) {
    if (values.count("scenario") == 0) {
        throw UsageError{
            "bench syncbn --simulate: expected a scenario, whose device, ranks and link are "
            "simulated, got none; for example scenarios/syncbn_a4000.json"};
    }
    const std::string& file = text_value(values, "scenario");
    const Json document = scenario_for_ranks(values, identity, file);
    options.document = document.dump();
    const Scenario scenario = parse_scenario(document, file, read_text_file);
    const auto device =
        std::visit([](const auto& workload) { return workload.device; }, scenario.workload);
    if (!device) {
        throw InputError(file, "/workload/device", "a device to simulate", "none");
    }
    if (!(device->peak(Arithmetic::float32) > 0)) {
        throw InputError(file, "/workload/device", "a device with a float32 peak", device->name);
    }
    return {scenario.name, *device, scenario.group, scenario.link};
}

// A node of a hierarchical link may not hold them evenly.
void set_ranks(SimulatedMachine& machine, std::int64_t ranks) {
    if (machine.group.ranks == ranks) {
        return;
    }
    const bool hierarchical = machine.link.algorithm == Algorithm::hierarchical;
    const auto refuse = [&](const std::string& expected) {
        throw InputError("--ranks", "", expected, fmt::format("{}", ranks));
    };
    if (machine.link.topology) {
        refuse(fmt::format("the scenario's {}, which its topology was made ready for",
                           machine.group.ranks));
    }
    if (hierarchical && ranks % machine.group.ranks_per_node != 0) {
        refuse(fmt::format("a multiple of the scenario's ranks_per_node, {}",
                           machine.group.ranks_per_node));
    }
    machine.group = {ranks, hierarchical ? machine.group.ranks_per_node : ranks};
}

std::int64_t ranks_to_run(const po::variables_map& values, const SyncBnOptions& options,
                          const std::optional<RankIdentity>& identity) {
    const std::int64_t most = options.backend != nullptr ? most_ranks_here : 1'000'000;
    if (const auto ranks = requested_ranks(values, identity, most)) {
        return *ranks;
    }
    const std::int64_t ranks = options.machine ? options.machine->group.ranks : 2;
    if (ranks > most) {
        throw InputError("--ranks", "", fmt::format("at most {} on one machine", most),
                         fmt::format("the scenario's {}", ranks));
    }
    return ranks;
}

SyncBnOptions read_options(const CommandLine& line, const std::optional<RankIdentity>& identity) {
    const po::variables_map& values = line.values;
    SyncBnOptions options;
    read_bench("syncbn", line, identity, {"rounds", "iterations", "seed"}, options);
    if (!options.simulates && values.count("scenario") != 0) {
        throw UsageError{fmt::format(
            "bench syncbn: expected a scenario only with --simulate, got \"{}\"; see bucketwise "
            "bench syncbn --help",
            text_value(values, "scenario"))};
    }
    const auto unused = first_typed(values, {"link", "set"});
    if (!options.simulates && unused) {
        throw UsageError{
            fmt::format("bench syncbn: --{} has no effect without --simulate; see "
                        "bucketwise bench syncbn --help",
                        *unused)};
    }
    if (options.simulates) {
        options.machine = requested_machine(values, identity, options);
    }
    options.ranks = ranks_to_run(values, options, identity);
    if (options.machine) {
        set_ranks(*options.machine, options.ranks);
    }
    if (values.count("published") != 0) {
        check_can_be_read_again(text_value(values, "published"));
        options.published = CsvFile::read(text_value(values, "published"));
        options.published->require_columns(
            {"implementation", "batch_size", "hidden_dim", "median_s", "max_memory_bytes"});
    }
    options.layers = requested_layers(values, options);
    options.iterations = whole_number(values, "iterations", {1, 1'000'000});
    options.format = choice_value(values, "format", every<TableFormat>);
    return options;
}

// --- the table -----------------------------------------------------------------------------------

constexpr int digits = -4;  // of a time

std::vector<BenchColumn> columns_of(const SyncBnOptions& options) {
    const bool measures = options.backend != nullptr;
    std::vector<BenchColumn> columns{{{"implementation", "implementation"}},
                                     {{"batch_size", "batch"}},
                                     {{"hidden_dim", "width"}},
                                     {{"median_s", "median\ns", digits}},
                                     {{"max_memory_bytes", "memory\nbytes"}}};
    const auto add = [&](bool wanted, const std::vector<BenchColumn>& more) {
        columns.insert(columns.end(), more.begin(), wanted ? more.end() : more.begin());
    };
    add(measures,
        {{{"p10_s", "p10\ns", digits}}, {{"p90_s", "p90\ns", digits}}, {{"samples", "samples"}}});
    add(measures && options.machine,
        {{{"simulated_s", "simulated\ns", digits}},
         error_column({"simulated_error_percent", "error\n%", 1}, "simulated_s", "median_s"),
         {{"simulated_memory_bytes", "simulated\nbytes"}}});
    add(options.published.has_value(),
        {{{"published_implementation", "published\nas"}},
         {{"published_median_s", "published\ns", digits}},
         error_column({"median_error_percent", "error\n%", 1}, "median_s", "published_median_s"),
         {{"published_max_memory_bytes", "published\nbytes"}},
         error_column({"max_memory_error_percent", "error\n%", 2}, "max_memory_bytes",
                      "published_max_memory_bytes")});
    add(true, {{{"passes", "passes"}}, {{"ranks", "ranks"}}});
    return columns;
}

// The row of the layer's own name, or else of the published system that works alike: pytorch for
// gather, selfmade for fused.
void add_published(const CsvFile& file, const BatchNormLayer& layer, BenchRow& row) {
    using enum BatchNormSystem;
    const bool gathers = layer.system == gather || layer.system == pytorch;
    for (const std::string_view name :
         {name_of(layer.system), name_of(gathers ? pytorch : selfmade)}) {
        if (const auto found = find_row(file, {{"implementation", std::string(name)},
                                               {"batch_size", layer.rows},
                                               {"hidden_dim", layer.channels}})) {
            row["published_implementation"] = std::string(name);
            row["published_median_s"] = file.number(*found, "median_s");
            row["published_max_memory_bytes"] =
                std::int64_t{std::llround(file.number(*found, "max_memory_bytes"))};
            return;
        }
    }
}

BenchRow row_of(const SyncBnOptions& options, const BatchNormLayer& layer,
                const MeasuredLayer* measured) {
    BenchRow row{{"implementation", std::string(name_of(layer.system))},
                 {"batch_size", layer.rows},
                 {"hidden_dim", layer.channels},
                 {"passes", std::string(name_of(layer.passes))},
                 {"ranks", layer.ranks}};
    if (options.machine) {
        const SimulatedMachine& machine = *options.machine;
        const std::vector<LayerEvent> events = events_of(layer);
        row["median_s"] = row["simulated_s"] =
            to_us(time_of(events, machine.device, machine.group, machine.link)) * 1e-6;
        row["max_memory_bytes"] = row["simulated_memory_bytes"] = memory_peak(events).size.count;
    }
    if (measured != nullptr) {
        const std::vector<double>& us = measured->samples_us;
        row["samples"] = std::ssize(us);
        row["median_s"] = median(us) * 1e-6;
        row["p10_s"] = quantile(us, 0.1) * 1e-6;
        row["p90_s"] = quantile(us, 0.9) * 1e-6;
        row["max_memory_bytes"] = measured->peak_memory_bytes;
    }
    if (options.published) {
        add_published(*options.published, layer, row);
    }
    return row;
}

std::vector<std::string> notes_of(const SyncBnOptions& options, const std::vector<BenchRow>& rows) {
    std::size_t found = 0;
    bool other = false;
    bool other_passes = false;
    for (const BenchRow& row : rows) {
        if (const auto name = row.find("published_implementation"); name != row.end()) {
            ++found;
            other = other || name->second != row.at("implementation");
            other_passes = other_passes || row.at("passes") == Cell("both");
        }
    }
    std::vector<std::string> notes;
    if (options.published && found < options.published->rows()) {
        notes.push_back(fmt::format("{} of {} published rows have a row here.", found,
                                    options.published->rows()));
    }
    if (other) {
        notes.emplace_back(
            "gather stands beside the published pytorch, fused beside selfmade: the same "
            "collectives, but other code on another machine.");
    }
    if (other_passes) {
        notes.emplace_back(
            "The published numbers are of forward alone (--passes forward), these of forward and "
            "backward.");
    }
    return notes;
}

void print(const SyncBnOptions& options, const EnvironmentRecord& environment,
           const std::vector<MeasuredLayer>& measured) {
    std::vector<BenchRow> rows;
    for (std::size_t i = 0; i < options.layers.size(); ++i) {
        rows.push_back(
            row_of(options, options.layers[i], measured.empty() ? nullptr : &measured[i]));
    }
    ResultTable table = table_of(columns_of(options), rows);
    table.title = fmt::format("SyncBatchNorm layer, float32, {}", text_of_ranks(options.ranks));
    table.notes = notes_of(options, rows);
    Json head{{"date", utc_now()}, {"ranks", options.ranks}};
    if (options.backend != nullptr) {
        table.title += fmt::format("\nmeasured over {}; {}; the slowest rank's times",
                                   environment.libraries, hardware_of(environment));
        head["hardware"] = hardware_of(environment);
        head["libraries"] = environment.libraries;
        head["rounds"] = options.rounds;
        head["iterations"] = options.iterations;
    }
    if (options.machine) {
        const SimulatedMachine& machine = *options.machine;
        table.title += fmt::format("\nsimulated: {} over {} ({})", machine.device.name,
                                   machine.link.name, machine.scenario);
        head["simulated"] = {{"scenario", machine.scenario},
                             {"device", machine.device.name},
                             {"link", machine.link.name}};
    }
    write_output("-", render(table, options.format, head));
}

}  // namespace

CommandHelp bench_syncbn_help() {
    return {.usage = {"bucketwise bench syncbn [--backend gloo|nccl] [OPTIONS]",
                      "bucketwise bench syncbn SCENARIO --simulate [OPTIONS]"},
            .options = bench_options(own_options, add_set_option),
            .text = explanation,
            .values = {{"implementations", some_of(every<BatchNormSystem>)},
                       {"passes", one_of(every<BatchNormPasses>)}}};
}

int run_bench_syncbn(const CommandLine& line) {
    const std::optional<RankIdentity> identity = rank_from_environment(environment_variable);
    const SyncBnOptions options = read_options(line, identity);
    return run_bench<std::vector<MeasuredLayer>>(
        options, options.ranks, identity,
        [&](RankSession& session) {
            return measure_layers(options.layers, options.iterations,
                                  {.rounds = options.rounds, .seed = options.seed}, session);
        },
        [&](const EnvironmentRecord& environment, const auto& measured) {
            print(options, environment, measured);
        });
}

}  // namespace bucketwise
