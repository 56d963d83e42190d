#include "bench/all_reduce/bench_allreduce_options.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <boost/program_options.hpp>

#include "bench/all_reduce/published_allreduce.h"
#include "bench/benches.h"
#include "cli/ranks/backends.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/option_values.h"
#include "cli/shell/scenario_document.h"
#include "cli/shell/size.h"
#include "hw/record/environment.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::string_view explanation = R"(
examples:
  bucketwise bench allreduce
  bucketwise bench allreduce --ranks 1,2,4,8,16 --algorithms ring,direct,library --bytes 4kB,64kB --format csv
  bucketwise bench allreduce --ranks 2,4 --link-rate 1gbit --bytes 1MB,10MB -o allreduce.jsonl
  bucketwise bench allreduce --ranks 4 --algorithms library --bytes 8B,1KiB,1MiB --format nccl-tests
  torchrun --no-python --nproc-per-node 2 bucketwise bench allreduce --store /tmp/meeting
  bucketwise bench allreduce --simulate --link link.json --ranks 2,64,4096 --bytes 1MiB,64MiB
  bucketwise bench allreduce --simulate --backend gloo --link link.json --ranks 2,4,8 --simulated-ranks 64,4096
  bucketwise bench allreduce --simulate --link scenarios/links/gloo_cs336.json --algorithms library \
    --published scenarios/published/cs336_allreduce.csv

A time is that of the slowest rank. Every sum is checked, element by element. Each algorithm runs in processes of its
own, so that their peak memory is its own too; where torchrun, mpirun or srun started them, they run one algorithm after
another, and the peak includes the algorithms before. Ranks meet as those of bucketwise measure do.

Simulated are the time, from the link; the memory that messages and their summing add, from how each algorithm works
over Gloo; and the difference from the exact mean, from the order in which it adds. With --published and neither
--ranks nor --bytes, what is in the file is simulated, or measured.
)";

constexpr std::array simulated_names{
    std::string_view("library"), std::string_view("ring"), std::string_view("direct"),
    std::string_view("recursive_halving_doubling"), std::string_view("double_binary_tree")};

constexpr std::int64_t most_simulated_ranks = 1'000'000;

constexpr std::array all_implementations{AllReduceImplementation::library,
                                         AllReduceImplementation::ring,
                                         AllReduceImplementation::direct};

constexpr Bytes largest_message{std::int64_t{16} << 30};

po::options_description described_options() {
    const auto text = [](const char* standard) {
        return po::value<std::string>()->default_value(standard);
    };
    po::options_description options("options", 100);
    options.add_options()  //
        ("algorithms", po::value<std::string>(),
         "who sums: the library's own all-reduce, or, with gloo, our ring or direct one; default: "
         "all that the backend has. Where nothing is measured also recursive_halving_doubling and "
         "double_binary_tree")                                                             //
        ("ranks", po::value<std::string>(), "how many ranks, each in turn; default: 2,4")  //
        ("bytes", text("1kB,10kB,100kB,1MB,10MB,100MB"), "sizes of the message")           //
        ("dtype", text("float32"), "float32, float16, bfloat16 or float64")                //
        ("rounds", text("5"),
         "how often to measure every size; what comes before them warms up")  //
        ("iterations", po::value<std::string>(),
         "all-reduces back to back in each round; default: 1 of a large message to 20 of a "
         "small")                                                       //
        ("seed", text("1"), "of the order of sizes within each round")  //
        ("format", text("text"), "text, csv, json or nccl-tests")       //
        ("simulate",
         "simulate too, or, without --backend, only: then no rank is started")  //
        ("link", po::value<std::string>(),
         "with --simulate: the link file, whose algorithm is replaced by each of --algorithms but "
         "library, or one file for each")  //
        ("simulated-ranks", po::value<std::string>(),
         "with --simulate: numbers of ranks besides those of --ranks, up to 1000000")  //
        ("processors", po::value<std::string>(),
         "with --simulate: of the one machine on which all ranks run, whatever the link says; "
         "where "
         "they are fewer than ranks, ranks take turns on them")  //
        ("process-memory", po::value<std::string>(),
         "with --simulate: what a rank's process has in memory before any message, where nothing "
         "is measured")  //
        ("published", po::value<std::string>(),
         "CSV file with published times and memory to print beside ours; its rows of the backend "
         "or the link")  //
        ("output,o", po::value<std::string>(),
         "new file for every sample, one JSON object per line");
    add_backend_options(options);
    add_network_options(
        options,
        "seconds that a rank may be silent, or a collective take, before the run "
        "fails; default: 60, and more for many ranks, large messages or slow links");
    options.add_options()("help,h", "show this");
    return options;
}

