// The options of the collectives' benches, and the rows that they choose.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "bench/all_reduce/all_reduce.h"
#include "cli/shell/size.h"
#include "hw/record/environment.h"
#include "sim/base/error.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

constexpr std::array simulated_names{
    std::string_view("library"), std::string_view("ring"), std::string_view("direct"),
    std::string_view("recursive_halving_doubling"), std::string_view("double_binary_tree")};

using Names = std::vector<std::string>;

// --- what to measure -----------------------------------------------------------------------------

template <typename Value>
std::vector<Value> rising(std::vector<Value> values) {
    std::ranges::sort(values);
    values.erase(std::unique(values.begin(), values.end()), values.end());
    return values;
}

std::vector<AllReduceImplementation> requested_implementations(const AllReduceOptions& o) {
    BackendRequest request = o.job.request;
    // Gloo's own reduce-scatter is not measured.
    const bool only_ours = !o.backend.is_nccl() && o.kind == CollectiveKind::reduce_scatter;
    const Names all = only_ours             ? Names{"ring", "direct"}
                      : o.backend.is_nccl() ? Names{"library"}
                                            : Names{"library", "ring", "direct"};
    std::vector<AllReduceImplementation> implementations;
    for (const std::string& name : o.algorithms.value_or(all)) {
        request.implementation = choice_named(name, every<AllReduceImplementation>, "--algorithms");
        o.job.backend->check(request);
        if (only_ours && request.implementation == AllReduceImplementation::library) {
            throw InputError("--algorithms", "",
                             "ring or direct, as Gloo's own reduce-scatter is not measured",
                             "\"library\"");
        }
        implementations.push_back(request.implementation);
    }
    return each_once(implementations);
}

// As typed, as published, or the standard; ranks of another launcher are as many as they are.
void choose_ranks_and_sizes(AllReduceOptions& o) {
    const bool fixed = o.identity && !is_own_rank(o.identity);
    const bool as_published = !fixed && !o.published_rows.empty();
    const auto of_published = [&](const char* key) {
        return transformed(o.published_rows,
                           [&](const BenchRow& row) { return row[key].get<std::int64_t>(); });
    };
    using Numbers = std::vector<std::int64_t>;
    const Numbers standard = fixed          ? Numbers{o.identity->ranks}
                             : as_published ? of_published("world_size")
                                            : Numbers{2, 4};
    o.ranks = rising(o.typed_ranks.value_or(standard));
    if (fixed && o.ranks != standard) {
        throw InputError(
            "--ranks", "",
            fmt::format("as many as {} started, {}", o.identity->launcher, o.identity->ranks),
            fmt::format("\"{}\"", fmt::join(o.ranks, ",")));
    }
    if (o.measures && !fixed) {
        static_cast<void>(
            WholeNumbers{1, most_ranks_here}(std::to_string(o.ranks.back()), "--ranks"));
    }
    o.sizes =
        rising(as_published && o.line->values["bytes"].defaulted()
                   ? transformed(of_published("bytes"), [](auto count) { return Bytes{count}; })
                   : o.sizes);
    for (const Bytes size : o.sizes) {
        check_message(size, o.dtype, "--bytes");
    }
    o.simulated_ranks.insert(o.simulated_ranks.end(), o.ranks.begin(), o.ranks.end());
    o.simulated_ranks = rising(o.simulated_ranks);
    const std::int64_t most = o.simulated_ranks.back();
    if (whole_parts(o, o.sizes.front(), most).count == 0) {
        throw InputError("--bytes", "",
                         fmt::format("at least an element of each of {} ranks, {} bytes", most,
                                     most * element_size(o.dtype).count),
                         fmt::format("{}", o.sizes.front().count));
    }
}

// --- what to compare with ------------------------------------------------------------------------

SimulationRequest requested_simulation(const AllReduceOptions& o) {
    Names names = o.algorithms.value_or(Names{"library", "ring", "direct"});
    if (o.measures) {
        names = transformed(o.implementations, [](AllReduceImplementation implementation) {
            return std::string(name_of(implementation));
        });
    }
    for (const std::string& name : names) {
        if (std::ranges::count(simulated_names, name) == 0) {
            throw InputError("--algorithms", "",
                             fmt::format("one of {}", fmt::join(simulated_names, ", ")),
                             "\"" + name + "\"");
        }
    }
    SimulationRequest request{.kind = o.kind,
                              .algorithms = read_simulated_algorithms(o.links, each_once(names)),
                              .process_memory = o.process_memory};
    for (SimulatedAlgorithm& algorithm : request.algorithms) {
        algorithm.link.processors = o.processors ? o.processors : algorithm.link.processors;
    }
    return request;
}

// The rows of the measured or simulated backend.
BenchRows requested_published(const AllReduceOptions& o) {
    std::string backend(o.backend.backend->name());
    if (!o.measures && o.simulation) {
        const std::string& of_link = o.simulation->algorithms.front().link.provenance.backend;
        backend = of_link.empty() ? backend : of_link;
    }
    check_can_be_read_again(*o.published);
    return read_published_all_reduces(*o.published, o.dtype, backend);
}

