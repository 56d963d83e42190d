#include "cli/measure.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/ranks/backends.h"
#include "cli/sharded_settings.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/scenario_document.h"
#include "cli/shell/size.h"
#include "hw/measure/measurer.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/link/link_input.h"
#include "sim/plan/cap.h"
#include "sim/predict/sharded_prediction.h"
#include "sim/scenario/document_edit.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::string_view measure_examples = R"(
examples:
  bucketwise measure scenarios/two_buckets.json -o measurements.jsonl
  bucketwise measure scenarios/transformer_small.json --ranks 2 --link-rate 1gbit -o measurements.jsonl
  bucketwise measure scenarios/transformer_small.json --ranks 2 --rounds 30 --resume -o measurements.jsonl
  torchrun --no-python --nproc-per-node 2 bucketwise measure scenarios/two_buckets.json -o measurements.jsonl

With --backend nccl every rank needs a GPU of this machine for itself, or --share-gpu.

Ranks are processes of this machine, on its loopback interface, unless torchrun, mpirun or srun started
this one: then it is one rank, meets the others through --store and listens on --interface.
)";

constexpr const char* measure_time_text =
    "such as 2min: measure for so long, what is worth it: every round goes to the caps between "
    "which nothing is decided yet; instead of --rounds";
po::options_description measuring_options(const char* output_text, const char* time_text) {
    po::options_description options("options", 100);
    add_options(
        options,
        {{"output,o", output_text},
         {"ranks", "how many ranks; default: the scenario's"},
         {"bucket-cap",
          "caps to measure besides the default, such as 1MiB,25MiB; auto: up to thirteen, each "
          "with "
          "a plan of its own",
          "auto"},
         {"sharding",
          "of a step that is sharded: layers per group to measure besides the scenario's own "
          "setting, such as 1,2,all; with /keep behind it, parameters stay after forward; auto: 1, "
          "2, 4 and so on, and all. Of zero3: elements to prefetch, such as 0,1000000,all; auto: "
          "none, a quarter of all, and all",
          "auto"},
         {"bytes",
          "sizes of isolated messages, such as 4KiB,1MiB; auto: up to the size of all gradients, "
          "or "
          "of the largest group",
          "auto"},
         {"protocols",
          "what to measure; of a step that is sharded "
          "allgather,reducescatter,compute,contention,steps, and allreduce of hsdp; on a CPU "
          "contention only where all-gathers are asynchronous",
          "allreduce,compute,contention,steps"},
         {"all-reduce", "who sums: the library, or, with gloo, our own ring or direct", "library"},
         {"contention-ctas",
          "nccl: numbers of thread blocks to measure contention with; default: 2,8,32"},
         {"rounds", "how often to measure everything at most; one more round warms up", "10"},
         {"time", time_text},
         {"seed", "of the order within each round", "1"},
         {"resume", "go on with a file that an earlier run left", no_value}});
    add_backend_options(options);
    add_network_options(options,
                        "seconds that a rank may be silent, or a collective take, before the run "
                        "fails; default: 60");
    add_scenario_options(options);
    add_workload_options(options);
    add_options(options, {help_option});
    return options;
}

// --- ranks ---

void apply_ranks(const po::variables_map& values, const std::optional<RankIdentity>& identity,
                 Json& document) {
    const auto ranks = requested_ranks(values, identity, most_ranks_here);
    if (!ranks) {
        return;
    }
    const bool foreign = identity && !is_own_rank(identity);
    set_ranks(document, *ranks, foreign ? identity->local_ranks : *ranks, "--ranks");
}

void check_local_ranks(const Scenario& scenario, const std::string& file) {
    if (scenario.group.ranks > most_ranks_here) {
        throw InputError(
            file, "/cluster/ranks",
            fmt::format("at most {} ranks on one machine (--ranks says how many)", most_ranks_here),
            std::to_string(scenario.group.ranks));
    }
}

// --- what to measure ---