template <typename Value>
std::vector<Value> rising(std::vector<Value> values) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    return values;
}

// --- what to measure -----------------------------------------------------------------------------

std::vector<AllReduceImplementation> requested_algorithms(const po::variables_map& values,
                                                          const Backend& backend,
                                                          BackendRequest request) {
    backend.check(request);
    const std::string all = backend.name() == "gloo" ? "library,ring,direct" : "library";
    std::vector<AllReduceImplementation> algorithms;
    for (const std::string& name : split_at_commas(
             values.count("algorithms") == 0 ? all : values["algorithms"].as<std::string>())) {
        const auto algorithm = choice_named(name, all_implementations, "--algorithms");
        request.implementation = algorithm;
        backend.check(request);
        if (std::find(algorithms.begin(), algorithms.end(), algorithm) == algorithms.end()) {
            algorithms.push_back(algorithm);
        }
    }
    return algorithms;
}

std::vector<int> requested_ranks(const po::variables_map& values, bool measure,
                                 const std::optional<RankIdentity>& identity) {
    const bool fixed = identity && !is_own_rank(identity);
    const std::int64_t most = fixed || !measure ? most_simulated_ranks : most_ranks_here;
    std::vector<int> ranks = fixed ? std::vector{identity->ranks} : std::vector{2, 4};
    if (values.count("ranks") != 0) {
        const std::string& text = values["ranks"].as<std::string>();
        ranks.clear();
        for (const std::string& part : split_at_commas(text)) {
            ranks.push_back(static_cast<int>(whole_number(part, "--ranks", {1, most})));
        }
        ranks = rising(ranks);
        if (fixed && ranks != std::vector{identity->ranks}) {
            throw InputError(
                "--ranks", "",
                fmt::format("as many as {} started, {}", identity->launcher, identity->ranks),
                "\"" + text + "\"");
        }
    }
    return ranks;
}

std::vector<Bytes> requested_sizes(const std::string& text, DType dtype) {
    std::vector<Bytes> sizes = rising(parse_sizes(text, "--bytes"));
    const Bytes element = element_size(dtype);
    for (const Bytes size : sizes) {
        if (size.count % element.count != 0 || size > largest_message) {
            throw InputError("--bytes", "",
                             fmt::format("whole elements of {} ({} bytes each), up to 16 GiB",
                                         name_of(dtype), element.count),
                             fmt::format("{} bytes", size.count));
        }
    }
    return sizes;
}

// --- what to simulate, and beside what ---

void check_simulation_options(const po::variables_map& values) {
    if (values.count("simulate") == 0) {
        for (const char* option : {"link", "simulated-ranks", "processors", "process-memory"}) {
            if (values.count(option) != 0) {
                throw UsageError{fmt::format("bench allreduce: --{} is for --simulate", option)};
            }
        }
    } else if (values.count("link") == 0) {
        throw UsageError{"bench allreduce: --simulate needs a --link FILE"};
    }
    const bool compares = values.count("simulate") != 0 || values.count("published") != 0;
    if (compares && values["format"].as<std::string>() == name_of(BenchFormat::nccl_tests)) {
        throw UsageError{
            "bench allreduce: nccl-tests' columns hold what was measured, and nothing beside it"};
    }
}

