#include "bench/all_reduce/options.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "bench/benches.h"
#include "cli/ranks/backends.h"
#include "cli/shell/scenario_document.h"
#include "cli/shell/size.h"
#include "hw/record/environment.h"
#include "sim/base/error.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

// --- help ----------------------------------------------------------------------------------------

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

A size is that of the gathered buffer, as nccl-tests counts it; a rest that is no whole element of each rank is left out.
)";

constexpr std::string_view reduce_scatter_examples = R"(
examples:
  bucketwise bench reducescatter --ranks 2,3 --algorithms ring --bytes 64KiB,1MiB,16MiB -o reducescatter.jsonl
  bucketwise bench reducescatter --ranks 4 --dtype bfloat16 --format nccl-tests
  bucketwise calibrate allreduce.jsonl allgather.jsonl reducescatter.jsonl -o link.json
  bucketwise bench reducescatter --simulate --link link.json --algorithms ring --ranks 2,64 --bytes 1MiB,64MiB

A size is that of the whole input, as nccl-tests counts it; a rest that is no whole element of each rank is left out.
Gloo's own reduce-scatter is not measured: PyTorch does not use it.
)";

constexpr std::string_view explanation = R"(
A time is that of the slowest rank. Every result is checked, element by element. Each algorithm runs in processes of
its own, so that their peak memory is its own too. Ranks that torchrun, mpirun or srun started run one algorithm after
another, and the peak includes the algorithms before. Ranks meet as those of bucketwise measure do.
)";

constexpr std::string_view all_reduce_simulation = R"(
The time is simulated from the link; the memory that messages and their sums add, from each algorithm's working over
Gloo; and the difference from the exact mean, from the order in which it adds. With --published and neither --ranks nor
--bytes, the file's rows are simulated, or measured.
)";

std::string bench_name(CollectiveKind kind) {
    return fmt::format("bench {}", record_name(kind));
}

std::string_view explanation_of(CollectiveKind kind) {
    static const auto text = [](std::string_view examples, std::string_view simulation) {
        return fmt::format("{}{}{}", examples, explanation, simulation);
    };
    static const std::string of_reductions = text(all_reduce_examples, all_reduce_simulation);
    static const std::string of_gathers =
        text(all_gather_examples, "\nThe time is simulated from the link.\n");
    static const std::string of_scatters =
        text(reduce_scatter_examples, "\nThe time is simulated from the link.\n");
    return kind == CollectiveKind::all_reduce   ? of_reductions
           : kind == CollectiveKind::all_gather ? of_gathers
                                                : of_scatters;
}

constexpr std::array simulated_names{
    std::string_view("library"), std::string_view("ring"), std::string_view("direct"),
    std::string_view("recursive_halving_doubling"), std::string_view("double_binary_tree")};

constexpr std::int64_t most_simulated_ranks = 1'000'000;

const std::vector<OptionText> own_options{
    {"algorithms",
     "who carries them out: the library, or, with gloo, our ring or direct exchange; default: all "
     "that the backend has. Where nothing is measured also recursive_halving_doubling and "
     "double_binary_tree"},
    {"ranks", "how many ranks, each in turn; default: 2,4"},
    {"bytes", "sizes of the message", "1kB,10kB,100kB,1MB,10MB,100MB"},
    {"dtype", "float32, float16, bfloat16 or float64", "float32"},
    {"rounds", "how often to measure every size, after one that warms up", "5"},
    {"iterations",
     "how many back to back in each round; default: 1 of a large message to 20 of a small"},
    {"seed", "of the order of sizes within each round", "1"},
    {"format", "text, csv, json or nccl-tests", "text"},
    {"simulate", "simulate too, or, without --backend, only: then no rank is started", no_value},
    {"link",
     "with --simulate: the link file, whose algorithm is replaced by each of --algorithms but "
     "library, or one file for each"},
    {"simulated-ranks",
     "with --simulate: numbers of ranks in addition to those of --ranks, up to 1000000"},
    {"processors",
     "with --simulate: of the one machine on which all ranks run, whatever the link says; where "
     "they are fewer than ranks, ranks take turns on them"},
    {"process-memory",
     "with --simulate: memory of a rank's process before any message, where nothing is measured"},
    {"output,o", "new file for every sample, one JSON object per line"}};