// A range of caps for every plan, from a 256th of all gradients to one bucket for all.
std::vector<CapRange> distinct_plans(const StepInput& input, const SyncRequest& sync) {
    const std::int64_t all = input.workload.gradient_bytes().count;
    // Enough plans to choose from, however many there are.
    constexpr double least_growth = 1.02;
    std::vector<CapRange> plans;
    BucketPlan last;
    walk_plans(std::max(Bytes{all / 256}, least_cap(sync)), least_growth, [&](Bytes cap) {
        BucketPlan plan = make_plan(input.workload, settings_for(with_cap(sync, cap)).policy);
        const CapRange same = plan.same_plan;
        if (plans.empty() || !plan.is_same_step(last)) {
            plans.push_back(same);
        }
        last = std::move(plan);
        return CapRange{cap, same.highest};
    });
    return plans;
}

double log_of(const CapRange& range) {
    return std::log(static_cast<double>(range.lowest.count));
}

// The roundest caps of up to thirteen plans: the first, the last, and again and again the one that
// lies furthest from all that were chosen, on a logarithmic scale.
std::vector<Bytes> automatic_caps(const StepInput& input, const SyncRequest& sync) {
    std::vector<Bytes> caps;
    if (!has_cap(sync)) {
        return caps;
    }
    constexpr std::size_t most_caps = 13;
    const std::vector<CapRange> plans = distinct_plans(input, sync);
    std::vector<double> distance(plans.size());
    std::size_t next = 0;
    for (std::size_t chosen = 0; chosen < std::min(most_caps, plans.size()); ++chosen) {
        caps.push_back(roundest_cap(plans[next]));
        for (std::size_t i = 0; i < plans.size(); ++i) {
            const double away = std::abs(log_of(plans[i]) - log_of(plans[next]));
            distance[i] = chosen == 0 ? away : std::min(distance[i], away);
        }
        next = static_cast<std::size_t>(std::max_element(distance.begin(), distance.end()) -
                                        distance.begin());
    }
    return caps;
}

std::vector<Cap> requested_caps(const po::variables_map& values, const StepInput& input,
                                const SyncRequest& sync) {
    const std::string& text = text_value(values, "bucket-cap");
    if (text != "auto" && !has_cap(sync)) {
        throw UsageError{fmt::format("--bucket-cap: expected a strategy with a bucket cap, got {}",
                                     name_of(sync.strategy))};
    }
    const std::vector<Bytes> others =
        text == "auto" ? automatic_caps(input, sync) : parse_sizes(text, "--bucket-cap");
    check_caps(others, sync);
    std::set<std::optional<Bytes>> caps(others.begin(), others.end());
    caps.insert(std::nullopt);  // the default: it is what every other is compared with
    if (const std::optional<Bytes> named = cap_of(sync).named()) {
        caps.insert(*named);
    }
    return {caps.begin(), caps.end()};
}

constexpr Bytes least_message{1024};
constexpr Bytes largest_message{std::int64_t{1} << 30};

// What isolated messages of one kind are like.
struct MessageSizes {
    DType dtype = DType::float32;
    std::int64_t parts = 1;          // of equal size, in whole elements
    Bytes largest;                   // that a step sends
    std::set<Bytes> occurring = {};  // that must be among them
};

Bytes rounded_up(Bytes size, const MessageSizes& sizes) {
    const Bytes granule = sizes.parts * element_size(sizes.dtype);
    return divided(size.count, granule.count) * granule;
}

std::set<Bytes> automatic_messages(const MessageSizes& sizes) {
    const auto all = static_cast<std::uint64_t>(sizes.largest.count);
    const Bytes largest =
        std::min(Bytes{static_cast<std::int64_t>(std::bit_ceil(all))}, largest_message);
    constexpr Bytes coarse_up_to{std::int64_t{256} << 10};
    std::set<Bytes> messages = sizes.occurring;
    for (Bytes size = least_message; size <= std::max(largest, coarse_up_to);
         size = (size < coarse_up_to ? 4 : 2) * size) {
        messages.insert(rounded_up(size, sizes));
    }
    return messages;
}

