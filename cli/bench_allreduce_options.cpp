#include "cli/bench_allreduce_options.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include <fmt/format.h>
#include <boost/program_options.hpp>

#include "cli/backends.h"
#include "cli/command.h"
#include "cli/option_values.h"
#include "cli/scenario_document.h"
#include "cli/size.h"
#include "hw/environment.h"
#include "sim/error.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::string_view usage_line = "usage: bucketwise bench allreduce [OPTIONS]\n\n";

constexpr std::string_view explanation = R"(
examples:
  bucketwise bench allreduce
  bucketwise bench allreduce --ranks 1,2,4,8,16 --algorithms ring,direct,library --bytes 4kB,64kB --format csv
  bucketwise bench allreduce --ranks 2,4 --link-rate 1gbit --bytes 1MB,10MB -o allreduce.jsonl
  bucketwise bench allreduce --ranks 4 --algorithms library --bytes 8B,1KiB,1MiB --format nccl-tests
  torchrun --no-python --nproc-per-node 2 bucketwise bench allreduce --store /tmp/meeting

A time is that of the slowest rank. Every sum is checked, element by element. Each algorithm runs in processes of its
own, so that their peak memory is its own too; where torchrun, mpirun or srun started them, they run one algorithm after
another, and the peak includes the algorithms before. Ranks meet as those of bucketwise measure do.
)";

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
         "all that the backend has")                                                       //
        ("ranks", po::value<std::string>(), "how many ranks, each in turn; default: 2,4")  //
        ("bytes", text("1kB,10kB,100kB,1MB,10MB,100MB"), "sizes of the message")           //
        ("dtype", text("float32"), "float32, float16, bfloat16 or float64")                //
        ("rounds", text("5"),
         "how often to measure every size; what comes before them warms up")  //
        ("iterations", po::value<std::string>(),
         "all-reduces back to back in each round; default: 1 of a large message to 20 of a "
         "small")                                                       //
        ("seed", text("1"), "of the order of sizes within each round")  //
        ("format", text("text"), "text, csv or nccl-tests")             //
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

std::vector<int> requested_ranks(const po::variables_map& values,
                                 const std::optional<RankIdentity>& identity) {
    const bool fixed = identity && !is_own_rank(identity);
    const std::int64_t most = fixed ? 1'000'000 : most_ranks_here;
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

std::optional<BenchAllReduceOptions> bench_allreduce_options(
    const std::vector<std::string>& arguments, const std::optional<RankIdentity>& identity) {
    const po::options_description described = described_options();
    const po::variables_map values = parse_arguments(arguments, described);
    if (values.count("help") != 0) {
        std::cout << usage_line << described << explanation;
        return std::nullopt;
    }
    check_arguments(values);
    BenchAllReduceOptions options;
    options.command = {"bucketwise", "bench", "allreduce"};
    options.command.insert(options.command.end(), arguments.begin(), arguments.end());
    options.backend = &requested_backend(values);
    options.request = backend_request(values);
    options.algorithms = requested_algorithms(values, *options.backend, options.request);
    options.ranks = requested_ranks(values, identity);
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
    options.network = requested_network(values, options, identity);
    return options;
}

}  // namespace bucketwise
