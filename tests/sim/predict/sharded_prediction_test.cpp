#include "sim/predict/sharded_prediction.h"

#include <algorithm>
#include <string>

#include "sim/base/json_input.h"
#include "sim/optimum/optimal_groups.h"
#include "sim/predict/strategy_comparison.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

// Four layers of 2 MB, a millisecond each in forward and two in backward.
Scenario four_layers(const std::string& changes = "{}") {
    Json document = Json::parse(R"({
      "name": "four layers",
      "workload": { "forward_operations": [], "backward_operations": [], "gradients": [] },
      "cluster": { "ranks": 2, "link": { "name": "l", "algorithm": "ring",
                   "segments": [ {"latency_us": 0.0, "bandwidth_gb_per_s": 1.0} ] } },
      "sync": { "strategy": "fsdp" }, "step": { "optimizer_ms": 1.0 } })");
    Json& workload = document["workload"];
    for (int i = 0; i < 4; ++i) {
        const std::string name = "layers." + std::to_string(i);
        workload["gradients"].push_back({{"name", name + ".weight"},
                                         {"numel", 500'000},
                                         {"dtype", "float32"},
                                         {"shape", {1000, 500}}});
        workload["forward_operations"].push_back(
            {{"name", name + " forward"}, {"host_us", 0}, {"device_us", 1000}});
        const Json backward{{"name", name + " backward"},
                            {"host_us", 0},
                            {"device_us", 2000},
                            {"ready", Json::array({name + ".weight"})}};
        workload["backward_operations"].insert(workload["backward_operations"].begin(), backward);
    }
    document.merge_patch(Json::parse(changes));
    return parse_scenario(
        document, "s.json", [](const std::string&) { return std::string(); }, StrategyKinds::all);
}

ShardedPrediction predicted(const Scenario& scenario) {
    return predict_sharded(scenario, sharded_input(scenario), [](double) {});
}

TEST_CASE("the frontier holds what nothing beats in both step and memory", "[sharding]") {
    const ShardedPrediction prediction = predicted(four_layers(
        R"({"cluster": {"link": {"segments": [{"latency_us": 9.0, "bandwidth_gb_per_s": 0.25}]}}})"));
    REQUIRE(prediction.frontier.size() >= 2);
    for (std::size_t i = 1; i < prediction.frontier.size(); ++i) {
        const ShardedEvaluation& less = prediction.sweep[prediction.frontier[i - 1]];
        const ShardedEvaluation& more = prediction.sweep[prediction.frontier[i]];
        CHECK(less.peak() < more.peak());
        CHECK(more.step() < less.step());
    }
    for (const ShardedEvaluation& row : prediction.sweep) {
        CHECK(std::ranges::any_of(prediction.frontier, [&](std::size_t place) {
            const ShardedEvaluation& other = prediction.sweep[place];
            return other.peak() <= row.peak() &&
                   static_cast<double>(other.step().count()) <=
                       1.001 * static_cast<double>(row.step().count());
        }));
    }
}

TEST_CASE("a sharded row tells what a hand finds", "[sharding]") {
    const ShardedPrediction prediction = predicted(four_layers());
    const ShardedEvaluation& own = prediction.configured;
    CHECK(own.groups == 4);
    CHECK(own.largest_gather == Bytes{2'000'000});
    // Each layer has two all-gathers and a reduce-scatter, 1 ms each; the last layer's are freed
    // after forward and gathered again.
    CHECK(own.communication == duration_from_ms(12));
    // 1 ms until the first layer is there, 1 ms at the end: all else is hidden, as backward's two
    // collectives fill its 2 ms of each layer. The last layer's second all-gather follows its first
    // beside forward.
    CHECK(own.step() == duration_from_ms(1 + 4 + 8 + 1 + 1));
    CHECK(own.exposed == duration_from_ms(2));
    CHECK(own.times.optimizer == duration_from_ms(1));
    // Shards 4 MB; when the second-last layer is entered in backward: two layers unsharded or
    // gathered, the one before gathered ahead, ... never more than all of it.
    CHECK(own.sharded.of(ShardedTensor::parameters) == Bytes{4'000'000});
    CHECK(own.sharded.peak <= Bytes{4'000'000 + 4 * 2'000'000 + 4'000'000});
}

TEST_CASE("what does not fit is not advised", "[sharding]") {
    const auto with_memory = [](const std::string& gib) {
        return predicted(four_layers(
            R"({"workload": {"device": {"preset": "A100", "memory_gib": )" + gib + "}}}"));
    };
    const ShardedPrediction roomy = with_memory("1");
    CHECK(roomy.best_fits);
    // 0.0144 GiB are 15.5 MB: some fit.
    const ShardedPrediction tight = with_memory("0.0144");
    CHECK(tight.best_fits);
    CHECK(tight.advised().memory.fits());
    CHECK(tight.advised().peak() <= Bytes{15'461'882});
    const ShardedPrediction hopeless = with_memory("0.001");
    CHECK_FALSE(hopeless.best_fits);
    for (const ShardedEvaluation& row : hopeless.sweep) {
        CHECK(hopeless.advised().peak() <= row.peak());
    }
}

TEST_CASE("groups of any sizes are at least as good as the even ones", "[sharding]") {
    const Scenario scenario = four_layers(
        R"({"cluster": {"link": {"segments": [{"latency_us": 300.0, "bandwidth_gb_per_s": 1.0}]}}})");
    const ShardedInput input = sharded_input(scenario);
    const ShardedPrediction prediction = predicted(scenario);
    const std::optional<OptimalGroups> found =
        optimal_groups(scenario, input, prediction, [](double) {});
    REQUIRE(found);
    CHECK(found->evaluation.step() <= prediction.advised().step());
    // All eight ways to cut four layers, by hand: with the advised knobs none is shorter.
    for (unsigned cuts = 0; cuts < 8; ++cuts) {
        ShardedInput other = input;
        other.request = prediction.advised().request;
        other.request.groups = {{"layers.0"}};
        for (unsigned i = 0; i < 3; ++i) {
            if ((cuts >> i & 1U) != 0) {
                other.request.groups.emplace_back();
            }
            other.request.groups.back().push_back("layers." + std::to_string(i + 1));
        }
        CHECK(found->evaluation.step() <= evaluate_sharded(scenario, other).step());
    }
}

TEST_CASE("strategies are compared with an optimizer that updates as much as each does",
          "[sharding]") {
    const std::vector<StrategyRow> rows = compare_strategies(
        four_layers(), {ComparedStrategy::ddp, ComparedStrategy::fsdp, ComparedStrategy::zero3});
    REQUIRE(rows.size() == 3);
    // One millisecond for half of it is two for all. At best, of the 8 ms of all-reduces, 2 for
    // each layer, the last one alone is exposed.
    CHECK(rows[0].step >= duration_from_ms(4 + 8 + 2 + 2));
    CHECK(rows[0].step <= duration_from_ms(4 + 8 + 8 + 2));
    CHECK(rows[1].step == predicted(four_layers()).advised().step());
    CHECK(rows[0].memory > rows[1].memory);
    CHECK(rows[2].sharding->strategy == ShardedStrategy::zero3);
}

}  // namespace
}  // namespace bucketwise