std::vector<Bytes> requested_messages(const po::variables_map& values, const MessageSizes& sizes) {
    const std::string& text = text_value(values, "bytes");
    std::set<Bytes> messages;
    if (text == "auto") {
        messages = automatic_messages(sizes);
    } else {
        for (const Bytes size : parse_sizes(text, "--bytes")) {
            check_message(size, sizes.dtype, "--bytes");
            if (size != rounded_up(size, sizes)) {
                throw InputError("--bytes", "",
                                 fmt::format("whole elements of {} for each of {} ranks",
                                             name_of(sizes.dtype), sizes.parts),
                                 fmt::format("{} bytes", size.count));
            }
            messages.insert(size);
        }
    }
    return {messages.begin(), messages.end()};
}

// Messages from small to large, none larger than any that is sent. GPUs' buckets are larger.
std::vector<Bytes> contention_messages(const MessageSizes& sent, bool is_nccl) {
    constexpr Bytes kib{1024};
    const std::array wanted = is_nccl ? std::array{64 * kib, 512 * kib, 8192 * kib, 65536 * kib}
                                      : std::array{64 * kib, 512 * kib, 4096 * kib, 32768 * kib};
    std::vector<Bytes> sizes;
    for (const Bytes size : wanted) {
        if (sizes.empty() || size <= sent.largest) {
            sizes.push_back(rounded_up(size, sent));
        }
    }
    return sizes;
}

// How much a collective disturbs depends on how many multiprocessors it takes.
std::vector<std::optional<std::int64_t>> contention_ctas(const po::variables_map& values) {
    const bool is_nccl = text_value(values, "backend") == "nccl";
    if (!is_nccl) {
        if (values.count("contention-ctas") != 0) {
            throw InputError("--contention-ctas", "", "--backend nccl", "--backend gloo");
        }
        return {std::nullopt};
    }
    if (values.count("contention-ctas") == 0) {
        return {2, 8, 32};
    }
    std::set<std::optional<std::int64_t>> ctas;
    for (const std::string& part : list_value(values, "contention-ctas")) {
        ctas.insert(read_ctas(part, "--contention-ctas"));
    }
    return {ctas.begin(), ctas.end()};
}

bool has_replicas(const Scenario& scenario) {
    return shard_group_of(scenario).ranks < scenario.group.ranks;
}

std::set<Protocol> requested_protocols(const po::variables_map& values, const Scenario& scenario) {
    if (scenario.sharding && !is_typed(values, "protocols")) {
        std::set<Protocol> protocols{Protocol::all_gather, Protocol::reduce_scatter,
                                     Protocol::compute, Protocol::contention, Protocol::step};
        if (has_replicas(scenario)) {
            protocols.insert(Protocol::all_reduce);
        }
        return protocols;
    }
    std::set<Protocol> protocols;
    for (const std::string& name : list_value(values, "protocols")) {
        protocols.insert(choice_named(name, every<Protocol>, "--protocols"));
    }
    return protocols;
}

void refuse_options_of_others(const po::variables_map& values, const Scenario& scenario) {
    const auto refuse = [&](const char* option, const char* expected, std::string_view strategy) {
        if (is_typed(values, option)) {
            throw UsageError{fmt::format("--{}: expected {}, got {}", option, expected, strategy)};
        }
    };
    if (!scenario.sharding) {
        refuse("sharding", "a strategy that shards", name_of(scenario.sync.strategy));
        return;
    }
    const std::string_view strategy = name_of(scenario.sharding->strategy);
    for (const char* option : {"bucket-cap", "time"}) {
        refuse(option, "a strategy with buckets", strategy);
    }
}

// What a step sends, and how it is measured alone: among all ranks.
class MessagesToMeasure {
  public:
    MessagesToMeasure(const Scenario& scenario, const StepInput& input,
                      const std::vector<ShardingRequest>& settings)
        : dtypes_(message_dtypes(scenario, input)), ranks_(input.group.ranks) {
        if (settings.empty()) {
            largest_ = input.workload.gradient_bytes();
        }
        for (const ShardingRequest& setting : settings) {
            const ShardedInput sharded = sharded_replay_input(scenario, setting, true);
            for (const Collective& collective : sharded_program(sharded).collectives) {
                largest_ = std::max(largest_, collective.bytes);
                if (collective.group) {  // there are as many as there are groups
                    occurring_[collective.kind].insert(collective.bytes);
                }
            }
        }
    }

