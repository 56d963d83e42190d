#include "sim/scenario/sharding_input.h"

#include <array>
#include <string>

#include "sim/base/json_input.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

// Two blocks of one parameter each, and an embedding before them.
constexpr const char* three_parameters = R"({
  "name": "three",
  "workload": { "forward_ms": 3.0, "backward_ms": 6.0, "gradients": [
     {"name": "embedding.weight", "numel": 40, "dtype": "float32", "ready_ms": 6.0, "shape": [10, 4]},
     {"name": "layers.0.weight", "numel": 9, "dtype": "float32", "ready_ms": 5.0, "shape": [3, 3]},
     {"name": "layers.1.weight", "numel": 9, "dtype": "float32", "ready_ms": 3.0} ] },
  "cluster": { "ranks": 4, "ranks_per_node": 2, "link": { "name": "slow", "algorithm": "ring",
               "segments": [ {"latency_us": 50.0, "bandwidth_gb_per_s": 1.0} ] } },
  "sync": { "strategy": "fsdp" } })";

Scenario parse_sharded(const Json& document, StrategyKinds kinds = StrategyKinds::all) {
    return parse_scenario(
        document, "s.json", [](const std::string&) { return std::string(); }, kinds);
}

Json with_sync(const Json& sync) {
    Json document = Json::parse(three_parameters);
    document["sync"] = sync;
    return document;
}

std::string refusal_of(const Json& document, StrategyKinds kinds = StrategyKinds::all) {
    try {
        parse_sharded(document, kinds);
    } catch (const InputError& error) {
        return error.what();
    }
    return "accepted";
}

TEST_CASE("a strategy that shards has PyTorch's defaults", "[sharding]") {
    const Scenario scenario = parse_sharded(Json::parse(three_parameters));
    REQUIRE(scenario.sharding);
    CHECK(*scenario.sharding == ShardingRequest{});
    CHECK(scenario.sync == SyncRequest{});
}

TEST_CASE("what sharding asks for is read", "[sharding]") {
    const Scenario scenario =
        parse_sharded(with_sync({{"strategy", "hsdp"},
                                 {"pytorch_version", "2.8"},
                                 {"sharding",
                                  {{"groups", Json::parse(R"([["layers.0", "layers.1"]])")},
                                   {"reshard_after_forward", false},
                                   {"reshard_root", true},
                                   {"forward_prefetch", 2},
                                   {"backward_prefetch", 3},
                                   {"asynchronous_unshard", true},
                                   {"parameter_dtype", "bfloat16"},
                                   {"reduce_dtype", "float16"},
                                   {"reduce_scatter_buffers", 4},
                                   {"gradient_sync", "last_micro_step"},
                                   {"reshard_after_backward", false},
                                   {"shard_ranks", 2},
                                   {"all_reduce", "last_micro_step"}}}}));
    const ShardingRequest expected{.strategy = ShardedStrategy::hsdp,
                                   .groups = {{"layers.0", "layers.1"}},
                                   .reshard_after_forward = false,
                                   .reshard_root = true,
                                   .forward_prefetch = 2,
                                   .backward_prefetch = 3,
                                   .asynchronous_unshard = true,
                                   .parameter_dtype = DType::bfloat16,
                                   .reduce_dtype = DType::float16,
                                   .reduces_in_own_dtype = false,
                                   .reduce_scatter_buffers = 4,
                                   .gradient_sync = MicroSteps::last,
                                   .reshard_after_backward = false,
                                   .all_reduce = MicroSteps::last,
                                   .shard_ranks = 2};
    CHECK(*scenario.sharding == expected);
    CHECK(shard_group_of(scenario).ranks == 2);
}

TEST_CASE("hsdp shards within a node unless it is told otherwise", "[sharding]") {
    CHECK(shard_group_of(parse_sharded(with_sync({{"strategy", "hsdp"}}))).ranks == 2);
}

