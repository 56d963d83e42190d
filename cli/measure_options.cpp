#include "cli/measure_options.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/files.h"
#include "cli/measure_rank.h"
#include "cli/overrides.h"
#include "cli/scenario_document.h"
#include "cli/size.h"
#include "hw/measurer.h"
#include "sim/error.h"
#include "sim/json_input.h"
#include "sim/sweep.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::string_view usage_line = "usage: bucketwise measure SCENARIO -o FILE [OPTIONS]\n\n";

constexpr std::string_view examples = R"(
examples:
  bucketwise measure scenarios/two_buckets.json -o measurements.jsonl
  bucketwise measure scenarios/transformer_small.json --ranks 2 --link-rate 1gbit -o measurements.jsonl
  bucketwise measure scenarios/transformer_small.json --ranks 2 --rounds 30 --resume -o measurements.jsonl
  torchrun --no-python --nproc-per-node 2 bucketwise measure scenarios/two_buckets.json -o measurements.jsonl

Ranks are processes of this machine, on its loopback interface, unless torchrun, mpirun or srun started
this one: then it is one rank, meets the others through --store and listens on --interface.
)";

constexpr std::array all_protocols{Protocol::all_reduce, Protocol::compute, Protocol::contention,
                                   Protocol::step};
constexpr std::array all_implementations{AllReduceImplementation::library,
                                         AllReduceImplementation::ring,
                                         AllReduceImplementation::direct};

constexpr std::int64_t most_ranks_here = 250;

po::options_description described_options() {
    po::options_description options("options", 100);
    options.add_options()  //
        ("output,o", po::value<std::string>(),
         "file to append measurements to, one JSON object per line")                     //
        ("backend", po::value<std::string>()->default_value("gloo"), "gloo")             //
        ("ranks", po::value<std::int64_t>(), "how many ranks; default: the scenario's")  //
        ("link-rate", po::value<std::string>(),
         "give each rank a network of its own and limit its link to, say, 1gbit (root, Linux)")  //
        ("bucket-cap", po::value<std::string>()->default_value("auto"),
         "caps to measure besides the default, such as 1MiB,25MiB; auto: up to nine powers of "
         "two")  //
        ("bytes", po::value<std::string>()->default_value("auto"),
         "sizes of isolated all-reduces, such as 4KiB,1MiB; auto: up to the size of all "
         "gradients")  //
        ("protocols", po::value<std::string>()->default_value("allreduce,compute,contention,steps"),
         "what to measure")  //
        ("all-reduce", po::value<std::string>()->default_value("library"),
         "who sums: the library, or our own ring or direct")  //
        ("rounds", po::value<std::int64_t>()->default_value(10),
         "how often to measure everything; one more round warms up")                             //
        ("seed", po::value<std::int64_t>()->default_value(1), "of the order within each round")  //
        ("resume", "go on with a file that an earlier run left")                                 //
        ("deadline", po::value<double>()->default_value(60),
         "seconds that a rank may be silent, or a collective take, before the run fails")  //
        ("store", po::value<std::string>(),
         "where ranks that a launcher started meet: a folder that all see, or redis://HOST:PORT")  //
        ("interface", po::value<std::string>(),
         "network interface of ranks that a launcher started; default: loopback");
    add_scenario_options(options);
    options.add_options()("help,h", "show this");
    return options;
}

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts;
    std::stringstream stream(text);
    for (std::string part; std::getline(stream, part, ',');) {
        parts.push_back(part);
    }
    return parts;
}

template <typename Choices>
auto choose(const std::string& text, const Choices& choices, const char* option) {
    std::string listed;
    for (const auto choice : choices) {
        if (text == name_of(choice)) {
            return choice;
        }
        listed += (listed.empty() ? "" : ", ") + std::string(name_of(choice));
    }
    throw InputError(option, "", "one of " + listed, "\"" + text + "\"");
}

