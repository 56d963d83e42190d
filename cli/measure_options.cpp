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

#include "cli/sharded_settings.h"
#include "cli/shell/files.h"
#include "cli/shell/size.h"
#include "hw/measure/measurer.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/engine/bucket_planner.h"
#include "sim/link/link_input.h"
#include "sim/plan/cap.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/document_edit.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::int64_t most_rounds = 1'000'000;

std::vector<OptionText> measuring_rows(MeasureRequest& o, const char* output_text,
                                       const char* time_text) {
    const Completions automatic{.names = {"auto"}, .files = false};
    return {
        {"output,o", output_text, o.output},
        {"ranks",
         "number of ranks; default: the scenario's",
         {o.scenario.ranks, WholeNumbers{1, 1'000'000}}},
        {"bucket-cap",
         "caps to measure beside the default, such as 1MiB,25MiB; auto: up to thirteen, each with "
         "a plan of its own",
         {o.caps, sizes_or_auto, "auto"},
         automatic},
        {"sharding",
         "settings of a sharded step to measure beside the scenario's: layers per group, such as "
         "1,2,all; /keep behind one: parameters stay after forward; auto: 1, 2, 4 and so on, all, "
         "1/keep and all/keep. For zero3: elements to prefetch, such as 0,1000000,all; auto: none, "
         "a quarter of all, and all",
         {o.sharding, [](const std::string& text, const std::string&) { return text; }, "auto"},
         Completions{.names = {"auto", "all"}, .files = false}},
        {"bytes",
         "sizes of isolated messages, such as 4KiB,1MiB; auto: up to the size of all gradients, or "
         "of the largest group",
         {o.messages, sizes_or_auto, "auto"},
         automatic},
        {"protocols",
         "kinds of measurements; default for a sharded step: "
         "allgather,reducescatter,compute,contention,steps, and allreduce for hsdp; on a CPU "
         "contention beside all-gathers only",
         {o.protocols, ListOf{Choice{every<Protocol>}}, "allreduce,compute,contention,steps"},
         some_of(every<Protocol>)},
        {"all-reduce",
         "implementation: library, or, with gloo, our own ring or direct",
         {o.backend.request.implementation, Choice{every<AllReduceImplementation>}, "library"}},
        {"contention-ctas",
         "nccl: numbers of thread blocks to measure contention with; default: 2,8,32",
         {o.contention_ctas, ListOf{cta_numbers}}},
        {"rounds",
         "most rounds; each measures everything once, and one more warms up",
         {o.rounds, WholeNumbers{1, most_rounds}, "10"}},
        {"time", time_text, {o.time_s, TimeInSeconds{.least = 1, .most = 7 * 86400}}},
        {"seed", "seed of the order within each round", {o.seed, read_seed, "1"}},
        {"resume", "continue a file of an earlier run", o.resume}};
}

// --- ranks ---

// --- what to measure ---