// --- patience ------------------------------------------------------------------------------------

// A minute, and three times the longest all-reduce and its check: ranks that share cores take turns
// at both, and a link of limited rate carries up to twice the message.
std::chrono::milliseconds deadline_for(const AllReduceOptions& o, std::int64_t local_ranks) {
    constexpr double seconds_per_checked_term = 10e-9;
    constexpr double loopback_bytes_per_second = 0.5e9;
    const auto bytes = static_cast<double>(o.sizes.back().count);
    const double elements = bytes / static_cast<double>(element_size(o.dtype).count);
    const auto ranks = static_cast<double>(o.ranks.back());
    const double cores = std::max(read_environment().cores, 1U);
    const double ranks_per_core = std::max(static_cast<double>(local_ranks) / cores, 1.0);
    const double check = elements * ranks * ranks_per_core * seconds_per_checked_term;
    const double reduce = 2 * bytes * ranks_per_core / loopback_bytes_per_second;
    const auto& rate = o.network.link_rate;
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

std::vector<OptionText> all_reduce_rows(AllReduceOptions& o) {
    const auto read_names = [](const std::string& text, const std::string&) {
        return split_at_commas(text);
    };
    std::vector<OptionText> rows{
        {"algorithms",
         "who carries them out: the library, or, with gloo, our ring or direct exchange; default: "
         "all that the backend has. Where nothing is measured also recursive_halving_doubling and "
         "double_binary_tree",
         {o.algorithms, read_names},
         Completions{.names = {simulated_names.begin(), simulated_names.end()},
                     .files = false,
                     .several = true}},
        {"ranks",
         "how many ranks, each in turn; default: 2,4",
         {o.typed_ranks, ListOf{bench_counts}}},
        {"bytes", "sizes of the message", {o.sizes, parse_sizes, "1kB,10kB,100kB,1MB,10MB,100MB"}},
        {"dtype",
         "float32, float16, bfloat16 or float64",
         {o.dtype, Choice{every<DType>}, "float32"}},
        rounds_row(o, "how often to measure every size, after one that warms up"),
        {"iterations",
         "how many back to back in each round; default: 1 of a large message to 20 of a small",
         {o.iterations, bench_counts}},
        seed_row(o, "of the order of sizes within each round"),
        {"format", "text, csv, json or nccl-tests", {o.table, Choice{every<BenchFormat>}, "text"}},
        {"simulate", "simulate too, or, without --backend, only: then no rank is started",
         o.simulates},
        {"link",
         "with --simulate: the link file, whose algorithm is replaced by each of --algorithms but "
         "library, or one file for each",
         o.links},
        {"simulated-ranks",
         "with --simulate: numbers of ranks in addition to those of --ranks, up to 1000000",
         {o.simulated_ranks, ListOf{bench_counts}}},
        {"processors",
         "with --simulate: of the one machine on which all ranks run, whatever the link says; "
         "where they are fewer than ranks, ranks take turns on them",
         {o.processors, WholeNumbers{1, most_processors}}},
        {"process-memory",
         "with --simulate: memory of a rank's process before any message, where nothing is "
         "measured",
         {o.process_memory, parse_size}},
        {"output,o", "new file for every sample, one JSON object per line", o.output}};
    if (o.kind == CollectiveKind::all_reduce) {
        rows.push_back(published_row(o));
    }
    return rows;
}

void choose_rows(AllReduceOptions& o) {
    if (!o.simulates) {
        refuse_typed(o, {"link", "simulated-ranks", "processors", "process-memory"},
                     "without --simulate");
    } else if (o.line->values.count("link") == 0) {
        throw UsageError{o.name + ": --simulate needs a --link FILE"};
    }
    if ((o.simulates || o.published) && o.table == BenchFormat::nccl_tests) {
        throw UsageError{o.name +
                         ": nccl-tests' columns hold measurements, and nothing beside them"};
    }
    o.format = static_cast<TableFormat>(o.table);
    if (o.measures) {
        o.implementations = requested_implementations(o);
    }
    if (o.simulates && !is_own_rank(o.identity)) {
        o.simulation = requested_simulation(o);
    }
    if (o.published) {
        o.published_rows = requested_published(o);
    }
    choose_ranks_and_sizes(o);
    if (!o.network.deadline) {
        o.job.network.deadline =
            deadline_for(o, o.identity ? o.identity->local_ranks : o.ranks.back());
    }
    for (const std::int64_t ranks : o.ranks) {
        for (const AllReduceImplementation implementation : o.implementations) {
            RankJob& job = o.jobs.emplace_back(o.job);
            job.ranks = static_cast<int>(ranks);
            job.request.implementation = implementation;
            job.label = fmt::format("{} on {}", name_of(implementation), text_of_ranks(ranks));
        }
    }
}

}  // namespace bucketwise
