#include "bench/all_reduce/options.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <boost/program_options.hpp>

#include "bench/all_reduce/published.h"
#include "bench/benches.h"
#include "cli/ranks/backends.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/option_values.h"
#include "cli/shell/scenario_document.h"
#include "cli/shell/size.h"
#include "hw/record/environment.h"
#include "hw/record/measurement.h"
#include "sim/base/error.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::string_view all_reduce_examples = R"(
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
)";

constexpr std::string_view all_gather_examples = R"(
examples:
  bucketwise bench allgather --ranks 2,3 --algorithms ring --bytes 64KiB,1MiB,16MiB -o allgather.jsonl
  bucketwise bench reducescatter --ranks 2,3 --algorithms ring --bytes 64KiB,1MiB,16MiB -o reducescatter.jsonl
  bucketwise bench allreduce --ranks 2,3 --algorithms ring --bytes 64KiB,1MiB,16MiB -o allreduce.jsonl
  bucketwise calibrate allreduce.jsonl allgather.jsonl reducescatter.jsonl -o link.json
  bucketwise bench allgather --simulate --link link.json --algorithms library --ranks 2,64 --bytes 1MiB,64MiB

A size is that of the gathered buffer, as nccl-tests counts it; what is no whole element of each rank is left out.
)";

constexpr std::string_view reduce_scatter_examples = R"(
examples:
  bucketwise bench reducescatter --ranks 2,3 --algorithms ring --bytes 64KiB,1MiB,16MiB -o reducescatter.jsonl
  bucketwise bench reducescatter --ranks 4 --dtype bfloat16 --format nccl-tests
  bucketwise calibrate allreduce.jsonl allgather.jsonl reducescatter.jsonl -o link.json
  bucketwise bench reducescatter --simulate --link link.json --algorithms ring --ranks 2,64 --bytes 1MiB,64MiB

A size is that of all that is scattered, as nccl-tests counts it; what is no whole element of each rank is left out.
Gloo's own reduce-scatter is not measured: PyTorch does not use it.
)";

constexpr std::string_view explanation = R"(
A time is that of the slowest rank. Every result is checked, element by element. Each algorithm runs in processes of
its own, so that their peak memory is its own too; where torchrun, mpirun or srun started them, they run one algorithm
after another, and the peak includes the algorithms before. Ranks meet as those of bucketwise measure do.
)";

constexpr std::string_view all_reduce_simulation = R"(
Simulated are the time, from the link; the memory that messages and their summing add, from how each algorithm works
over Gloo; and the difference from the exact mean, from the order in which it adds. With --published and neither
--ranks nor --bytes, what is in the file is simulated, or measured.
)";

std::string_view explanation_of(CollectiveKind kind) {
    const auto of_parts = [](std::string_view examples) {
        return fmt::format("{}{}\nSimulated is the time, from the link.\n", examples, explanation);
    };
    static const std::string of_all_reduces =
        fmt::format("{}{}{}", all_reduce_examples, explanation, all_reduce_simulation);
    static const std::string of_all_gathers = of_parts(all_gather_examples);
    static const std::string of_reduce_scatters = of_parts(reduce_scatter_examples);
    return kind == CollectiveKind::all_reduce   ? of_all_reduces
           : kind == CollectiveKind::all_gather ? of_all_gathers
                                                : of_reduce_scatters;
}

std::string bench_name(CollectiveKind kind) {
    return fmt::format("bench {}", record_name(kind));
}

constexpr std::array simulated_names{
    std::string_view("library"), std::string_view("ring"), std::string_view("direct"),
    std::string_view("recursive_halving_doubling"), std::string_view("double_binary_tree")};

constexpr std::int64_t most_simulated_ranks = 1'000'000;

constexpr const char* algorithms_text =
    "who carries them out: the library, or, with gloo, our ring or direct exchange; default: all "
    "that the backend has. Where nothing is measured also recursive_halving_doubling and "
    "double_binary_tree";