std::int64_t in_range(const po::variables_map& values, const char* option, std::int64_t lowest,
                      std::int64_t highest) {
    const auto value = values[option].as<std::int64_t>();
    if (value < lowest || value > highest) {
        throw InputError(fmt::format("--{}", option), "",
                         fmt::format("a whole number from {} to {}", lowest, highest),
                         std::to_string(value));
    }
    return value;
}

// --- ranks
// ----------------------------------------------------------------------------------------

void set_ranks(Json& document, std::int64_t ranks) {
    set_at(document, "/cluster/ranks", ranks, "--ranks");
    if (document["cluster"].contains("ranks_per_node")) {
        set_at(document, "/cluster/ranks_per_node", ranks, "--ranks");
    }
}

void apply_ranks(const po::variables_map& values, const std::optional<RankIdentity>& identity,
                 Json& document) {
    const bool given = values.count("ranks") != 0;
    if (given) {
        set_ranks(document, in_range(values, "ranks", 1, identity ? 1'000'000 : most_ranks_here));
    }
    if (!identity) {
        return;
    }
    if (given && values["ranks"].as<std::int64_t>() != identity->ranks) {
        throw InputError(
            "--ranks", "",
            fmt::format("as many as {} started, {}", identity->launcher, identity->ranks),
            std::to_string(values["ranks"].as<std::int64_t>()));
    }
    set_ranks(document, identity->ranks);
}

// Every rank reads it again. A pipe could be read once.
void check_can_be_read_again(const std::string& file) {
    std::error_code ignored;
    if (std::filesystem::exists(file, ignored) &&
        !std::filesystem::is_regular_file(file, ignored) &&
        !std::filesystem::is_directory(file, ignored)) {
        throw InputError(file, "", "a file, which every rank reads", "a device or a pipe");
    }
}

void check_local_ranks(const Scenario& scenario, const std::string& file) {
    if (scenario.group.ranks > most_ranks_here) {
        throw InputError(
            file, "/cluster/ranks",
            fmt::format("at most {} ranks on one machine (--ranks says how many)", most_ranks_here),
            std::to_string(scenario.group.ranks));
    }
}

// --- what to measure
// ------------------------------------------------------------------------------

Bytes power_of_two_at_least(Bytes size) {
    Bytes power{1};
    while (power < size) {
        power = 2 * power;
    }
    return power;
}

// Powers of two from a 128th of all gradients to one bucket for all, as far as plans differ.
std::vector<std::optional<Bytes>> automatic_caps(const StepInput& input, const SyncRequest& sync) {
    std::vector<std::optional<Bytes>> caps{std::nullopt};
    if (!has_cap(sync)) {
        return caps;
    }
    const Bytes all = input.workload.gradient_bytes();
    const Bytes largest = power_of_two_at_least(all);
    std::optional<BucketPlan> previous;
    for (Bytes cap{std::max<std::int64_t>(largest.count / 256, 1)}; cap <= largest; cap = 2 * cap) {
        const SyncSettings settings = settings_for(request_with_cap(sync, cap));
        BucketPlan plan =
            make_plan(input.workload.gradients, input.workload.readiness, settings.policy);
        if (!previous || plan.buckets != previous->buckets) {
            caps.emplace_back(roundest_cap(plan.same_plan));
        }
        previous = std::move(plan);
    }
    return caps;
}

std::vector<std::optional<Bytes>> requested_caps(const po::variables_map& values,
                                                 const StepInput& input, const SyncRequest& sync) {
    const std::string& text = values["bucket-cap"].as<std::string>();
    std::vector<std::optional<Bytes>> caps = automatic_caps(input, sync);
    if (text != "auto") {
        if (!has_cap(sync)) {
            throw UsageError{
                fmt::format("--bucket-cap: expected a strategy with a bucket cap, got {}",
                            name_of(sync.strategy))};
        }
        caps.resize(1);  // the default stays: it is what every other is compared with
        for (const Bytes cap : parse_sizes(text, "--bucket-cap")) {
            caps.emplace_back(cap);
        }
    }
    if (has_cap(sync) && sync.bucket_cap) {
        caps.emplace_back(*sync.bucket_cap);
    }
    std::sort(caps.begin(), caps.end());
    caps.erase(std::unique(caps.begin(), caps.end()), caps.end());
    return caps;
}

