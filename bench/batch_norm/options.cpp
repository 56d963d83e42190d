#include "bench/batch_norm/options.h"

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "bench/benches.h"
#include "cli/ranks/backends.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/scenario_document.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::string_view explanation = R"(
examples:
  bucketwise bench syncbn --ranks 2
  bucketwise bench syncbn --backend nccl --ranks 2 --batch 32,64 --format csv
  bucketwise bench syncbn scenarios/syncbn_a4000.json --simulate --published scenarios/published/syncbn.csv
  bucketwise bench syncbn scenarios/syncbn_a4000.json --simulate --backend gloo --passes forward

A BatchNorm layer over all ranks, on [batch, width] float32 on each of them. gather does what PyTorch's SyncBatchNorm
does (an all-gather of statistics; an all-reduce in backward), fused sums both ways in one all-reduce each. A time is
from the first launch until the device has done all, of the slowest rank; memory is what is live at once, input, output,
their gradients and parameters included, each in whole blocks of 512 bytes, as PyTorch's allocator counts. pytorch and
selfmade are the systems of the published table, forward only, and can only be simulated.
)";

po::options_description described_options() {
    po::options_description options("options", 100);
    add_options(
        options,
        {{"simulate",
          "on the device, ranks and link of the scenario; with --backend too, both side by side",
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
         {"link", "link file to use instead of the scenario's"}});
    add_set_option(options);
    add_backend_options(options);
    add_network_options(options, deadline_text);
    add_options(options, {{"help,h", "show this", no_value}});
    return options;
}

// --- what to measure -----------------------------------------------------------------------------

// As typed, else what the published file has, each once, in its order.
std::vector<std::string> listed(const po::variables_map& values, const char* option,
                                const std::optional<CsvFile>& published, const char* column,
                                const char* standard) {
    if (values.count(option) != 0) {
        return list_value(values, option);
    }
    if (!published || published->rows() == 0) {
        return split_at_commas(standard);
    }
    std::vector<std::string> all;
    for (std::size_t row = 0; row < published->rows(); ++row) {
        all.push_back(published->text(row, column));
    }
    return each_once(all);
}

std::vector<BatchNormSystem> requested_systems(const po::variables_map& values,
                                               const BenchSyncBnOptions& options) {
    const bool measures = options.backend != nullptr;
    const std::vector<std::string> names =
        measures ? listed(values, "implementations", std::nullopt, "", "gather,fused")
                 : listed(values, "implementations", options.published, "implementation",
                          "gather,fused,pytorch,selfmade");
    std::vector<BatchNormSystem> systems;
    for (const std::string& name : names) {
        const auto system = choice_named(name, every<BatchNormSystem>, "--implementations");
        if (measures && !real_layer_of(system)) {
            throw InputError("--implementations", "",
                             "gather or fused, as " + name + " can only be simulated", name);
        }
        systems.push_back(system);
    }
    return systems;
}

void add_layers(const po::variables_map& values, BenchSyncBnOptions& options) {
    // float32 counts the rows of all ranks together exactly, below 2^24 of them.
    const std::int64_t most_rows = ((std::int64_t{1} << 24U) - 1) / options.ranks;
    constexpr std::int64_t most_channels = std::int64_t{1} << 20U;
    constexpr std::int64_t most_elements = std::int64_t{1} << 30U;
    const auto passes = choice_value(values, "passes", every<BatchNormPasses>);
    for (const BatchNormSystem system : requested_systems(values, options)) {
        for (const std::string& batch :
             listed(values, "batch", options.published, "batch_size", "32")) {
            for (const std::string& width :
                 listed(values, "width", options.published, "hidden_dim", "128,256,512,1024")) {
                const BatchNormLayer layer{
                    .system = system,
                    .passes = real_layer_of(system) ? passes : BatchNormPasses::forward,
                    .rows = whole_number(batch, "--batch", {0, most_rows}),
                    .channels = whole_number(width, "--width", {1, most_channels}),
                    .ranks = options.ranks};
                if (layer.rows * layer.channels > most_elements) {
                    throw InputError("--batch", "", "at most 2^30 elements on each rank",
                                     fmt::format("{} x {}", batch, width));
                }
                options.layers.push_back(layer);
            }
        }
    }
    options.layers = each_once(options.layers);
}

// --- where ---------------------------------------------------------------------------------------

SimulatedMachine requested_machine(const po::variables_map& values,
                                   const std::optional<RankIdentity>& identity,
                                   BenchSyncBnOptions& options) {
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

int ranks_to_run(const po::variables_map& values, const BenchSyncBnOptions& options,
                 const std::optional<RankIdentity>& identity) {
    const std::int64_t most = options.backend != nullptr ? most_ranks_here : 1'000'000;
    if (const auto ranks = requested_ranks(values, identity, most)) {
        return static_cast<int>(*ranks);
    }
    if (options.machine && options.machine->group.ranks > most) {
        throw InputError("--ranks", "", fmt::format("at most {} on one machine", most),
                         fmt::format("the scenario's {}", options.machine->group.ranks));
    }
    return options.machine ? static_cast<int>(options.machine->group.ranks) : 2;
}

// As many as are asked for, which a node of a hierarchical link may not hold evenly.
void set_ranks(SimulatedMachine& machine, int ranks) {
    if (machine.group.ranks == ranks) {
        return;
    }
    if (machine.link.topology) {
        throw InputError("--ranks", "",
                         fmt::format("the scenario's {}, which its topology was made ready for",
                                     machine.group.ranks),
                         fmt::format("{}", ranks));
    }
    if (machine.link.algorithm == Algorithm::hierarchical &&
        ranks % machine.group.ranks_per_node != 0) {
        throw InputError("--ranks", "",
                         fmt::format("a multiple of the scenario's ranks_per_node, {}",
                                     machine.group.ranks_per_node),
                         fmt::format("{}", ranks));
    }
    machine.group.ranks = ranks;
    if (machine.link.algorithm != Algorithm::hierarchical) {
        machine.group.ranks_per_node = ranks;
    }
}

// An option that would do nothing is a mistake.
void refuse(const po::variables_map& values, std::initializer_list<const char*> options,
            const char* without) {
    if (const auto option = first_typed(values, options)) {
        throw UsageError{fmt::format(
            "bench syncbn: --{} has no effect without {}; see bucketwise bench syncbn --help",
            *option, without)};
    }
}

void check_use(const po::variables_map& values, bool simulates) {
    if (!simulates && values.count("scenario") != 0) {
        throw UsageError{fmt::format(
            "bench syncbn: expected a scenario only with --simulate, got \"{}\"; see bucketwise "
            "bench syncbn --help",
            text_value(values, "scenario"))};
    }
    if (!simulates) {
        refuse(values, {"link", "set"}, "--simulate");
    }
    if (!is_measured(values)) {
        refuse(values,
               {"rounds", "iterations", "seed", "share-gpu", "ctas", "link-rate", "deadline",
                "store", "interface"},
               "--backend, where only simulated");
    }
}

}  // namespace

CommandHelp bench_syncbn_help() {
    return {.usage = {"bucketwise bench syncbn [--backend gloo|nccl] [OPTIONS]",
                      "bucketwise bench syncbn SCENARIO --simulate [OPTIONS]"},
            .options = described_options(),
            .text = explanation,
            .values = {{"implementations", some_of(every<BatchNormSystem>)},
                       {"passes", one_of(every<BatchNormPasses>)}}};
}

BenchSyncBnOptions bench_syncbn_options(const CommandLine& line,
                                        const std::optional<RankIdentity>& identity) {
    const po::variables_map& values = line.values;
    const bool simulates = values.count("simulate") != 0;
    check_use(values, simulates);
    BenchSyncBnOptions options;
    options.command = bench_command("syncbn", line.arguments);
    if (is_measured(values)) {
        read_job("syncbn", values, identity, options);
    }
    if (simulates) {
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
    add_layers(values, options);
    options.rounds = whole_number(values, "rounds", {1, 1'000'000});
    options.iterations = whole_number(values, "iterations", {1, 1'000'000});
    options.seed = seed_value(values);
    options.format = choice_value(values, "format", every<TableFormat>);
    return options;
}

}  // namespace bucketwise