TEST_CASE("wrong requests to shard are refused with their place", "[sharding]") {
    struct Wrong {
        Json sync;
        std::string message;
    };
    const std::array wrong{
        Wrong{{{"strategy", "fsdpp"}}, "s.json: /sync/strategy: expected one of none, naive"},
        Wrong{{{"strategy", "ddp"}, {"sharding", Json::object()}},
              "/sync/sharding: expected a strategy that shards beside it, got ddp"},
        Wrong{{{"strategy", "fsdp"}, {"bucket_cap_mib", 25}},
              "/sync/bucket_cap_mib: expected a strategy that has it, got fsdp"},
        Wrong{{{"strategy", "zero3"}, {"pytorch_version", "2.8"}},
              "/sync/pytorch_version: expected a strategy that has it, got zero3"},
        Wrong{{{"strategy", "fsdp"}, {"sharding", {{"shard_ranks", 2}}}},
              "/sync/sharding/shard_ranks: expected the strategy hsdp beside it, got fsdp"},
        Wrong{{{"strategy", "hsdp"}, {"sharding", {{"shard_ranks", 3}}}},
              "/sync/sharding/shard_ranks: expected a number that divides ranks (4), got 3"},
        Wrong{{{"strategy", "fsdp"}, {"sharding", {{"reshard_ranks", 3}}}},
              "/sync/sharding/reshard_ranks: expected a number that divides the 4 ranks"},
        Wrong{{{"strategy", "fsdp"},
               {"sharding", Json::parse(R"({"groups": [["layers.0"]], "layers_per_group": 2})")}},
              "/sync/sharding"},
        Wrong{{{"strategy", "fsdp"}, {"sharding", Json::parse(R"({"groups": [["layers.7"]]})")}},
              "/sync/sharding: expected modules with parameters of their own in each group, got "
              "layers.7"},
        Wrong{{{"strategy", "fsdp"},
               {"sharding", Json::parse(R"({"groups": [["layers.0"], ["layers.0"]]})")}},
              "/sync/sharding: expected each module in one group, got layers.0 in two"},
        Wrong{{{"strategy", "fsdp"}, {"sharding", {{"backward_prefetch", 0}}}},
              "/sync/sharding/backward_prefetch"},
        Wrong{{{"strategy", "zero3"}, {"sharding", {{"layers_per_group", 1}}}},
              "/sync/sharding/layers_per_group: expected one of the keys prefetch_bucket_size"}};
    for (const Wrong& one : wrong) {
        INFO(one.sync.dump());
        CHECK_THAT(refusal_of(with_sync(one.sync)), Catch::Contains(one.message));
    }
}

TEST_CASE("what a sharded step cannot have is refused where it stands", "[sharding]") {
    Json document = Json::parse(three_parameters);
    document["workload"]["gradients"][1]["shape"] = {3, 4};
    CHECK_THAT(refusal_of(document),
               Catch::Contains("/workload/gradients/1/shape: expected extents whose product is "
                               "numel (9)"));
    document = Json::parse(three_parameters);
    document["workload"]["gradients"][1]["sparse"] = true;
    CHECK_THAT(refusal_of(document),
               Catch::Contains("/workload/gradients/1/sparse: expected dense"));
    document = Json::parse(three_parameters);
    document["step"] = {{"cuda_graph", true}};
    CHECK_THAT(refusal_of(document), Catch::Contains("/step/cuda_graph: expected no CUDA graph"));
    document = Json::parse(three_parameters);
    document["workload"]["gradients"][1]["dtype"] = "bfloat16";
    document["sync"]["sharding"] = {{"layers_per_group", 2}};
    CHECK_THAT(refusal_of(document),
               Catch::Contains("expected parameters of one dtype in each group"));
}

TEST_CASE("sizes that cannot be added up are refused", "[sharding]") {
    Json document = Json::parse(three_parameters);
    document["cluster"] = {{"ranks", 1'000'000}, {"link", document["cluster"]["link"]}};
    document["workload"]["gradients"][2]["numel"] = std::int64_t{1} << 40;
    document["workload"]["gradients"][2]["shape"] = {1, std::int64_t{1} << 40};
    CHECK_THAT(refusal_of(document),
               Catch::Contains("expected parameters that can be padded to the ranks"));
}

TEST_CASE("who takes no strategy that shards says so", "[sharding]") {
    CHECK_THAT(refusal_of(Json::parse(three_parameters), StrategyKinds::replicated),
               Catch::Contains("s.json: /sync/strategy: expected a strategy that keeps all "
                               "parameters on every rank, here, got \"fsdp\""));
}

TEST_CASE("a forward of one time is taken apart as backward is, to the picosecond", "[sharding]") {
    const ShardedInput input = sharded_input(parse_sharded(Json::parse(three_parameters)));
    const std::vector<TimedOperation>& forward = input.step.workload.forward;
    // Backward takes 3 ms for layers.1, 2 for layers.0 and 1 for the embedding; forward half of
    // each.
    REQUIRE(forward.size() == 3);
    CHECK(input.step.workload.backward[0].name == "layers.1.weight backward");
    CHECK(forward[0].name == "embedding.weight forward");
    CHECK(forward[0].device == duration_from_ms(0.5));
    CHECK(forward[1].device == duration_from_ms(1));
    CHECK(forward[2].device == duration_from_ms(1.5));
    // Rows padded to a multiple of the ranks, 4 bytes each: 10 to 12 rows of 4, 3 to 4 of 3;
    // without a shape 9 to 12.
    const ShardPlan plan = make_shard_plan(input);
    REQUIRE(plan.groups.size() == 3);
    CHECK(plan.groups[0].gathered() == Bytes{192});
    CHECK(plan.groups[1].gathered() == Bytes{48});
    CHECK(plan.groups[2].gathered() == Bytes{48});
}

}  // namespace
}  // namespace bucketwise
