// A framework's rule as the scenario's own strategy: its step is that of the framework's advice, in
// every shipped scenario, and steps worked out by hand.
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/frameworks/framework_step.h"
#include "sim/predict/evaluation.h"
#include "sim/predict/percentiles.h"
#include "sim/predict/prediction.h"
#include "sim/predict/strategy_comparison.h"
#include "sim/predict/what_if.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

using std::chrono::milliseconds;

std::string text_of_file(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

Scenario parsed(const Json& document, StrategyKinds kinds = StrategyKinds::replicated) {
    const std::string folder = BUCKETWISE_SCENARIO_DIR;
    return parse_scenario(document, folder + "/scenario.json", text_of_file, kinds);
}

std::vector<Json> shipped_scenarios() {
    std::vector<Json> documents;
    for (const auto& entry : std::filesystem::directory_iterator(BUCKETWISE_SCENARIO_DIR)) {
        const std::string path = entry.path().string();
        if (path.ends_with(".json") && !path.ends_with(".schema.json")) {
            Json document = parse_json(text_of_file(path), path);
            if (document.contains("workload") && !parsed(document, StrategyKinds::all).sharding) {
                documents.push_back(std::move(document));
            }
        }
    }
    return documents;
}

// The scenario with a framework's strategy, and what that can have of the section sync.
Json with_strategy(Json document, Framework framework) {
    Json sync{{"strategy", name_of(framework)}};
    if (document["sync"].contains("batch_norm")) {
        sync["batch_norm"] = document["sync"]["batch_norm"];
    }
    document["sync"] = sync;
    return document;
}

constexpr std::array frameworks{Framework::megatron_lm, Framework::megatron_distributed_optimizer,
                                Framework::deepspeed_zero1, Framework::deepspeed_zero2,
                                Framework::horovod};

// --- as the advice ---

TEST_CASE("a framework's strategy takes the step of its advice, in every shipped scenario") {
    const std::vector<Json> documents = shipped_scenarios();
    REQUIRE(documents.size() >= 12);
    for (const Json& document : documents) {
        for (const Framework framework : frameworks) {
            const Scenario scenario = parsed(document);
            const bool issues_as_ddp = is_ddp(scenario.sync.strategy);
            Json own = with_strategy(document, framework);
            for (const std::int64_t accumulation : {1, 3}) {
                own["step"]["accumulation"] = accumulation;
                const Scenario framed = parsed(own);
                const StepInput input = step_input(framed);
                StepInput advised = step_input(scenario);
                advised.step.accumulation = accumulation;
                if (!issues_as_ddp) {
                    advised.link.host_issue = input.link.host_issue;
                }
                FrameworkStep step(advised, scenario.sync, {.framework = framework});
                Evaluator evaluator(input, framed.sync);
                const std::int64_t unit = cap_bytes_of_limit(use_of(framed.sync), input.workload);
                INFO(scenario.name << ", " << name_of(framework) << ", " << accumulation);
                CHECK(evaluator.evaluate(Cap()).step() == step.step(step.plan(std::nullopt)));
                for (const std::int64_t limit : {300'000, 6'000'000}) {
                    const FusedPlan fused = step.plan(Bytes{limit});
                    const Evaluation row = evaluator.evaluate(Bytes{unit * limit});
                    CHECK(row.step() == step.step(fused));
                    // The plan's limits as caps.
                    CHECK(row.same_plan.lowest <= Bytes{unit * limit});
                    CHECK(row.same_plan.highest.value_or(Bytes{unit * limit}) >=
                          Bytes{unit * limit});
                }
            }
        }
    }
}

// --- worked out by hand ---

// a, b, c, d of 1 MB each, ready 4, 3, 2 and 1 ms into backward, which follows 1 ms of forward; 1
// MB takes 1 ms between two ranks.
Json four_gradients(const std::string& strategy) {
    Json gradients;
    for (const int ready : {4, 3, 2, 1}) {
        gradients.push_back({{"name", std::to_string(ready)},
                             {"numel", 250'000},
                             {"dtype", "float32"},
                             {"ready_ms", ready}});
    }
    const Json segment{{"latency_us", 0}, {"bandwidth_gb_per_s", 1}};
    return {{"name", "four gradients"},
            {"workload", {{"forward_ms", 1}, {"backward_ms", 4}, {"gradients", gradients}}},
            {"cluster",
             {{"ranks", 2},
              {"link",
               {{"name", "1 GB/s"}, {"algorithm", "ring"}, {"segments", Json::array({segment})}}}}},
            {"sync", {{"strategy", strategy}}},
            {"step", {{"optimizer_ms", 2}}}};
}

Evaluation own_step(const Json& document) {
    const Scenario scenario = parsed(document);
    const StepInput input = step_input(scenario);
    return Evaluator(input, scenario.sync).evaluate(scenario.sync.bucket_cap);
}

constexpr double mib_of_two = 2e6 / (1 << 20);  // of 500,000 float32

TEST_CASE("a cap in MiB is as many elements of Megatron-LM as fit into it") {
    Json document = four_gradients("megatron_lm");
    document["sync"]["bucket_cap_mib"] = mib_of_two;
    // {d, c} is full at 3 ms and takes 2, {b, a} at 5 and takes 2; then the optimizer.
    const Evaluation row = own_step(document);
    CHECK(row.bucket_bytes == std::vector{Bytes{2'000'000}, Bytes{2'000'000}});
    CHECK(row.step() == milliseconds{9});
    // From one element more than a gradient to two gradients.
    CHECK(row.same_plan == CapRange{Bytes{1'000'004}, Bytes{2'000'003}});
    // 40 million elements by default: everything in 4 ms from 5 ms on.
    CHECK(own_step(four_gradients("megatron_lm")).step() == milliseconds{11});
    CHECK(own_step(four_gradients("megatron_lm")).cap == Cap(Bytes{160'000'000}));
}

TEST_CASE("what a framework shards, ranks update in parts, and then gather") {
    Json document = four_gradients("deepspeed_zero1");
    document["sync"]["bucket_cap_mib"] = mib_of_two;
    // {d, c} goes out with b, at 1 + 3, and takes 2. {b, a} after backward, at 5, has to wait until
    // 6 and takes 2: 8. Half of the optimizer, 1 ms, and 4 MB gathered in half of a ring's 4 ms.
    CHECK(own_step(document).step() == milliseconds{11});
    // Without overlap all goes after backward: 5 + 2 + 2, and then as above.
    document["sync"]["overlap_comm"] = false;
    CHECK(own_step(document).step() == milliseconds{12});
    // Stage 2 does so in each of two micro-steps: 1 + 3 + 2 + 1 + 2, all twice.
    document["sync"]["strategy"] = "deepspeed_zero2";
    document["sync"].erase("overlap_comm");
    document["step"]["accumulation"] = 2;
    CHECK(own_step(document).step() == milliseconds{19});
}

TEST_CASE("Horovod's cycle is the scenario's") {
    Json document = four_gradients("horovod");
    // Handed over at 2, 3, 4 and 5 ms and found at once, each 1 ms long; then the optimizer.
    CHECK(own_step(document).step() == milliseconds{8});
    // A cycle of 5 ms finds all four at 5 ms: 4 ms.
    document["sync"]["cycle_ms"] = 5;
    CHECK(own_step(document).step() == milliseconds{11});
}

// --- like any other strategy ---

TEST_CASE("a framework's strategy is predicted, drawn, varied and compared") {
    for (const Framework framework : frameworks) {
        Json document = four_gradients(std::string(name_of(framework)));
        document["variation"] = {{"compute_spread", 0.02}, {"operation_spread", 0.02}};
        const Scenario scenario = parsed(document);
        const StepInput input = step_input(scenario);
        INFO(name_of(framework));
        const Prediction prediction = predict(input, scenario.sync, {}, [](double) {});
        // A cycle of Horovod's finds one gradient.
        CHECK(prediction.sweep.size() >= (framework == Framework::horovod ? 1 : 4));
        CHECK(prediction.chosen().confidence->interval.has_value());
        const PercentileTable table = percentile_table(input, scenario.sync, prediction, 50);
        CHECK(table.rows[table.chosen].steps.p50 <= table.rows[table.chosen].steps.p99);
        const Grid grid({{"/cluster/ranks", {2, 4}}});
        WhatIfs sweep(document, "scenario.json", text_of_file, grid, {});
        for (const std::int64_t ranks : {2, 4}) {
            document["cluster"]["ranks"] = ranks;
            const WhatIf point = sweep.evaluate(ranks / 2 - 1);
            CHECK(point.times.step() == own_step(document).step());
            CHECK(point.cap == own_step(document).cap);
        }
        const auto compared = static_cast<ComparedStrategy>(
            static_cast<int>(ComparedStrategy::megatron_lm) + static_cast<int>(framework) - 1);
        const Scenario ddp = parsed(four_gradients("ddp"));
        CHECK(compare_strategies(ddp, {compared}).front().best.step() ==
              predict(step_input(parsed(four_gradients(std::string(name_of(framework))))),
                      used_as({}, {.framework = framework}), {}, [](double) {})
                  .advised()
                  .step());
    }
}

// --- refused ---

TEST_CASE("keys that a framework's strategy does not have are refused by name") {
    const auto pointer_of = [](const std::string& strategy, const std::string& key,
                               const Json& value) {
        Json document = four_gradients(strategy);
        document["sync"][key] = value;
        try {
            static_cast<void>(parsed(document));
        } catch (const InputError& error) {
            return error.pointer();
        }
        return std::string("accepted");
    };
    CHECK(pointer_of("deepspeed_zero2", "closing", "single") == "/sync/closing");
    CHECK(pointer_of("megatron_lm", "comm_hook", "fp16") == "/sync/comm_hook");
    CHECK(pointer_of("horovod", "overlap_comm", false) == "/sync/overlap_comm");
    CHECK(pointer_of("deepspeed_zero1", "cycle_ms", 2) == "/sync/cycle_ms");
    CHECK(pointer_of("ddp", "cycle_ms", 2) == "/sync/cycle_ms");
    CHECK(pointer_of("horovod", "cycle_ms", 0) == "/sync/cycle_ms");
    CHECK(pointer_of("deepspeed_zero2", "framework_version", "0.14.2") ==
          "/sync/framework_version");
    CHECK(pointer_of("deepspeed_zero2", "framework_version", "0.14.3") == "accepted");
    CHECK(pointer_of("horovod", "views", true) == "accepted");  // has a caveat
}

}  // namespace
}  // namespace bucketwise
