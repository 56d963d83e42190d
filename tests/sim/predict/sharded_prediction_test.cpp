#include "sim/predict/prediction.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "sim/base/json_input.h"
#include "sim/optimum/optimal_groups.h"
#include "sim/predict/confidence.h"
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

Prediction predicted(const Scenario& scenario) {
    return predict_sharded(scenario, sharded_input(scenario), [](double) {});
}

TEST_CASE("the frontier holds what nothing beats in both step and memory", "[sharding]") {
    const Prediction prediction = predicted(four_layers(
        R"({"cluster": {"link": {"segments": [{"latency_us": 9.0, "bandwidth_gb_per_s": 0.25}]}}})"));
    REQUIRE(prediction.frontier.size() >= 2);
    for (std::size_t i = 1; i < prediction.frontier.size(); ++i) {
        const Evaluation& less = prediction.sweep[prediction.frontier[i - 1]];
        const Evaluation& more = prediction.sweep[prediction.frontier[i]];
        CHECK(less.peak() < more.peak());
        CHECK(more.step() < less.step());
    }
    for (const Evaluation& row : prediction.sweep) {
        CHECK(std::ranges::any_of(prediction.frontier, [&](std::size_t place) {
            const Evaluation& other = prediction.sweep[place];
            return other.peak() <= row.peak() &&
                   static_cast<double>(other.step().count()) <=
                       1.001 * static_cast<double>(row.step().count());
        }));
    }
}

TEST_CASE("a sharded row tells what a hand finds", "[sharding]") {
    const Prediction prediction = predicted(four_layers());
    const Evaluation& own = *prediction.configured;
    CHECK(own.sharded->groups == 4);
    CHECK(own.sharded->largest_gather == Bytes{2'000'000});
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
    CHECK(own.sharded->memory.of(ShardedTensor::parameters) == Bytes{4'000'000});
    CHECK(own.sharded->memory.peak <= Bytes{4'000'000 + 4 * 2'000'000 + 4'000'000});
}

// The mean of a function of a standard normal deviate, by the trapezoidal rule.
double mean_over_deviates(const std::function<double(double)>& of) {
    constexpr double step = 0.01;
    double sum = 0;
    for (double z = -6; z <= 6; z += step) {
        sum += of(z) * std::exp(-z * z / 2) * step;
    }
    return sum / std::sqrt(2 * std::acos(-1.0));
}

TEST_CASE("the regret of a sharding is its mean excess under the model's error", "[sharding]") {
    const Scenario scenario =
        four_layers(R"({"workload": {"host_is_device": true}, "step": {"optimizer_ms": 0.0}})");
    const StepInput input = sharded_input(scenario).step;
    // Where the host is the device every collective is waited for: 12 ms of computing, and of a
    // millisecond each 4 all-gathers and 4 reduce-scatters; freed after forward, 4 all-gathers
    // more.
    const ShardingRequest freed;
    ShardingRequest kept;
    kept.reshard_after_forward = false;
    const auto regrets = [&](ModelError error) {
        error.plan = error.readiness = error.link_fixed = error.interference = 0;
        return drawn_regrets(input, {freed, kept}, error, 0.005, 0);
    };
    const auto of_link = regrets({.computing = 0, .link_bytes = 0.3});
    CHECK(of_link[0].expected == Approx(mean_over_deviates([](double z) {
                                     const double f = std::exp(0.3 * z);
                                     return 4 * f / (12 + 8 * f);
                                 })).epsilon(0.02));
    CHECK(of_link[0].told_from_best);
    CHECK(of_link[1].expected == 0);
    CHECK(of_link[1].most == 0);
    // 1.96 deviations on each side, as far as 96 draws reach.
    const auto saved = [](double z) { return 4 / (12 / std::exp(0.3 * z) + 12); };
    CHECK(of_link[1].saved->low == Approx(saved(-1.96)).epsilon(0.1));
    CHECK(of_link[1].saved->high == Approx(saved(1.96)).epsilon(0.1));
    // An error of computing is forward's, too.
    const auto of_computing = regrets({.computing = 0.3, .link_bytes = 0});
    CHECK(of_computing[0].expected == Approx(mean_over_deviates([](double z) {
                                          return 4 / (12 * std::exp(0.3 * z) + 8);
                                      })).epsilon(0.02));
}