po::options_description described_options(CollectiveKind kind) {
    po::options_description options("options", 100);
    add_options(
        options,
        {{"algorithms", algorithms_text},
         {"ranks", "how many ranks, each in turn; default: 2,4"},
         {"bytes", "sizes of the message", "1kB,10kB,100kB,1MB,10MB,100MB"},
         {"dtype", "float32, float16, bfloat16 or float64", "float32"},
         {"rounds", "how often to measure every size; what comes before them warms up", "5"},
         {"iterations",
          "how many back to back in each round; default: 1 of a large message to 20 of a small"},
         {"seed", "of the order of sizes within each round", "1"},
         {"format", "text, csv, json or nccl-tests", "text"},
         {"simulate", "simulate too, or, without --backend, only: then no rank is started",
          no_value},
         {"link",
          "with --simulate: the link file, whose algorithm is replaced by each of --algorithms but "
          "library, or one file for each"},
         {"simulated-ranks",
          "with --simulate: numbers of ranks besides those of --ranks, up to 1000000"},
         {"processors",
          "with --simulate: of the one machine on which all ranks run, whatever the link says; "
          "where they are fewer than ranks, ranks take turns on them"},
         {"process-memory",
          "with --simulate: what a rank's process has in memory before any message, where nothing "
          "is measured"},
         {"output,o", "new file for every sample, one JSON object per line"}});
    if (kind == CollectiveKind::all_reduce) {
        add_options(options,
                    {{"published",
                      "CSV file with published times and memory to print beside ours; its rows of "
                      "the backend or the link"}});
    }
    add_backend_options(options);
    add_network_options(options,
                        deadline_text + ", and more for many ranks, large messages or slow links");
    add_options(options, {{"help,h", "show this", no_value}});
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
                                                          const BenchAllReduceOptions& options) {
    BackendRequest request = options.request;
    options.backend->check(request);
    const bool gloo = options.backend->name() == "gloo";
    // Where Gloo's stands for ours.
    const bool only_ours = gloo && options.kind == CollectiveKind::reduce_scatter;
    const std::string all = only_ours ? "ring,direct" : gloo ? "library,ring,direct" : "library";
    std::vector<AllReduceImplementation> algorithms;
    for (const std::string& name : split_at_commas(
             values.count("algorithms") == 0 ? all : text_value(values, "algorithms"))) {
        request.implementation = choice_named(name, every<AllReduceImplementation>, "--algorithms");
        options.backend->check(request);
        if (only_ours && request.implementation == AllReduceImplementation::library) {
            throw InputError("--algorithms", "",
                             "ring or direct, as Gloo's own reduce-scatter is not measured",
                             "\"library\"");
        }
        algorithms.push_back(request.implementation);
    }
    return each_once(algorithms);
}

using Ranks = std::vector<std::int64_t>;

Ranks requested_ranks(const po::variables_map& values, bool measure,
                      const std::optional<RankIdentity>& identity) {
    const bool fixed = identity && !is_own_rank(identity);
    Ranks standard = fixed ? Ranks{identity->ranks} : Ranks{2, 4};
    if (values.count("ranks") == 0) {
        return standard;
    }
    const std::int64_t most = fixed || !measure ? most_simulated_ranks : most_ranks_here;
    Ranks ranks = rising(whole_numbers(values, "ranks", {1, most}));
    if (fixed && ranks != standard) {
        throw InputError(
            "--ranks", "",
            fmt::format("as many as {} started, {}", identity->launcher, identity->ranks),
            "\"" + text_value(values, "ranks") + "\"");
    }
    return ranks;
}

std::vector<Bytes> requested_sizes(const std::string& text, DType dtype) {
    std::vector<Bytes> sizes = rising(parse_sizes(text, "--bytes"));
    for (const Bytes size : sizes) {
        check_message(size, dtype, "--bytes");
    }
    return sizes;
}

// --- what to simulate, and beside what ---

void check_simulation_options(CollectiveKind kind, const po::variables_map& values) {
    const bool simulates = values.count("simulate") != 0;
    const auto alien =
        first_typed(values, {"link", "simulated-ranks", "processors", "process-memory"});
    if (!simulates && alien) {
        throw UsageError{fmt::format("{}: --{} is for --simulate", bench_name(kind), *alien)};
    }
    if (simulates && values.count("link") == 0) {
        throw UsageError{fmt::format("{}: --simulate needs a --link FILE", bench_name(kind))};
    }
    if ((simulates || values.count("published") != 0) &&
        text_value(values, "format") == name_of(BenchFormat::nccl_tests)) {
        throw UsageError{
            fmt::format("{}: nccl-tests' columns hold what was measured, and nothing beside it",
                        bench_name(kind))};
    }
}