constexpr Bytes least_message{1024};
constexpr Bytes largest_message{std::int64_t{1} << 30};

std::vector<Bytes> requested_messages(const po::variables_map& values, const StepInput& input,
                                      DType dtype) {
    const std::string& text = values["bytes"].as<std::string>();
    std::vector<Bytes> sizes;
    if (text == "auto") {
        const Bytes largest =
            std::min(power_of_two_at_least(input.workload.gradient_bytes()), largest_message);
        constexpr Bytes coarse_up_to{256 * 1024};
        for (Bytes size = least_message; size <= std::max(largest, coarse_up_to);
             size = (size < coarse_up_to ? 4 : 2) * size) {
            sizes.push_back(size);
        }
        return sizes;
    }
    const Bytes element = element_size(dtype);
    for (const Bytes size : parse_sizes(text, "--bytes")) {
        if (size.count % element.count != 0 || size > 16 * largest_message) {
            throw InputError("--bytes", "",
                             fmt::format("whole elements of {} ({} bytes each), up to 16 GiB",
                                         name_of(dtype), element.count),
                             fmt::format("{} bytes", size.count));
        }
        sizes.push_back(size);
    }
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    return sizes;
}

// A small, a middle and a large message, none larger than all gradients.
std::vector<Bytes> contention_messages(const StepInput& input) {
    std::vector<Bytes> sizes;
    for (const Bytes size : {Bytes{64 * 1024}, Bytes{bytes_per_mib}, Bytes{16 * bytes_per_mib}}) {
        if (sizes.empty() || size <= input.workload.gradient_bytes()) {
            sizes.push_back(size);
        }
    }
    return sizes;
}

Schedule requested_schedule(const po::variables_map& values, const Scenario& scenario,
                            const StepInput& input) {
    std::set<Protocol> protocols;
    for (const std::string& name : split(values["protocols"].as<std::string>())) {
        protocols.insert(choose(name, all_protocols, "--protocols"));
    }
    if (protocols.empty()) {
        protocols.insert(choose("", all_protocols, "--protocols"));
    }
    Schedule schedule;
    schedule.rounds = in_range(values, "rounds", 1, 1'000'000);
    schedule.seed = static_cast<std::uint64_t>(in_range(values, "seed", 0, std::int64_t{1} << 50));
    if (protocols.count(Protocol::all_reduce) != 0) {
        const DType dtype = wire_dtype(scenario, input.workload);
        for (const Bytes size : requested_messages(values, input, dtype)) {
            schedule.items.push_back({.protocol = Protocol::all_reduce, .message = size});
        }
    }
    if (protocols.count(Protocol::compute) != 0) {
        schedule.items.push_back({.protocol = Protocol::compute});
    }
    if (protocols.count(Protocol::contention) != 0) {
        for (const Bytes size : contention_messages(input)) {
            schedule.items.push_back({.protocol = Protocol::contention, .message = size});
        }
    }
    if (protocols.count(Protocol::step) != 0) {
        for (const std::optional<Bytes>& cap : requested_caps(values, input, scenario.sync)) {
            schedule.items.push_back({.protocol = Protocol::step, .cap = cap});
        }
    }
    return schedule;
}