    [[nodiscard]] MessageSizes of(CollectiveKind kind) const {
        const bool gathers = kind == CollectiveKind::all_gather;
        MessageSizes sizes{gathers ? dtypes_.all_gather : dtypes_.sum,
                           kind == CollectiveKind::all_reduce ? 1 : ranks_, largest_};
        if (const auto found = occurring_.find(kind); found != occurring_.end()) {
            for (const Bytes size : found->second) {
                sizes.occurring.insert(rounded_up(size, sizes));
            }
        }
        return sizes;
    }

  private:
    MessageDtypes dtypes_;
    std::int64_t ranks_;
    Bytes largest_;
    std::map<CollectiveKind, std::set<Bytes>> occurring_;  // in steps that are sharded
};

// Computing is disturbed by what it does not wait for: on a GPU by all that is sent, on a CPU by
// all-gathers that do not block.
std::vector<CollectiveKind> disturbing(const Scenario& scenario, bool on_host) {
    if (!scenario.sharding) {
        return {CollectiveKind::all_reduce};
    }
    const bool by_module = scenario.sharding->strategy == ShardedStrategy::zero3;
    if (on_host) {
        return by_module || scenario.sharding->asynchronous_unshard
                   ? std::vector{CollectiveKind::all_gather}
                   : std::vector<CollectiveKind>{};
    }
    std::vector<CollectiveKind> kinds{CollectiveKind::all_gather, CollectiveKind::reduce_scatter};
    if (has_replicas(scenario)) {
        kinds.push_back(CollectiveKind::all_reduce);
    }
    return kinds;
}

void add_contentions(const po::variables_map& values, const Scenario& scenario,
                     const MessagesToMeasure& messages, std::vector<Item>& items) {
    const bool is_nccl = text_value(values, "backend") == "nccl";
    for (const CollectiveKind kind : disturbing(scenario, !is_nccl)) {
        for (const Bytes size : contention_messages(messages.of(kind), is_nccl)) {
            for (const std::optional<std::int64_t>& ctas : contention_ctas(values)) {
                items.push_back({.protocol = Protocol::contention,
                                 .message = size,
                                 .ctas = ctas,
                                 .collective = kind});
            }
        }
    }
}

std::vector<Item> requested_items(const po::variables_map& values, const Scenario& scenario,
                                  const StepInput& input) {
    refuse_options_of_others(values, scenario);
    const std::vector<ShardingRequest> settings =
        scenario.sharding
            ? settings_to_measure(text_value(values, "sharding"), scenario, input.workload)
            : std::vector<ShardingRequest>{};
    const MessagesToMeasure messages(scenario, input, settings);
    std::vector<Item> items;
    for (const Protocol protocol : requested_protocols(values, scenario)) {
        if (const auto kind = isolated_kind(protocol)) {
            for (const Bytes size : requested_messages(values, messages.of(*kind))) {
                items.push_back({.protocol = protocol, .message = size});
            }
        } else if (protocol == Protocol::compute) {
            items.push_back({.protocol = Protocol::compute});
        } else if (protocol == Protocol::contention) {
            add_contentions(values, scenario, messages, items);
        } else if (scenario.sharding) {
            for (const ShardingRequest& setting : settings) {
                items.push_back({.protocol = Protocol::step, .sharding = setting});
            }
        } else {
            for (const Cap cap : requested_caps(values, input, scenario.sync)) {
                items.push_back({.protocol = Protocol::step, .cap = cap});
            }
        }
    }
    return items;
}

// What measures into `output` as `arguments` say, which have another -o.
std::vector<std::string> measure_command(
    const std::vector<std::string>& arguments, const std::string& output,
    const std::optional<std::chrono::duration<double>>& time_limit) {
    const po::options_description options = measuring_options("", "");
    std::vector<std::string> command{"bucketwise", "measure"};
    for (const po::option& option :
         po::command_line_parser(arguments).options(options).run().options) {
        std::vector<std::string> tokens = option.original_tokens;
        if (option.string_key == "time") {
            continue;
        }
        if (option.string_key == "output") {
            tokens.back().resize(tokens.back().size() - option.value.front().size());
            tokens.back() += output;
        }
        command.insert(command.end(), tokens.begin(), tokens.end());
    }
    if (time_limit) {
        command.push_back(fmt::format("--time={:g}s", time_limit->count()));
    }
    return command;
}