// A range of caps for every plan, from a 256th of all gradients to one bucket for all.
std::vector<CapRange> distinct_plans(const StepInput& input, const SyncRequest& sync) {
    const std::int64_t all = input.workload.gradient_bytes().count;
    // Enough plans to choose from, however many there are.
    constexpr double least_growth = 1.02;
    std::vector<CapRange> plans;
    BucketPlan last;
    walk_plans(std::max(Bytes{all / 256}, least_cap(sync)), least_growth, [&](Bytes cap) {
        BucketPlan plan = plan_of(input, settings_for(with_cap(sync, cap), input));
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

std::vector<Cap> requested_caps(const MeasureRequest& request, const StepInput& input,
                                const SyncRequest& sync) {
    const bool is_automatic = !request.caps || request.caps->empty();
    if (!is_automatic && !has_cap(sync)) {
        throw UsageError{fmt::format("--bucket-cap: expected a strategy with a bucket cap, got {}",
                                     name_of(sync.strategy))};
    }
    const std::vector<Bytes> others = is_automatic ? automatic_caps(input, sync) : *request.caps;
    check_caps(others, sync);
    std::set<std::optional<Bytes>> caps(others.begin(), others.end());
    caps.insert(std::nullopt);  // the default, which every other is compared with
    if (const std::optional<Bytes> named = cap_of(sync).named()) {
        caps.insert(*named);
    }
    return {caps.begin(), caps.end()};
}

constexpr Bytes least_message{1024};
constexpr Bytes largest_message{std::int64_t{1} << 30};

// Isolated messages of one kind.
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

std::vector<Bytes> requested_messages(const std::vector<Bytes>& typed, const MessageSizes& sizes) {
    std::set<Bytes> messages(typed.begin(), typed.end());
    for (const Bytes size : messages) {
        check_message(size, sizes.dtype, "--bytes");
        if (size != rounded_up(size, sizes)) {
            throw InputError("--bytes", "",
                             fmt::format("whole elements of {} for each of {} ranks",
                                         name_of(sizes.dtype), sizes.parts),
                             fmt::format("{} bytes", size.count));
        }
    }
    if (messages.empty()) {
        messages = automatic_messages(sizes);
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

// A collective disturbs computing by the multiprocessors that it takes.
std::vector<std::optional<std::int64_t>> contention_ctas(const MeasureRequest& request) {
    if (!request.backend.is_nccl()) {
        if (request.contention_ctas) {
            throw InputError("--contention-ctas", "", "--backend nccl", "--backend gloo");
        }
        return {std::nullopt};
    }
    const std::vector<std::int64_t> ctas =
        request.contention_ctas.value_or(std::vector<std::int64_t>{2, 8, 32});
    const std::set<std::optional<std::int64_t>> sorted(ctas.begin(), ctas.end());
    return {sorted.begin(), sorted.end()};
}

bool has_replicas(const Scenario& scenario) {
    return shard_group_of(scenario).ranks < scenario.group.ranks;
}

std::set<Protocol> requested_protocols(const MeasureRequest& request, const Scenario& scenario,
                                       const StepInput& input) {
    if (request.protocols) {
        return {request.protocols->begin(), request.protocols->end()};
    }
    if (!scenario.sharding) {
        std::set<Protocol> protocols{Protocol::all_reduce, Protocol::compute, Protocol::contention,
                                     Protocol::step};
        const FrameworkSync framework = settings_for(scenario.sync, input).framework;
        if (framework.updating_ranks > 1) {
            protocols.insert(Protocol::all_gather);
        }
        if (framework.reduction == CollectiveKind::reduce_scatter) {
            protocols.insert(Protocol::reduce_scatter);
        }
        return protocols;
    }
    std::set<Protocol> protocols{Protocol::all_gather, Protocol::reduce_scatter, Protocol::compute,
                                 Protocol::contention, Protocol::step};
    if (has_replicas(scenario)) {
        protocols.insert(Protocol::all_reduce);
    }
    return protocols;
}

void refuse_options_of_others(const MeasureRequest& request, const Scenario& scenario) {
    const auto refuse = [](bool is_typed, const char* option, const char* expected,
                           std::string_view strategy) {
        if (is_typed) {
            throw UsageError{fmt::format("--{}: expected {}, got {}", option, expected, strategy)};
        }
    };
    if (!scenario.sharding) {
        refuse(request.sharding.has_value(), "sharding", "a strategy that shards",
               name_of(scenario.sync.strategy));
        return;
    }
    const std::string_view strategy = name_of(scenario.sharding->strategy);
    refuse(request.caps.has_value(), "bucket-cap", "a strategy with buckets", strategy);
}

// The messages of a step, measured alone among all ranks.
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
                if (collective.shards()->group >= 0) {  // there are as many as there are groups
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

// Collectives that disturb computing: on a GPU all, on a CPU all-gathers, which need not block.
std::vector<CollectiveKind> disturbing(const Scenario& scenario, bool on_host) {
    if (!scenario.sharding) {
        return {CollectiveKind::all_reduce};
    }
    if (on_host) {
        return {CollectiveKind::all_gather};
    }
    std::vector<CollectiveKind> kinds{CollectiveKind::all_gather, CollectiveKind::reduce_scatter};
    if (has_replicas(scenario)) {
        kinds.push_back(CollectiveKind::all_reduce);
    }
    return kinds;
}

void add_contentions(const MeasureRequest& request, const Scenario& scenario,
                     const MessagesToMeasure& messages, std::vector<Item>& items) {
    const bool is_nccl = request.backend.is_nccl();
    for (const CollectiveKind kind : disturbing(scenario, !is_nccl)) {
        for (const Bytes size : contention_messages(messages.of(kind), is_nccl)) {
            for (const std::optional<std::int64_t>& ctas : contention_ctas(request)) {
                items.push_back({.protocol = Protocol::contention,
                                 .message = size,
                                 .ctas = ctas,
                                 .collective = kind});
            }
        }
    }
}

std::vector<Item> requested_items(const MeasureRequest& request, const Scenario& scenario,
                                  const StepInput& input) {
    refuse_options_of_others(request, scenario);
    const std::vector<ShardingRequest> settings =
        scenario.sharding
            ? settings_to_measure(request.sharding.value_or("auto"), scenario, input.workload)
            : std::vector<ShardingRequest>{};
    const MessagesToMeasure messages(scenario, input, settings);
    std::vector<Item> items;
    for (const Protocol protocol : requested_protocols(request, scenario, input)) {
        if (const auto kind = isolated_kind(protocol)) {
            for (const Bytes size : requested_messages(request.messages, messages.of(*kind))) {
                items.push_back({.protocol = protocol, .message = size});
            }
        } else if (protocol == Protocol::compute) {
            items.push_back({.protocol = Protocol::compute});
        } else if (protocol == Protocol::contention) {
            add_contentions(request, scenario, messages, items);
        } else if (scenario.sharding) {
            for (const ShardingRequest& setting : settings) {
                items.push_back({.protocol = Protocol::step, .sharding = setting});
            }
        } else {
            for (const Cap cap : requested_caps(request, input, scenario.sync)) {
                items.push_back({.protocol = Protocol::step, .cap = cap});
            }
        }
    }
    return items;
}

using TimeLimit = std::optional<std::chrono::duration<double>>;

// The command that measures into `output`: `arguments` with another -o and --time.
std::vector<std::string> measure_command(const std::vector<std::string>& arguments,
                                         const std::string& output, const TimeLimit& time_limit) {
    MeasureRequest unused;
    const po::options_description options = measuring_options(unused, "", "");
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

// A validation keeps some of its time for calibrating, predicting and drawing.
TimeLimit time_limit_of(const MeasureRequest& request, bool concludes) {
    constexpr double standard_s = 180;
    constexpr double concluding_s = 10;
    if (!request.time_s && (!concludes || request.rounds)) {
        return std::nullopt;
    }
    const double seconds = request.time_s.value_or(standard_s);
    return std::chrono::duration<double>(concludes ? std::max(seconds - concluding_s, seconds / 2)
                                                   : seconds);
}

}  // namespace

po::options_description measuring_options(MeasureRequest& request, const char* output_text,
                                          const char* time_text) {
    std::vector<OptionText> own = measuring_rows(request, output_text, time_text);
    std::ranges::move(backend_rows(request.backend), std::back_inserter(own));
    return options_of(own,
                      network_rows(request.network,
                                   "seconds that a rank may be silent, or a collective take, "
                                   "before the run fails; default: 60"),
                      scenario_rows(request.scenario));
}

MeasureOptions measure_options(const MeasureRequest& request, const CommandLine& line,
                               const std::optional<RankIdentity>& identity,
                               const std::optional<std::string>& measurements) {
    const std::string& file = request.file;
    MeasureOptions options;
    options.output = measurements.value_or(request.output);
    RankJob& job = options.job;
    job.backend = request.backend.backend;
    job.request = request.backend.request;
    job.backend->check(job.request);
    Json document = scenario_for_ranks(request.scenario, identity, file);
    inline_link(document, file, read_text_file);
    job.document = document.dump();

    options.time_limit = time_limit_of(request, measurements.has_value());
    job.command = {"bucketwise", "measure"};
    if (measurements) {
        job.command = measure_command(line.arguments, options.output, options.time_limit);
    } else {
        job.command.insert(job.command.end(), line.arguments.begin(), line.arguments.end());
    }
    options.scenario = parse_scenario(document, file, read_text_file, StrategyKinds::all);
    job.backend->check_scenario(options.scenario, file);
    if (measurements && options.scenario.sync.strategy == Strategy::horovod) {
        throw InputError(file, "/sync/strategy",
                         "one whose buckets do not hang on times that are only measured (measure "
                         "takes it)",
                         "horovod");
    }
    options.scenario_text = job.document;
    options.input = replay_input(options.scenario);
    job.ranks = static_cast<int>(options.scenario.group.ranks);
    constexpr std::int64_t standard_rounds = 10;
    job.order.rounds = request.rounds.value_or(options.time_limit ? most_rounds : standard_rounds);
    job.order.seed = request.seed;
    options.items = requested_items(request, options.scenario, options.input);
    options.resume = request.resume;
    constexpr std::chrono::minutes standard_deadline{1};
    job.network = job_network(request.network, identity, "measure", standard_deadline);
    if (!identity) {
        check_local_ranks(options.scenario, file);
    }
    return options;
}

}  // namespace bucketwise