std::vector<std::string> simulated_algorithms(const po::variables_map& values,
                                              const BenchAllReduceOptions& options) {
    if (options.measure) {
        return transformed(options.algorithms, [](AllReduceImplementation implementation) {
            return std::string(name_of(implementation));
        });
    }
    const std::string text = text_or_empty(values, "algorithms");
    const auto names = split_at_commas(text.empty() ? "library,ring,direct" : text);
    for (const std::string& name : names) {
        if (std::ranges::count(simulated_names, name) == 0) {
            throw InputError("--algorithms", "",
                             fmt::format("one of {}", fmt::join(simulated_names, ", ")),
                             "\"" + name + "\"");
        }
    }
    return each_once(names);
}

SimulationRequest requested_simulation(const po::variables_map& values,
                                       const BenchAllReduceOptions& options) {
    SimulationRequest request;
    request.kind = options.kind;
    request.algorithms = read_simulated_algorithms(text_value(values, "link"),
                                                   simulated_algorithms(values, options));
    if (values.count("processors") != 0) {
        for (SimulatedAlgorithm& algorithm : request.algorithms) {
            algorithm.link.processors = whole_number(values, "processors", {1, most_processors});
        }
    }
    if (values.count("process-memory") != 0) {
        request.process_memory =
            parse_size(text_value(values, "process-memory"), "--process-memory");
    }
    return request;
}

// Besides those that are measured.
Ranks requested_simulated_ranks(const po::variables_map& values, Ranks ranks) {
    if (!text_or_empty(values, "simulated-ranks").empty()) {
        const auto more = whole_numbers(values, "simulated-ranks", {1, most_simulated_ranks});
        ranks.insert(ranks.end(), more.begin(), more.end());
    }
    return rising(ranks);
}

// The rows of what is measured or simulated here.
std::vector<PublishedAllReduce> requested_published(const po::variables_map& values,
                                                    const BenchAllReduceOptions& options) {
    std::string backend(options.backend->name());
    if (!options.measure && options.simulation) {
        const std::string& of_link = options.simulation->algorithms.front().link.provenance.backend;
        backend = of_link.empty() ? backend : of_link;
    }
    return read_published_all_reduces(text_value(values, "published"), options.dtype, backend);
}

// Without --ranks and --bytes those that were published are what is asked for.
void follow_published(const po::variables_map& values, BenchAllReduceOptions& options) {
    if (values.count("ranks") == 0) {
        options.ranks = transformed(options.published,
                                    [](const PublishedAllReduce& row) { return row.place.ranks; });
        const auto too_many = std::ranges::find_if(
            options.ranks, [](std::int64_t ranks) { return ranks > most_ranks_here; });
        if (options.measure && too_many != options.ranks.end()) {
            throw InputError("--published", "",
                             fmt::format("at most {} ranks to measure", most_ranks_here),
                             fmt::format("{}", *too_many));
        }
        options.ranks = rising(options.ranks);
    }
    if (values["bytes"].defaulted()) {
        options.sizes = rising(transformed(
            options.published, [](const PublishedAllReduce& row) { return row.place.size; }));
    }
}