std::chrono::milliseconds requested_deadline(const po::variables_map& values) {
    const double seconds = values["deadline"].as<double>();
    if (!(seconds >= 0.1 && seconds <= 86400)) {
        throw InputError("--deadline", "", "0.1 to 86400 seconds", fmt::format("{}", seconds));
    }
    return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

void check_placement(const MeasureOptions& options, const std::optional<RankIdentity>& identity) {
    const bool launched_elsewhere = identity && identity->launcher != "bucketwise";
    if (!identity && (!options.store.empty() || !options.interface.empty())) {
        throw UsageError{
            "measure: --store and --interface are for ranks that torchrun, mpirun or srun started"};
    }
    if (launched_elsewhere && options.link_rate) {
        throw UsageError{fmt::format(
            "--link-rate: expected ranks that bucketwise starts itself, got one that {} started",
            identity->launcher)};
    }
    if (launched_elsewhere && options.store.empty()) {
        throw UsageError{fmt::format(
            "measure: expected --store, where the {} ranks that {} started can meet, got none",
            identity->ranks, identity->launcher)};
    }
    if (launched_elsewhere && options.interface.empty() &&
        identity->local_ranks < identity->ranks) {
        throw UsageError{
            "measure: expected --interface, as the ranks are on several machines, got none"};
    }
}

std::string text_option(const po::variables_map& values, const char* option) {
    return values.count(option) == 0 ? "" : values[option].as<std::string>();
}

}  // namespace

std::optional<MeasureOptions> measure_options(const std::vector<std::string>& arguments,
                                              const std::optional<RankIdentity>& identity) {
    const po::options_description described = described_options();
    const po::variables_map values = parse_arguments(arguments, described);
    if (values.count("help") != 0) {
        std::cout << usage_line << described << examples;
        return std::nullopt;
    }
    if (values.count("scenario") == 0) {
        throw UsageError{
            "measure: expected a scenario file, got none; see bucketwise measure --help"};
    }
    if (values.count("output") == 0) {
        throw UsageError{
            "measure: expected -o and a file to write, got none; see bucketwise measure --help"};
    }
    if (values["backend"].as<std::string>() != "gloo") {
        throw InputError("--backend", "", "gloo",
                         "\"" + values["backend"].as<std::string>() + "\"");
    }
    const std::string file = values["scenario"].as<std::string>();
    for (const std::string& input : {file, text_option(values, "link")}) {
        check_can_be_read_again(input);
    }
    Json document = read_scenario_document(values, file);
    inline_link(document, file, read_text_file);
    apply_ranks(values, identity, document);

    MeasureOptions options;
    options.command = {"bucketwise", "measure"};
    options.command.insert(options.command.end(), arguments.begin(), arguments.end());
    options.scenario = parse_scenario(document, file, read_text_file);
    options.scenario_text = document.dump();
    options.input = replay_input(options.scenario);
    options.implementation =
        choose(values["all-reduce"].as<std::string>(), all_implementations, "--all-reduce");
    options.schedule = requested_schedule(values, options.scenario, options.input);
    options.output = values["output"].as<std::string>();
    options.resume = values.count("resume") != 0;
    options.deadline = requested_deadline(values);
    if (values.count("link-rate") != 0) {
        options.link_rate = parse_rate(values["link-rate"].as<std::string>(), "--link-rate");
    }
    options.store = text_option(values, "store");
    options.interface = text_option(values, "interface");
    if (identity && identity->launcher == "bucketwise") {
        options.store = environment_variable(store_variable).value_or("");
        options.interface = environment_variable(interface_variable).value_or("");
    }
    if (!identity) {
        check_local_ranks(options.scenario, file);
    }
    check_placement(options, identity);
    return options;
}

Transport transport_of(const MeasureOptions& options) {
    const bool direct = options.implementation == AllReduceImplementation::direct;
    const bool library = options.implementation == AllReduceImplementation::library;
    return {.backend = "gloo",
            // Gloo's own all-reduce is a ring unless told otherwise.
            .algorithm = direct ? "direct" : "ring",
            .implementation = library ? "library" : "bucketwise",
            .ranks = options.scenario.group.ranks};
}

}  // namespace bucketwise
