#include "sim/scenario/sync_input.h"

#include <charconv>
#include <iterator>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/scenario/gradient_input.h"

namespace bucketwise {
namespace {

constexpr std::array<LaunchRule, 3> all_launch_rules{LaunchRule::in_order, LaunchRule::as_filled,
                                                     LaunchRule::after_backward};

// Keys of some frameworks' strategies alone, and keys that a framework's rule replaces. Others that
// they do not look at have a caveat.
constexpr std::array framework_keys{"overlap_comm", "cycle_ms"};
constexpr std::array ddp_rule_keys{"bucket_cap_mib_list",
                                   "comm_hook",
                                   "framework",
                                   "sharded_optimizer",
                                   "closing",
                                   "order",
                                   "launch"};

std::vector<std::string_view> strategy_names() {
    std::vector<std::string_view> known(names_of<Strategy>.begin(), names_of<Strategy>.end());
    std::ranges::copy(names_of<ShardedStrategy>, std::back_inserter(known));
    return known;
}

// Sharding strategies have been looked for.
Strategy read_strategy(const JsonPlace& place) {
    for (const Strategy strategy : every<Strategy>) {
        if (place.value->is_string() && is_called(strategy, place.value->get<std::string>())) {
            return strategy;
        }
    }
    const std::vector<std::string_view> known = strategy_names();
    place.fail_name(fmt::format("one of {}", fmt::join(known, ", ")), known);
}

FrameworkVersion read_framework_version(const JsonPlace& place) {
    const auto version = version_from(read_text(place, 32));
    if (!version) {
        place.fail("a version such as \"0.14.3\"");
    }
    return *version;
}

JsonType<FrameworkVersion> framework_version() {
    return {
        {{{"type", "string"}, {"maxLength", 32}, {"pattern", "^[0-9]{1,6}(\\.[0-9]{1,6}){0,2}$"}},
         "text"},
        read_framework_version};
}

JsonType<Duration> cycle_ms() {
    constexpr NumberRange range{.lowest = 0.01, .highest = 1000};
    const JsonType<double> number = as::number(range);
    return {number,
            [number](const JsonPlace& place) { return duration_from_ms(number.read(place)); }};
}

// Before PyTorch 2.4 an explicit cap left the first bucket at 1 MiB.
JsonType<bool> explicit_cap_sets_first() {
    JsonDescription version = as::text();
    version.schema["pattern"] = "^0*[1-9][0-9]*\\.[0-9]";
    return {version, [](const JsonPlace& place) {
                return read_pytorch_version(place) >= PytorchVersion{2, 4};
            }};
}

// DDPOptimizer asserts a minimum of DistributedDataParallel's bucket_bytes_cap, the largest cap of
// a list.
void check_compiled(const JsonObject& object, const SyncRequest& sync) {
    const std::optional<PieceLimits> pieces = settings_for(sync).policy.pieces;
    if (pieces && pieces->is_refused()) {
        const char* const key =
            sync.bucket_cap_list.empty() ? "bucket_cap_mib" : "bucket_cap_mib_list";
        object.at(key).fail("1 MiB or more with torch.compile (compiled), which refuses less",
                            fmt::format("{:g}", to_mib(pieces->cap)));
    }
}

void refuse_keys(const JsonObject& sync, std::span<const char* const> keys,
                 std::string_view strategy) {
    for (const char* key : keys) {
        use_present(sync, key, [&](const JsonPlace& found) {
            found.fail("a strategy that has it", std::string(strategy));
        });
    }
}

void check_framework(const JsonObject& object, const SyncRequest& sync) {
    const auto own = framework_of(sync.strategy);
    if (own) {
        const bool horovod = own == Framework::horovod;
        refuse_keys(object, ddp_rule_keys, name_of(sync.strategy));
        refuse_keys(object, std::array{horovod ? "overlap_comm" : "cycle_ms"},
                    name_of(sync.strategy));
    } else {
        refuse_keys(object, framework_keys, name_of(sync.strategy));
    }
    const auto framework = own              ? own
                           : sync.framework ? framework_at(*sync.framework)
                                            : std::nullopt;
    if (framework && sync.framework_version &&
        *sync.framework_version < oldest_version(*framework)) {
        object.at("framework_version")
            .fail(fmt::format("{} {} or later", name_of(*framework),
                              version_text(oldest_version(*framework))));
    }
}

Json strategy_is(const std::vector<std::string_view>& names, Json then, Json otherwise = {}) {
    Json condition{{"if", {{"properties", {{"strategy", as::names_schema(names)}}}}},
                   {"then", {{"properties", std::move(then)}}}};
    add_if(!otherwise.is_null(), condition, "else", Json{{"properties", otherwise}});
    return condition;
}

// The names of frameworks' strategies, but one.
std::vector<std::string_view> frameworks_but(Framework left_out) {
    std::vector<std::string_view> names;
    for (const Strategy strategy : every<Strategy>) {
        if (const auto framework = framework_of(strategy); framework && framework != left_out) {
            names.push_back(name_of(strategy));
        }
    }
    return names;
}

std::vector<Json> strategy_conditions() {
    Json ddp_rule;
    for (const char* key : ddp_rule_keys) {
        ddp_rule[key] = false;
    }
    Json replicated_only = ddp_rule;
    for (const char* key : {"bucket_cap_mib", "first_bucket_mib", "views", "fused_copies",
                            "batched_grad_copy", "static_graph", "compiled", "framework_version",
                            "find_unused_parameters", "broadcast_buffers", "batch_norm"}) {
        replicated_only[key] = false;
    }
    const auto sharding = [](ShardedStrategy strategy) {
        return Json{{"sharding", sharding_type(strategy).schema}};
    };
    Json zero3 = sharding(ShardedStrategy::zero3);
    zero3["pytorch_version"] = false;
    return {
        strategy_is({"fsdp", "hsdp", "zero3"}, replicated_only, {{"sharding", false}}),
        strategy_is(frameworks_but(Framework::pytorch_ddp), ddp_rule),
        strategy_is(frameworks_but(Framework::horovod), Json::object(), {{"overlap_comm", false}}),
        strategy_is({"horovod"}, Json::object(), {{"cycle_ms", false}}),
        strategy_is({"zero3"}, zero3),
        strategy_is({"fsdp"}, sharding(ShardedStrategy::fsdp)),
        strategy_is({"hsdp"}, sharding(ShardedStrategy::hsdp))};
}

// The conditions say which of both goes with a strategy.
JsonDescription sharding_description() {
    const JsonDescription fsdp = sharding_type(ShardedStrategy::fsdp);
    const JsonDescription hsdp = sharding_type(ShardedStrategy::hsdp);  // has all keys of fsdp
    JsonDescription zero3 = sharding_type(ShardedStrategy::zero3);
    zero3.schema["minProperties"] = 1;  // an empty object is fsdp's
    return {{{"oneOf", {hsdp.schema, zero3.schema}}},
            "object",
            {fsdp.objects.front(), hsdp.objects.front(), zero3.objects.front()}};
}

std::vector<JsonKey<SyncRequest>> bucket_keys() {
    using Sync = SyncRequest;
    return {
        {"strategy",
         JsonDescription{as::names_schema(strategy_names()), as::names_text(strategy_names())},
         "required", "how gradients are synchronised: the table above"},
        {"bucket_cap_mib", target(&Sync::bucket_cap, as::cap_mib()), "PyTorch's 25",
         "the cap. `predict` evaluates every cap that changes the plan and reports this one too. A "
         "framework's strategy has its own default, and DeepSpeed and Megatron-LM count the "
         "elements that fit into the cap, in the model's narrowest dtype"},
        {"first_bucket_mib", target(&Sync::first_bucket, as::cap_mib()),
         "decided by strategy and `pytorch_version`",
         "cap of the first bucket of each dtype. With ddp 1 MiB, unless `bucket_cap_mib` is given "
         "and `pytorch_version` is 2.4 or later: then the cap. With other strategies the cap"},
        {"bucket_cap_mib_list",
         target(&Sync::bucket_cap_list, as::list(as::cap_mib(), most_gradients)), "none",
         "caps of the first, second, ... bucket, the last one repeating (PyTorch's "
         "`bucket_cap_mb_list`); not beside the two above"},
        {"closing", target(&Sync::closing, as::one_of<Closing>()), "the strategy's",
         "when a bucket closes"},
        {"order", target(&Sync::order, as::one_of<Order>()), "the strategy's",
         "in which order gradients join buckets"},
        {"launch", target(&Sync::launch, as::choice(all_launch_rules)), "the strategy's",
         "when a bucket's all-reduce is issued"},
        {"views", target(&Sync::views, as::boolean()), "false",
         "DDP's `gradient_as_bucket_view`: gradients live in the bucket, nothing is copied back"},
        {"fused_copies", target(&Sync::fused_copies, as::boolean()), "false",
         "one launch packs all gradients of a bucket when it goes out, with the hook's cast, and "
         "one unpacks them: two launches a bucket, not two a gradient (Horovod's batched copies; "
         "PyTorch's DDP copies gradient by gradient)"},
        {"batched_grad_copy", target(&Sync::batched_grad_copy, as::boolean()), "false",
         "ddp: PyTorch's (from 2.12): one launch copies all gradients of a full bucket, one "
         "divides it, one copies them back; not with `fused_copies`"},
        {"static_graph", target(&Sync::static_graph, as::boolean()), "false",
         "ddp: PyTorch's: buckets are regrouped by readiness even with `find_unused_parameters`, "
         "and no map of unused parameters is reduced"},
        {"compiled", target(&Sync::compiled, as::boolean()), "false",
         "ddp: the model is under `torch.compile`, whose DDPOptimizer cuts the graph into pieces "
         "at the cap; gradients become ready a piece at a time. Caps start at 1 MiB then"}};
}

std::vector<JsonKey<SyncRequest>> other_keys() {
    using Sync = SyncRequest;
    return {
        {"comm_hook", target(&Sync::comm_hook, as::one_of<CommHook>()), "`none`",
         "cast, divide, send half the bytes, cast back, on a GPU beside computing, once the "
         "bucket is reduced"},
        {"pytorch_version", target(&Sync::explicit_cap_sets_first, explicit_cap_sets_first()),
         "as 2.4, and as 2.15 with `fsdp` and `hsdp`",
         "such as \"1.13\": before 2.4 an explicit cap left the first bucket at 1 MiB; before "
         "2.15 FSDP2 reduced gradients in `parameter_dtype` where `reduce_dtype` is left out"},
        {"find_unused_parameters", target(&Sync::find_unused_parameters, as::boolean()), "false",
         "ddp: keeps the buckets of the first iteration's order, and all-reduces one int32 per "
         "parameter"},
        {"broadcast_buffers", target(&Sync::broadcast_buffers, as::boolean()), "true",
         "ddp: broadcasts BatchNorm's running statistics in forward"},
        {"batch_norm", target(&Sync::batch_norm, as::one_of<BatchNormSync>()), "`local`",
         "how BatchNorm gets its statistics: from its own rank (`local`), or from all ranks, as "
         "PyTorch's SyncBatchNorm (`gather`) or by one fused all-reduce each way (`fused`)"},
        {"sharded_optimizer", target(&Sync::sharded_optimizer, as::one_of<ShardedOptimizer>()),
         "none",
         "ZeRO stage 1: each rank updates its part of the parameters, which all then get in one "
         "all-gather or by a broadcast of each part"},
        {"framework", target(&Sync::framework, as::one_of<SettingPlace>()), "none",
         "where the step comes from, and so where a bucket size is typed "
         "([frameworks](../docs/frameworks.md)). Beside PyTorch's, its settings are printed; "
         "nothing else changes"},
        {"framework_version", target(&Sync::framework_version, framework_version()), "the newest",
         "of the framework, or of the strategy's, such as \"0.14.3\""},
        {"overlap_comm",
         target_in<Sync>([](Sync& sync) -> bool& { return sync.options.overlaps; }, as::boolean()),
         "true",
         "DeepSpeed's `overlap_comm`, Megatron-LM's `--overlap-grad-reduce` and "
         "`--overlap-param-gather`"},
        {"cycle_ms",
         target_in<Sync>([](Sync& sync) -> Duration& { return sync.options.cycle; }, cycle_ms()),
         "1", "horovod: `HOROVOD_CYCLE_TIME`, up to 1,000"},
        {"sharding", sharding_description(), "none", "settings of a strategy that shards"}};
}

}  // namespace

const JsonTable<SyncRequest>& sync_table() {
    static const JsonTable<SyncRequest> table{"sync",
                                              "How gradients become buckets and when they go out",
                                              joined(bucket_keys(), other_keys()),
                                              {exclusive("bucket_cap_mib", "bucket_cap_mib_list"),
                                               exclusive("first_bucket_mib", "bucket_cap_mib_list"),
                                               exclusive("fused_copies", "batched_grad_copy")},
                                              strategy_conditions()};
    return table;
}

SyncRequest read_sync(const JsonPlace& place) {
    const JsonObject object = sync_table().open(place);
    SyncRequest sync;
    sync.strategy = read_strategy(object.at("strategy"));
    if (const auto sharding = object.find("sharding")) {
        sharding->fail("a strategy that shards beside it", std::string(name_of(sync.strategy)));
    }
    sync_table().read(object, sync);
    check_framework(object, sync);
    check_compiled(object, sync);
    return sync;
}

PytorchVersion read_pytorch_version(const JsonPlace& place) {
    if (!place.value->is_string()) {
        place.fail("a PyTorch version as a string, such as \"2.4\"");
    }
    const std::string text = read_string(place);
    PytorchVersion version;
    const char* const end = text.data() + text.size();
    const auto [dot, error] = std::from_chars(text.data(), end, version.major);
    const bool has_minor = error == std::errc{} && dot != end && *dot == '.';
    const auto [rest, minor_error] = std::from_chars(has_minor ? dot + 1 : end, end, version.minor);
    if (minor_error != std::errc{} || (rest != end && *rest != '.' && *rest != '+') ||
        version.major == 0) {
        place.fail("a PyTorch version such as \"1.13\" or \"2.4\"");
    }
    return version;
}

}  // namespace bucketwise
