#include "bench/batch_norm/bench_syncbn_options.h"

#include <algorithm>

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
    const auto text = [](const char* standard) {
        return po::value<std::string>()->default_value(standard);
    };
    po::options_description options("options", 100);
    options.add_options()  //
        ("simulate",
         "on the device, ranks and link of the scenario; with --backend too, both side by side")  //
        ("implementations", po::value<std::string>(),
         "gather, fused, pytorch, selfmade; default: the first two, or, only simulated, all")  //
        ("batch", po::value<std::string>(),
         "rows of each rank; default: those of --published, or 32")  //
        ("width", po::value<std::string>(),
         "channels; default: those of --published, or 128,256,512,1024")                       //
        ("passes", text("both"), "of gather and fused: forward, or both (and backward)")       //
        ("ranks", po::value<std::string>(), "default: the scenario's, or 2")                   //
        ("rounds", text("5"), "how often to measure everything, after a round that warms up")  //
        ("iterations", text("20"), "steps back to back in each round")                         //
        ("seed", text("1"), "of the order within each round")                                  //
        ("published", po::value<std::string>(),
         "CSV file with the same columns, to print beside ours with errors")  //
        ("format", text("text"), "text, csv or json");
    options.add_options()                                                                 //
        ("link", po::value<std::string>(), "link file to use instead of the scenario's")  //
        ("set", po::value<std::vector<std::string>>(),
         "change a value of the scenario, /json/pointer=value; may be repeated");
    add_backend_options(options);
    add_network_options(options,
                        "seconds that a rank may be silent, or a collective take, before the run "
                        "fails; default: 60");
    options.add_options()("help,h", "show this");
    return options;
}

// --- what to measure -----------------------------------------------------------------------------

// What the published file has, each once, in its order.
std::vector<std::string> published_values(const CsvFile& file, const char* column) {
    std::vector<std::string> values;
    for (std::size_t row = 0; row < file.rows(); ++row) {
        const std::string& value = file.text(row, column);
        if (std::find(values.begin(), values.end(), value) == values.end()) {
            values.push_back(value);
        }
    }
    return values;
}

std::vector<std::string> listed(const po::variables_map& values, const char* option,
                                const std::optional<CsvFile>& published, const char* column,
                                const char* standard) {
    if (values.count(option) != 0) {
        return split_at_commas(values[option].as<std::string>());
    }
    if (published && published->rows() > 0) {
        return published_values(*published, column);
    }
    return split_at_commas(standard);
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
        const auto system = choice_named(name, all_batch_norm_systems, "--implementations");
        if (measures && !real_layer_of(system)) {
            throw InputError("--implementations", "",
                             "gather or fused, as " + name + " can only be simulated", name);
        }
        systems.push_back(system);
    }
    return systems;
}

void add_layers(const po::variables_map& values, BenchSyncBnOptions& options) {
    // Of all ranks together float32 counts below 2^24 rows exactly.
    const std::int64_t most_rows = ((std::int64_t{1} << 24U) - 1) / options.ranks;
    constexpr std::int64_t most_channels = std::int64_t{1} << 20U;
    constexpr std::int64_t most_elements = std::int64_t{1} << 30U;
    const auto passes =
        choice_named(values["passes"].as<std::string>(), all_batch_norm_passes, "--passes");
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
                if (std::find(options.layers.begin(), options.layers.end(), layer) ==
                    options.layers.end()) {
                    options.layers.push_back(layer);
                }
            }
        }
    }
}

// --- where ---------------------------------------------------------------------------------------

SimulatedMachine requested_machine(const po::variables_map& values) {
    if (values.count("scenario") == 0) {
        throw UsageError{
            "bench syncbn --simulate: expected a scenario, whose device, ranks and link are "
            "simulated, got none; for example scenarios/syncbn_a4000.json"};
    }
    const std::string file = values["scenario"].as<std::string>();
    const Scenario scenario =
        parse_scenario(read_scenario_document(values, file), file, read_text_file);
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
void refuse(const po::variables_map& values, const std::vector<const char*>& options,
            const char* without) {
    for (const char* option : options) {
        if (values.count(option) != 0 && !values[option].defaulted()) {
            throw UsageError{fmt::format(
                "bench syncbn: --{} has no effect without {}; see bucketwise bench syncbn --help",
                option, without)};
        }
    }
}

void check_use(const po::variables_map& values, bool simulates, bool measures) {
    if (!simulates && values.count("scenario") != 0) {
        throw UsageError{fmt::format(
            "bench syncbn: expected a scenario only with --simulate, got \"{}\"; see bucketwise "
            "bench syncbn --help",
            values["scenario"].as<std::string>())};
    }
    if (!simulates) {
        refuse(values, {"link", "set"}, "--simulate");
    }
    if (!measures) {
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
            .values = {{"implementations", some_of(all_batch_norm_systems)},
                       {"passes", one_of(all_batch_norm_passes)}}};
}

std::optional<BenchSyncBnOptions> bench_syncbn_options(
    const std::vector<std::string>& arguments, const std::optional<RankIdentity>& identity) {
    const po::options_description described = described_options();
    const po::variables_map values = parse_arguments(arguments, described);
    if (values.count("help") != 0) {
        print_help(bench_syncbn_help());
        return std::nullopt;
    }
    const bool simulates = values.count("simulate") != 0;
    const bool measures = !simulates || !values["backend"].defaulted();
    check_use(values, simulates, measures);
    BenchSyncBnOptions options;
    if (measures) {
        options.backend = &requested_backend(values);
        options.request = backend_request(values);
        options.backend->check(options.request);
    }
    if (simulates) {
        options.machine = requested_machine(values);
    }
    options.ranks = ranks_to_run(values, options, identity);
    if (options.machine) {
        set_ranks(*options.machine, options.ranks);
    }
    if (values.count("published") != 0) {
        options.published = CsvFile::read(values["published"].as<std::string>());
    }
    add_layers(values, options);
    options.rounds = whole_number(values, "rounds", {1, 1'000'000});
    options.iterations = whole_number(values, "iterations", {1, 1'000'000});
    options.seed =
        static_cast<std::uint64_t>(whole_number(values, "seed", {0, std::int64_t{1} << 50}));
    options.format =
        choice_named(values["format"].as<std::string>(), all_table_formats, "--format");
    if (options.backend != nullptr) {
        options.network =
            job_network(values, identity, "bench syncbn", std::chrono::milliseconds{60'000});
    }
    return options;
}

}  // namespace bucketwise