std::vector<std::string> simulated_algorithms(const po::variables_map& values,
                                              const BenchAllReduceOptions& options) {
    std::vector<std::string> names;
    if (options.measure) {
        for (const AllReduceImplementation implementation : options.algorithms) {
            names.emplace_back(name_of(implementation));
        }
        return names;
    }
    const std::string text = text_or_empty(values, "algorithms");
    for (const std::string& name : split_at_commas(text.empty() ? "library,ring,direct" : text)) {
        if (std::find(simulated_names.begin(), simulated_names.end(), name) ==
            simulated_names.end()) {
            throw InputError("--algorithms", "",
                             fmt::format("one of {}", fmt::join(simulated_names, ", ")),
                             "\"" + name + "\"");
        }
        if (std::find(names.begin(), names.end(), name) == names.end()) {
            names.push_back(name);
        }
    }
    return names;
}

SimulationRequest requested_simulation(const po::variables_map& values,
                                       const BenchAllReduceOptions& options) {
    SimulationRequest request;
    request.algorithms = read_simulated_algorithms(values["link"].as<std::string>(),
                                                   simulated_algorithms(values, options));
    if (values.count("processors") != 0) {
        for (SimulatedAlgorithm& algorithm : request.algorithms) {
            algorithm.link.processors = whole_number(values["processors"].as<std::string>(),
                                                     "--processors", {1, most_processors});
        }
    }
    if (values.count("process-memory") != 0) {
        request.process_memory =
            parse_size(values["process-memory"].as<std::string>(), "--process-memory");
    }
    return request;
}

std::vector<std::int64_t> requested_simulated_ranks(const po::variables_map& values,
                                                    const std::vector<int>& measured) {
    std::vector<std::int64_t> ranks(measured.begin(), measured.end());
    const std::string text = text_or_empty(values, "simulated-ranks");
    if (!text.empty()) {
        for (const std::string& part : split_at_commas(text)) {
            ranks.push_back(whole_number(part, "--simulated-ranks", {1, most_simulated_ranks}));
        }
    }
    return rising(ranks);
}

// Rows of what is measured or simulated here.
std::vector<PublishedAllReduce> requested_published(const po::variables_map& values,
                                                    const BenchAllReduceOptions& options) {
    std::string backend(options.backend->name());
    if (!options.measure && options.simulation) {
        const std::string& of_link = options.simulation->algorithms.front().link.provenance.backend;
        backend = of_link.empty() ? backend : of_link;
    }
    return read_published_all_reduces(values["published"].as<std::string>(), options.dtype,
                                      backend);
}

// Without --ranks and --bytes those that were published are what is asked for.
void follow_published(const po::variables_map& values, BenchAllReduceOptions& options) {
    if (values.count("ranks") == 0) {
        options.ranks.clear();
        for (const PublishedAllReduce& row : options.published) {
            if (options.measure && row.place.ranks > most_ranks_here) {
                throw InputError("--published", "",
                                 fmt::format("at most {} ranks to measure", most_ranks_here),
                                 fmt::format("{}", row.place.ranks));
            }
            options.ranks.push_back(static_cast<int>(row.place.ranks));
        }
        options.ranks = rising(options.ranks);
    }
    if (values["bytes"].defaulted()) {
        options.sizes.clear();
        for (const PublishedAllReduce& row : options.published) {
            options.sizes.push_back(row.place.size);
        }
        options.sizes = rising(options.sizes);
    }
}

void request_comparison(const po::variables_map& values,
                        const std::optional<RankIdentity>& identity,
                        BenchAllReduceOptions& options) {
    if (values.count("simulate") != 0 && !is_own_rank(identity)) {
        options.simulation = requested_simulation(values, options);
    }
    if (values.count("published") != 0) {
        options.published = requested_published(values, options);
        const bool fixed = identity && !is_own_rank(identity);
        if (!fixed) {
            follow_published(values, options);
        }
    }
    options.simulated_ranks = requested_simulated_ranks(values, options.ranks);
}

// --- patience ------------------------------------------------------------------------------------

