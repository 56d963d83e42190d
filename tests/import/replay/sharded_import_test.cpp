#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "import/kineto/kineto_trace.h"
#include "import/replay/replay.h"
#include "import/replay/trace_advice.h"
#include "import/replay/trace_import.h"
#include "import/replay/trace_link.h"
#include "sim/base/error.h"
#include "sim/predict/prediction.h"
#include "sim/report/sharding_text.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"
#include "tests/import/replay/imported_trace.h"
#include "tests/import/replay/written_sharded_trace.h"
#include "tests/import/source/text_source.h"

namespace bucketwise {
namespace {

constexpr double exactly = 1e-3;
constexpr double nearly = 5e-3;

// Four blocks of three kernels a pass, and a head; ring over eight ranks.
Json four_blocks(const Json& sharding) {
    Json gradients = Json::array();
    Json forward = Json::array();
    Json backward = Json::array();
    const auto operation = [](const std::string& name, double device_us) {
        return Json{{"name", name}, {"host_us", 8}, {"device_us", device_us}};
    };
    gradients.push_back({{"name", "head.weight"},
                         {"numel", 4'000'000},
                         {"dtype", "float32"},
                         {"shape", {4000, 1000}}});
    for (int layer = 0; layer < 4; ++layer) {
        const std::string block = "layers." + std::to_string(layer);
        for (int k = 0; k < 3; ++k) {
            const std::string weight = block + ".weight" + std::to_string(k);
            gradients.push_back({{"name", weight},
                                 {"numel", 2'000'000 + 1000 * k},
                                 {"dtype", "float32"},
                                 {"shape", {2000 + k, 1000}}});
            forward.push_back(operation(block + " forward", 150 + 10 * k));
        }
    }
    forward.push_back(operation("head forward", 100));
    backward.push_back(operation("head backward", 200));
    backward.back()["ready"] = {"head.weight"};
    for (int layer = 3; layer >= 0; --layer) {
        const std::string block = "layers." + std::to_string(layer);
        for (int k = 2; k >= 0; --k) {
            backward.push_back(operation(block + " backward", 300 + 20 * k));
            backward.back()["ready"] = {block + ".weight" + std::to_string(k)};
        }
    }
    return {
        {"name", "four blocks"},
        {"workload",
         {{"gradients", gradients},
          {"forward_operations", forward},
          {"backward_operations", backward},
          {"collective_issue_us", 20},
          {"copy_gb_per_s", 1000},
          {"copy_launch_us", 6}}},
        {"cluster",
         {{"ranks", 8},
          {"link",
           {{"name", "wire"},
            {"algorithm", "ring"},
            {"interference", "none"},
            {"segments", {{{"latency_us", 4}, {"bandwidth_gb_per_s", 200}}}}}}}},
        {"sync",
         {{"strategy", sharding.contains("shard_ranks") ? "hsdp" : "fsdp"},
          {"sharding", sharding}}},
        {"step", {{"optimizer_ms", 0.5}, {"optimizer_launch_ms", 0.1}, {"sync_each_step", true}}}};
}

ShardedInput input_of(const Json& document) {
    return sharded_input(parse_scenario(document, "test", no_file, StrategyKinds::all));
}

struct RoundTrip {
    TraceImport imported;
    Scenario scenario;
    Replay replayed;
};

RoundTrip import_document(const Json& document, TraceImportRequest request = {}) {
    const TracedRank rank =
        traced_rank(read_kineto_trace(text_source(document.dump()), "trace.json"));
    RoundTrip trip{import_trace({rank}, std::move(request)), {}, {}};
    trip.scenario = connect(trip.imported, {}, no_file);
    trip.replayed = replay(trip.imported, trip.scenario);
    return trip;
}

ShardingRequest request_of(const TraceImport& imported) {
    return imported.sharding->request;
}

// The prediction of an imported scenario for the setting.
Duration step_at(const Scenario& scenario, const ShardingRequest& request) {
    ShardedInput input = sharded_input(scenario);
    input.request = request;
    return evaluate_sharded(scenario, input).step();
}

TEST_CASE("a simulated step of fully_shard that is written as a trace is imported as it was",
          "[kineto]") {
    const std::vector<Json> settings{
        {{"layers_per_group", 1}},
        {{"layers_per_group", 1}, {"reshard_after_forward", false}},
        {{"layers_per_group", 1}, {"reshard_root", true}},
        {{"layers_per_group", 1}, {"forward_prefetch", 2}, {"backward_prefetch", 2}},
        {{"layers_per_group", 1}, {"asynchronous_unshard", true}, {"forward_prefetch", 1}},
        {{"layers_per_group", 1}, {"parameter_dtype", "bfloat16"}, {"reduce_dtype", "float32"}},
        {{"layers_per_group", 1}, {"reduce_dtype", "bfloat16"}},
        {{"layers_per_group", 1}, {"reduce_scatter_buffers", 2}},
        {{"layers_per_group", 1}, {"reshard_ranks", 4}},
        {{"layers_per_group", 1}, {"shard_ranks", 4}},
        {{"layers_per_group", 1}, {"shard_ranks", 2}, {"reduce_dtype", "bfloat16"}},
        {{"layers_per_group", 0}}};
    for (const Json& sharding : settings) {
        DYNAMIC_SECTION(sharding.dump()) {
            const Json document = four_blocks(sharding);
            const ShardedInput input = input_of(document);
            WrittenShardedTrace written(input);
            const RoundTrip trip = import_document(written.document());
            INFO(trip.imported.scenario["sync"] << text_of(trip.replayed));
            CHECK(request_of(trip.imported) == input.request);
            CHECK(trip.replayed.same_buckets);
            // Times are written to the nanosecond; the link is fitted to two sizes.
            CHECK(to_us(trip.replayed.traced.step) ==
                  Approx(to_us(written.step())).epsilon(exactly));
            CHECK(to_us(trip.replayed.step) == Approx(to_us(written.step())).epsilon(exactly));
            CHECK(to_us(trip.replayed.largest_difference()) < 5);
            if (input.request.layers_per_group == 0) {
                continue;  // what is not traced apart cannot be grouped
            }
            // Settings that were not traced are predicted as the simulator predicts them.
            ShardingRequest joined = input.request;
            joined.layers_per_group = 2;
            const Scenario original = parse_scenario(document, "test", no_file, StrategyKinds::all);
            CHECK(to_us(step_at(trip.scenario, joined)) ==
                  Approx(to_us(step_at(original, joined))).epsilon(nearly));
        }
    }
}

TEST_CASE("what is gathered first is no work of the step before", "[kineto]") {
    // One step: no other tells when it begins; the host may be far ahead.
    Json document = four_blocks({{"layers_per_group", 1}});
    document["step"]["sync_each_step"] = GENERATE(true, false);
    const ShardedInput input = input_of(document);
    WrittenShardedTrace written(input, {.steps = 1});
    const RoundTrip trip = import_document(written.document());
    CHECK(to_us(trip.replayed.traced.step) == Approx(to_us(written.step())).epsilon(exactly));
    CHECK(to_us(trip.replayed.step) == Approx(to_us(written.step())).epsilon(exactly));
}

TEST_CASE("so is one that accumulates gradients", "[kineto]") {
    const std::vector<Json> settings{
        {{"layers_per_group", 1}},
        {{"layers_per_group", 1}, {"gradient_sync", "last_micro_step"}},
        {{"layers_per_group", 1},
         {"gradient_sync", "last_micro_step"},
         {"reshard_after_backward", false}},
        {{"layers_per_group", 1}, {"shard_ranks", 4}, {"all_reduce", "last_micro_step"}}};
    for (const Json& sharding : settings) {
        DYNAMIC_SECTION(sharding.dump()) {
            Json document = four_blocks(sharding);
            document["step"]["accumulation"] = 3;
            const ShardedInput input = input_of(document);
            WrittenShardedTrace written(input);
            const RoundTrip trip = import_document(written.document());
            INFO(trip.imported.scenario["sync"] << text_of(trip.replayed));
            CHECK(trip.imported.scenario["step"]["accumulation"] == 3);
            CHECK(request_of(trip.imported) == input.request);
            CHECK(trip.replayed.same_buckets);
            // Micro-steps after the first add to the gradients; the last stands for all.
            CHECK(to_us(trip.replayed.step) == Approx(to_us(written.step())).epsilon(nearly));
        }
    }
}

// Why a step written so is not imported.
std::string sharded_refusal(const ShardedInput& input, const ShardedTraceShape& shape) {
    try {
        import_document(WrittenShardedTrace(input, shape).document());
    } catch (const InputError& error) {
        return error.what();
    }
    return {};
}

TEST_CASE("what calls say of themselves tells sizes where no shapes were recorded", "[kineto]") {
    const ShardedInput input = input_of(four_blocks({{"layers_per_group", 1}}));
    WrittenShardedTrace written(input, {.shapes = false});
    const RoundTrip trip = import_document(written.document());
    CHECK(trip.replayed.same_buckets);
    CHECK(to_us(trip.replayed.step) == Approx(to_us(written.step())).epsilon(exactly));
    CHECK_THAT(findings_of(trip.imported), Catch::Contains("share what it gathers equally"));
    // A block is gathered in whole rows on each of eight ranks: 250, 251 and 251 rows of 1,000
    // elements for 2,000, 2,001 and 2,002 rows, times eight 6,016,000. A third of each rank's
    // 752,000 is 250,667; the last has one less.
    const Json& gradients = trip.imported.scenario["workload"]["gradients"];
    REQUIRE(gradients.size() == 13);
    CHECK(gradients[0]["numel"] == 4'000'000);
    CHECK(gradients[1]["numel"] == 8 * 250'666);
    CHECK(gradients[3]["numel"] == 8 * 250'667);
    CHECK(gradients[3]["name"] == "layers.0.parameter_2");
}

TEST_CASE("a model tells names and sizes of what is sharded", "[kineto]") {
    const ShardedInput input = input_of(four_blocks({{"layers_per_group", 1}}));
    const Workload& model = input.step.workload;
    const RoundTrip trip =
        import_document(WrittenShardedTrace(input, {.shapes = false}).document(), {.model = model});
    const Workload imported = sharded_input(trip.scenario).step.workload;
    CHECK(std::ranges::equal(imported.gradients, model.gradients, {}, &Gradient::name,
                             &Gradient::name));
    CHECK(std::ranges::equal(imported.gradients, model.gradients, {}, &Gradient::numel,
                             &Gradient::numel));
    // One that has no fourth block.
    Workload other = model;
    std::erase_if(other.gradients,
                  [](const Gradient& one) { return one.name.starts_with("layers.3"); });
    CHECK_THROWS_WITH(
        import_document(WrittenShardedTrace(input).document(), {.model = other}),
        "--model: expected a model with 3 parameters in layers.3, as the trace has, got 0");
}

TEST_CASE("a sharded step that is no FSDP2's, or does not tell what it gathers, is refused",
          "[kineto]") {
    const ShardedInput input = input_of(four_blocks({{"layers_per_group", 1}}));
    CHECK(sharded_refusal(input, {.hooks = false}) ==
          "trace.json: /traceEvents: expected all-reduces of whole gradients "
          "(DistributedDataParallel), or PyTorch's fully_shard (FSDP2), got FSDP, ZeRO or a "
          "distributed optimizer: 5 reduce-scatters a step of 112256000 bytes in all over 8 "
          "ranks; of sharded runs only FSDP2's are read, by its annotations (FSDP::...)");
    CHECK(sharded_refusal(input, {.shapes = false, .collective_args = false}) ==
          "trace.json: /traceEvents: expected sizes of FSDP2's collectives, which "
          "profile(record_shapes=True, activities=[ProfilerActivity.CPU, "
          "ProfilerActivity.CUDA]) records, got 14 whose sizes nothing tells");
    // All-reduces alone, of five groups.
    const ShardedInput hybrid =
        input_of(four_blocks({{"layers_per_group", 1}, {"shard_ranks", 4}}));
    Json document = WrittenShardedTrace(hybrid, {.shapes = false}).document();
    for (Json& event : document["traceEvents"]) {
        if (event["args"].value("Collective name", "") == "allreduce") {
            event["args"] = Json::object();
        }
    }
    CHECK_THROWS_WITH(import_document(document),
                      Catch::Contains("got 5 whose sizes nothing tells"));
}

TEST_CASE("an imported sharded step is advised as any scenario that shards, or not at all",
          "[advice]") {
    const ShardedInput input = input_of(four_blocks({{"layers_per_group", 1}}));
    RoundTrip trip = import_document(WrittenShardedTrace(input).document());
    const Prediction prediction =
        predict_sharded(trip.scenario, sharded_input(trip.scenario), [](double) {});
    const TraceAdvice advice = advise(trip.imported, trip.scenario, trip.replayed);
    CHECK(advice.binds.starts_with("computing: of "));
    const auto setting = std::ranges::find(
        advice.savings, setting_text(prediction.advised().sharded->request), &Saving::change);
    REQUIRE(setting != advice.savings.end());
    CHECK(setting->saves == trip.replayed.step - prediction.advised().step());
    // 10 % is the most that a replay may be off.
    trip.replayed.traced.step = trip.replayed.step * 100 / 111;
    const TraceAdvice withheld = advise(trip.imported, trip.scenario, trip.replayed);
    CHECK(withheld.savings.empty());
    CHECK_THAT(withheld.withheld, Catch::Contains("the trace replays 11.0 % off"));
}

}  // namespace
}  // namespace bucketwise