TEST_CASE("accumulated micro-steps are drawn with the step they belong to", "[sharding]") {
    const Scenario scenario = four_layers(
        R"({"workload": {"host_is_device": true}, "step": {"optimizer_ms": 0.0, "accumulation": 3}})");
    ShardingRequest kept;
    kept.reshard_after_forward = false;
    ModelError error;
    error.computing = error.plan = error.readiness = error.link_fixed = error.interference = 0;
    error.link_bytes = 0.3;
    const auto regrets =
        drawn_regrets(sharded_input(scenario).step, {ShardingRequest{}, kept}, error, 0.005);
    // All three are alike, so the share is that of one.
    CHECK(regrets[0].expected == Approx(mean_over_deviates([](double z) {
                                     const double f = std::exp(0.3 * z);
                                     return 4 * f / (12 + 8 * f);
                                 })).epsilon(0.02));
}

TEST_CASE(
    "a sharded prediction has regrets where a choice is close, and the choice is expected to "
    "cost no more than the tolerance over the least",
    "[sharding]") {
    const Prediction prediction = predicted(four_layers());
    REQUIRE(prediction.advised().confidence);
    REQUIRE(prediction.configured->confidence);
    for (const Evaluation& row : prediction.sweep) {
        CHECK((!row.confidence || prediction.advised().confidence->regret.expected <=
                                      row.confidence->regret.expected + plateau_tolerance + 5e-4));
    }
}

TEST_CASE("what does not fit is not advised", "[sharding]") {
    const auto with_memory = [](const std::string& gib) {
        return predicted(four_layers(
            R"({"workload": {"device": {"preset": "A100", "memory_gib": )" + gib + "}}}"));
    };
    const Prediction roomy = with_memory("1");
    CHECK(roomy.best_fits);
    // 0.0144 GiB are 15.5 MB: some fit.
    const Prediction tight = with_memory("0.0144");
    CHECK(tight.best_fits);
    CHECK(tight.advised().fits());
    CHECK(tight.advised().peak() <= Bytes{15'461'882});
    const Prediction hopeless = with_memory("0.001");
    CHECK_FALSE(hopeless.best_fits);
    for (const Evaluation& row : hopeless.sweep) {
        CHECK(hopeless.advised().peak() <= row.peak());
    }
}

TEST_CASE("groups of any sizes are at least as good as the even ones", "[sharding]") {
    const Scenario scenario = four_layers(
        R"({"cluster": {"link": {"segments": [{"latency_us": 300.0, "bandwidth_gb_per_s": 1.0}]}}})");
    const ShardedInput input = sharded_input(scenario);
    const Prediction prediction = predicted(scenario);
    const std::optional<OptimalGroups> found =
        optimal_groups(scenario, input, prediction, [](double) {});
    REQUIRE(found);
    CHECK(found->evaluation.step() <= prediction.advised().step());
    // All eight ways to cut four layers, by hand: with the advised knobs none is shorter.
    for (unsigned cuts = 0; cuts < 8; ++cuts) {
        ShardedInput other = input;
        other.request = prediction.advised().sharded->request;
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
    CHECK(rows[0].best.step() >= duration_from_ms(4 + 8 + 2 + 2));
    CHECK(rows[0].best.step() <= duration_from_ms(4 + 8 + 8 + 2));
    CHECK(rows[1].best.step() == predicted(four_layers()).advised().step());
    CHECK(rows[0].best.peak() > rows[1].best.peak());
    CHECK(rows[2].best.sharded->request.strategy == ShardedStrategy::zero3);
}

}  // namespace
}  // namespace bucketwise