// A minute, and three times what the longest all-reduce and its check may take: ranks that share
// cores take turns at both, and a link of limited rate carries up to twice the message.
std::chrono::milliseconds standard_deadline(const BenchAllReduceOptions& options,
                                            const std::optional<BitsPerSecond>& link_rate,
                                            int local_ranks) {
    constexpr double seconds_per_checked_term = 10e-9;
    constexpr double loopback_bytes_per_second = 0.5e9;
    const auto bytes = static_cast<double>(options.sizes.back().count);
    const double elements = bytes / static_cast<double>(element_size(options.dtype).count);
    const auto ranks = static_cast<double>(options.ranks.back());
    const double cores = std::max(read_environment().cores, 1U);
    const double ranks_per_core = std::max(local_ranks / cores, 1.0);
    const double check = elements * ranks * ranks_per_core * seconds_per_checked_term;
    const double reduce = 2 * bytes * ranks_per_core / loopback_bytes_per_second;
    const double wire = link_rate ? 2 * bytes * 8 / static_cast<double>(link_rate->count) : 0.0;
    return std::chrono::seconds(60 + std::llround(3 * (check + reduce + wire)));
}

JobNetwork requested_network(const po::variables_map& values, const BenchAllReduceOptions& options,
                             const std::optional<RankIdentity>& identity) {
    const std::string name = "bench allreduce";
    JobNetwork network = job_network(values, identity, name, std::chrono::milliseconds{0});
    if (values.count("deadline") == 0) {
        const int local_ranks = identity ? identity->local_ranks : options.ranks.back();
        network.deadline = standard_deadline(options, network.link_rate, local_ranks);
    }
    return network;
}

void check_arguments(const po::variables_map& values) {
    if (values.count("scenario") != 0) {
        throw UsageError{fmt::format(
            "bench allreduce: expected options, got \"{}\"; see bucketwise bench allreduce --help",
            values["scenario"].as<std::string>())};
    }
}

}  // namespace

CommandHelp bench_allreduce_help() {
    return {.usage = {"bucketwise bench allreduce [OPTIONS]"},
            .options = described_options(),
            .text = explanation,
            .arguments = {.files = false},
            .values = {{"algorithms",
                        {.names = {simulated_names.begin(), simulated_names.end()},
                         .files = false,
                         .several = true}},
                       {"format", one_of(all_formats)},
                       {"link", {}}}};
}

std::optional<BenchAllReduceOptions> bench_allreduce_options(
    const std::vector<std::string>& arguments, const std::optional<RankIdentity>& identity) {
    const po::options_description described = described_options();
    const po::variables_map values = parse_arguments(arguments, described);
    if (values.count("help") != 0) {
        print_help(bench_allreduce_help());
        return std::nullopt;
    }
    check_arguments(values);
    BenchAllReduceOptions options;
    options.command = {"bucketwise", "bench", "allreduce"};
    options.command.insert(options.command.end(), arguments.begin(), arguments.end());
    check_simulation_options(values);
    options.backend = &requested_backend(values);
    options.request = backend_request(values);
    options.measure = values.count("simulate") == 0 || !values["backend"].defaulted();
    if (options.measure) {
        options.algorithms = requested_algorithms(values, *options.backend, options.request);
    }
    options.ranks = requested_ranks(values, options.measure, identity);
    options.dtype = choice_named(values["dtype"].as<std::string>(), all_dtypes, "--dtype");
    options.sizes = requested_sizes(values["bytes"].as<std::string>(), options.dtype);
    options.rounds = whole_number(values, "rounds", {1, 1'000'000});
    if (values.count("iterations") != 0) {
        options.iterations = whole_number(values, "iterations", {1, 1'000'000});
    }
    options.seed =
        static_cast<std::uint64_t>(whole_number(values, "seed", {0, std::int64_t{1} << 50}));
    options.format = choice_named(values["format"].as<std::string>(), all_formats, "--format");
    options.output = text_or_empty(values, "output");
    request_comparison(values, identity, options);
    options.network = requested_network(values, options, identity);
    return options;
}

}  // namespace bucketwise