// Of a validation what is left beside concluding: calibrating, predicting and drawing.
using TimeLimit = std::optional<std::chrono::duration<double>>;

TimeLimit time_limit_of(const po::variables_map& values, bool concludes) {
    constexpr double standard_s = 180;
    constexpr double concluding_s = 10;
    constexpr double shortest_s = 1;
    constexpr double longest_s = 7 * 86400;
    if (values.count("time") == 0 && (!concludes || is_typed(values, "rounds"))) {
        return std::nullopt;
    }
    const double seconds = values.count("time") == 0
                               ? standard_s
                               : seconds_value(values, "time", shortest_s, longest_s);
    return std::chrono::duration<double>(concludes ? std::max(seconds - concluding_s, seconds / 2)
                                                   : seconds);
}

}  // namespace

CommandHelp help_of_measuring(const std::string& usage, const char* output_text,
                              const char* time_text, std::string_view text) {
    return {.usage = {usage},
            .options = measuring_options(output_text, time_text),
            .text = text,
            .arguments = scenarios(),
            .values = {{"all-reduce", one_of(every<AllReduceImplementation>)},
                       {"bucket-cap", {.names = {"auto"}, .files = false}},
                       {"bytes", {.names = {"auto"}, .files = false}},
                       {"protocols", some_of(every<Protocol>)},
                       {"sharding", {.names = {"auto", "all"}, .files = false}}}};
}

CommandHelp measure_help() {
    return help_of_measuring("bucketwise measure SCENARIO -o FILE [OPTIONS]",
                             "file to append measurements to, one JSON object per line",
                             measure_time_text, measure_examples);
}

MeasureOptions measure_options(const CommandLine& line, const std::optional<RankIdentity>& identity,
                               const MeasurementPlace& place) {
    const po::variables_map& values = line.values;
    MeasureOptions options;
    options.output = text_or_empty(values, "output");
    if (place) {
        options.output = place(options.output);
    }
    const std::string file = scenario_file(values, "measure");
    if (!place && values.count("output") == 0) {
        throw UsageError{
            "measure: expected -o and a file to write, got none; see bucketwise measure --help"};
    }
    RankJob& job = options.job;
    job.backend = &requested_backend(values);
    job.request = backend_request(values);
    job.request.implementation = choice_value(values, "all-reduce", every<AllReduceImplementation>);
    job.backend->check(job.request);
    Json document = scenario_for_ranks(values, identity, file);
    inline_link(document, file, read_text_file);
    apply_ranks(values, identity, document);
    job.document = document.dump();

    options.time_limit = time_limit_of(values, static_cast<bool>(place));
    job.command = {"bucketwise", "measure"};
    if (place) {
        job.command = measure_command(line.arguments, options.output, options.time_limit);
    } else {
        job.command.insert(job.command.end(), line.arguments.begin(), line.arguments.end());
    }
    options.scenario = parse_scenario(document, file, read_text_file,
                                      place ? StrategyKinds::replicated : StrategyKinds::all);
    job.backend->check_scenario(options.scenario, file);
    options.scenario_text = job.document;
    options.input = replay_input(options.scenario);
    job.ranks = static_cast<int>(options.scenario.group.ranks);
    constexpr std::int64_t most_rounds = 1'000'000;
    const bool as_many_as_fit = options.time_limit && !is_typed(values, "rounds");
    job.order.rounds =
        as_many_as_fit ? most_rounds : whole_number(values, "rounds", {1, most_rounds});
    job.order.seed = seed_value(values);
    options.items = requested_items(values, options.scenario, options.input);
    options.resume = values.count("resume") != 0;
    constexpr std::chrono::minutes standard_deadline{1};
    job.network = job_network(values, identity, "measure", standard_deadline);
    if (!identity) {
        check_local_ranks(options.scenario, file);
    }
    return options;
}

}  // namespace bucketwise