void request_comparison(const po::variables_map& values,
                        const std::optional<RankIdentity>& identity,
                        BenchAllReduceOptions& options) {
    if (values.count("simulate") != 0 && !is_own_rank(identity)) {
        options.simulation = requested_simulation(values, options);
    }
    if (values.count("published") != 0) {
        check_can_be_read_again(text_value(values, "published"));
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
std::chrono::milliseconds deadline_for(const BenchAllReduceOptions& options,
                                       const std::optional<BitsPerSecond>& link_rate,
                                       std::int64_t local_ranks) {
    constexpr double seconds_per_checked_term = 10e-9;
    constexpr double loopback_bytes_per_second = 0.5e9;
    const auto bytes = static_cast<double>(options.sizes.back().count);
    const double elements = bytes / static_cast<double>(element_size(options.dtype).count);
    const auto ranks = static_cast<double>(options.ranks.back());
    const double cores = std::max(read_environment().cores, 1U);
    const double ranks_per_core = std::max(static_cast<double>(local_ranks) / cores, 1.0);
    const double check = elements * ranks * ranks_per_core * seconds_per_checked_term;
    const double reduce = 2 * bytes * ranks_per_core / loopback_bytes_per_second;
    const double wire = link_rate ? 2 * bytes * 8 / static_cast<double>(link_rate->count) : 0.0;
    return std::chrono::seconds(60 + std::llround(3 * (check + reduce + wire)));
}

JobNetwork requested_network(const po::variables_map& values, const BenchAllReduceOptions& options,
                             const std::optional<RankIdentity>& identity) {
    JobNetwork network = job_network(values, identity, bench_name(options.kind), standard_deadline);
    if (values.count("deadline") == 0) {
        const std::int64_t local_ranks = identity ? identity->local_ranks : options.ranks.back();
        network.deadline = deadline_for(options, network.link_rate, local_ranks);
    }
    return network;
}

}  // namespace

Bytes whole_parts(const BenchAllReduceOptions& options, Bytes size, std::int64_t ranks) {
    if (options.kind == CollectiveKind::all_reduce) {
        return size;
    }
    const std::int64_t one_of_each = ranks * element_size(options.dtype).count;
    return {size.count / one_of_each * one_of_each};
}

namespace {

CommandHelp help_of(CollectiveKind kind) {
    return {.usage = {fmt::format("bucketwise {} [OPTIONS]", bench_name(kind))},
            .options = described_options(kind),
            .text = explanation_of(kind),
            .arguments = {.files = false},
            .values = {{"algorithms",
                        {.names = {simulated_names.begin(), simulated_names.end()},
                         .files = false,
                         .several = true}},
                       {"format", one_of(every<BenchFormat>)},
                       {"link", {}}}};
}

// Of every number of ranks.
void check_parts(const BenchAllReduceOptions& options) {
    const std::int64_t most = std::max(options.ranks.back(), options.simulated_ranks.back());
    if (whole_parts(options, options.sizes.front(), most).count == 0) {
        throw InputError("--bytes", "",
                         fmt::format("at least an element of each of {} ranks, {} bytes", most,
                                     most * element_size(options.dtype).count),
                         fmt::format("{}", options.sizes.front().count));
    }
}

}  // namespace

CommandHelp bench_allreduce_help() {
    return help_of(CollectiveKind::all_reduce);
}

CommandHelp bench_allgather_help() {
    return help_of(CollectiveKind::all_gather);
}

CommandHelp bench_reducescatter_help() {
    return help_of(CollectiveKind::reduce_scatter);
}

BenchAllReduceOptions bench_allreduce_options(CollectiveKind kind, const CommandLine& line,
                                              const std::optional<RankIdentity>& identity) {
    const po::variables_map& values = line.values;
    refuse_scenario(values, bench_name(kind));
    check_simulation_options(kind, values);
    BenchAllReduceOptions options;
    options.kind = kind;
    options.command = bench_command(record_name(kind), line.arguments);
    options.backend = &requested_backend(values);
    options.request = backend_request(values);
    options.measure = is_measured(values);
    if (options.measure) {
        options.algorithms = requested_algorithms(values, options);
    }
    options.ranks = requested_ranks(values, options.measure, identity);
    options.dtype = choice_value(values, "dtype", every<DType>);
    options.sizes = requested_sizes(text_value(values, "bytes"), options.dtype);
    options.rounds = whole_number(values, "rounds", {1, 1'000'000});
    if (values.count("iterations") != 0) {
        options.iterations = whole_number(values, "iterations", {1, 1'000'000});
    }
    options.seed = seed_value(values);
    options.format = choice_value(values, "format", every<BenchFormat>);
    options.output = text_or_empty(values, "output");
    request_comparison(values, identity, options);
    check_parts(options);
    options.network = requested_network(values, options, identity);
    return options;
}

}  // namespace bucketwise