const OptionText published_option{
    "published",
    "CSV file with published times and memory to print beside ours; its rows of the backend or the "
    "link"};

// --- what to measure -----------------------------------------------------------------------------

template <typename Value>
std::vector<Value> rising(std::vector<Value> values) {
    std::ranges::sort(values);
    values.erase(std::unique(values.begin(), values.end()), values.end());
    return values;
}

std::vector<AllReduceImplementation> requested_algorithms(const po::variables_map& values,
                                                          const AllReduceOptions& options) {
    BackendRequest request = options.request;
    const bool gloo = options.backend->name() == "gloo";
    // Gloo's own reduce-scatter is not measured.
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

Ranks requested_ranks(const po::variables_map& values, bool measures,
                      const std::optional<RankIdentity>& identity) {
    const bool fixed = identity && !is_own_rank(identity);
    Ranks standard = fixed ? Ranks{identity->ranks} : Ranks{2, 4};
    if (values.count("ranks") == 0) {
        return standard;
    }
    const std::int64_t most = fixed || !measures ? most_simulated_ranks : most_ranks_here;
    Ranks ranks = rising(whole_numbers(values, "ranks", {1, most}));
    if (fixed && ranks != standard) {
        throw InputError(
            "--ranks", "",
            fmt::format("as many as {} started, {}", identity->launcher, identity->ranks),
            "\"" + text_value(values, "ranks") + "\"");
    }
    return ranks;
}

// --- what to compare with ------------------------------------------------------------------------

void check_simulation_options(CollectiveKind kind, const po::variables_map& values) {
    const bool simulates = values.count("simulate") != 0;
    const auto alien =
        first_typed(values, {"link", "simulated-ranks", "processors", "process-memory"});
    const auto refuse = [&](const std::string& text) {
        throw UsageError{fmt::format("{}: {}", bench_name(kind), text)};
    };
    if (!simulates && alien) {
        refuse(fmt::format("--{} is for --simulate", *alien));
    }
    if (simulates && values.count("link") == 0) {
        refuse("--simulate needs a --link FILE");
    }
    if ((simulates || values.count("published") != 0) &&
        text_value(values, "format") == name_of(BenchFormat::nccl_tests)) {
        refuse("nccl-tests' columns hold measurements, and nothing beside them");
    }
}

std::vector<std::string> simulated_algorithms(const po::variables_map& values,
                                              const AllReduceOptions& options) {
    if (options.backend != nullptr) {
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
                                       const AllReduceOptions& options) {
    SimulationRequest request{
        .kind = options.kind,
        .algorithms = read_simulated_algorithms(text_value(values, "link"),
                                                simulated_algorithms(values, options))};
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

// Reads the rows of the measured or simulated backend. They replace the ranks and sizes that are
// left out, except under another launcher.
void read_published(const po::variables_map& values, bool fixed, AllReduceOptions& options) {
    const std::string& path = text_value(values, "published");
    std::string backend(requested_backend(values).name());
    if (options.backend == nullptr && options.simulation) {
        const std::string& of_link = options.simulation->algorithms.front().link.provenance.backend;
        backend = of_link.empty() ? backend : of_link;
    }
    check_can_be_read_again(path);
    options.published = read_published_all_reduces(path, options.dtype, backend);
    if (!fixed && values.count("ranks") == 0) {
        options.ranks = rising(transformed(
            options.published, [](const PublishedAllReduce& row) { return row.place.ranks; }));
        if (options.backend != nullptr && options.ranks.back() > most_ranks_here) {
            throw InputError("--published", "",
                             fmt::format("at most {} ranks to measure", most_ranks_here),
                             fmt::format("{}", options.ranks.back()));
        }
    }
    if (!fixed && values["bytes"].defaulted()) {
        options.sizes = rising(transformed(
            options.published, [](const PublishedAllReduce& row) { return row.place.size; }));
    }
}

// --- patience ------------------------------------------------------------------------------------

// A minute, and three times the longest all-reduce and its check: ranks that share cores take turns
// at both, and a link of limited rate carries up to twice the message.
std::chrono::milliseconds deadline_for(const AllReduceOptions& options, std::int64_t local_ranks) {
    constexpr double seconds_per_checked_term = 10e-9;
    constexpr double loopback_bytes_per_second = 0.5e9;
    const auto bytes = static_cast<double>(options.sizes.back().count);
    const double elements = bytes / static_cast<double>(element_size(options.dtype).count);
    const auto ranks = static_cast<double>(options.ranks.back());
    const double cores = std::max(read_environment().cores, 1U);
    const double ranks_per_core = std::max(static_cast<double>(local_ranks) / cores, 1.0);
    const double check = elements * ranks * ranks_per_core * seconds_per_checked_term;
    const double reduce = 2 * bytes * ranks_per_core / loopback_bytes_per_second;
    const auto& rate = options.network.link_rate;
    const double wire = rate ? 2 * bytes * 8 / static_cast<double>(rate->count) : 0.0;
    return std::chrono::seconds(60 + std::llround(3 * (check + reduce + wire)));
}

}  // namespace

Bytes whole_parts(const AllReduceOptions& options, Bytes size, std::int64_t ranks) {
    if (options.kind == CollectiveKind::all_reduce) {
        return size;
    }
    const std::int64_t one_of_each = ranks * element_size(options.dtype).count;
    return {size.count / one_of_each * one_of_each};
}

CommandHelp all_reduce_help(CollectiveKind kind) {
    std::vector<OptionText> own = own_options;
    if (kind == CollectiveKind::all_reduce) {
        own.push_back(published_option);
    }
    return {.usage = {fmt::format("bucketwise {} [OPTIONS]", bench_name(kind))},
            .options = bench_options(
                own, nullptr,
                deadline_text + ", and more for many ranks, large messages or slow links"),
            .text = explanation_of(kind),
            .arguments = {.files = false},
            .values = {{"algorithms",
                        {.names = {simulated_names.begin(), simulated_names.end()},
                         .files = false,
                         .several = true}},
                       {"format", one_of(every<BenchFormat>)},
                       {"link", {}}}};
}

AllReduceOptions all_reduce_options(CollectiveKind kind, const CommandLine& line,
                                    const std::optional<RankIdentity>& identity) {
    const po::variables_map& values = line.values;
    const bool fixed = identity && !is_own_rank(identity);
    refuse_scenario(values, bench_name(kind));
    check_simulation_options(kind, values);
    AllReduceOptions options;
    options.kind = kind;
    read_bench(record_name(kind), line, identity, {}, options);
    if (options.backend != nullptr) {
        options.algorithms = requested_algorithms(values, options);
    }
    options.ranks = requested_ranks(values, options.backend != nullptr, identity);
    options.dtype = choice_value(values, "dtype", every<DType>);
    options.sizes = rising(parse_sizes(text_value(values, "bytes"), "--bytes"));
    for (const Bytes size : options.sizes) {
        check_message(size, options.dtype, "--bytes");
    }
    if (values.count("iterations") != 0) {
        options.iterations = whole_number(values, "iterations", {1, 1'000'000});
    }
    options.format = choice_value(values, "format", every<BenchFormat>);
    options.output = text_or_empty(values, "output");
    if (options.simulates && !is_own_rank(identity)) {
        options.simulation = requested_simulation(values, options);
    }
    if (values.count("published") != 0) {
        read_published(values, fixed, options);
    }
    options.simulated_ranks = options.ranks;
    if (!text_or_empty(values, "simulated-ranks").empty()) {
        const auto more = whole_numbers(values, "simulated-ranks", {1, most_simulated_ranks});
        options.simulated_ranks.insert(options.simulated_ranks.end(), more.begin(), more.end());
        options.simulated_ranks = rising(options.simulated_ranks);
    }
    const std::int64_t most = options.simulated_ranks.back();
    if (whole_parts(options, options.sizes.front(), most).count == 0) {
        throw InputError("--bytes", "",
                         fmt::format("at least an element of each of {} ranks, {} bytes", most,
                                     most * element_size(options.dtype).count),
                         fmt::format("{}", options.sizes.front().count));
    }
    if (values.count("deadline") == 0) {
        options.network.deadline =
            deadline_for(options, identity ? identity->local_ranks : options.ranks.back());
    }
    return options;
}

}  // namespace bucketwise
