#include "sim/predict/percentiles.h"

#include <cmath>

#include "sim/report/prediction_json.h"
#include "sim/report/report.h"
#include "sim/scenario/scenario.h"
#include "tests/calibrate/fit/synthetic_run.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

// Communication and copies free: computing is all there is.
Scenario computing_only(const Variation& variation) {
    Scenario scenario = synthetic_scenario();
    scenario.link.segments = {{.bandwidth = bandwidth_from_gb_per_s(1e6)}};
    scenario.link.interference.clear();
    scenario.link.copy_bandwidth = bandwidth_from_gb_per_s(1e6);
    scenario.link.launch = scenario.link.host_issue = scenario.link.host_wait = Duration{0};
    scenario.group = {100'000, 100'000};
    scenario.link.algorithm = Algorithm::direct;
    scenario.link.message = Duration{0};
    scenario.variation = variation;
    return scenario;
}

double step_of(const Scenario& scenario) {
    const StepInput input = step_input(scenario);
    return to_ms(Evaluator(input, scenario.sync).evaluate(Bytes{1 << 20}).times.step());
}

StepPercentiles percentiles(const Scenario& scenario, std::int64_t draws) {
    return percentiles_of(step_input(scenario),
                          {settings_for(with_cap(scenario.sync, Bytes{1 << 20}))}, draws)
        .front();
}

TEST_CASE("percentiles of computing that varies as a whole are a normal distribution's",
          "[percentiles]") {
    const Scenario scenario = computing_only({.seed = 5, .compute_spread = 0.05});
    const double nominal = step_of(scenario);
    const StepPercentiles found = percentiles(scenario, 4000);
    // Quantiles 0, 1.28155, 1.64485 and 2.32635. 4,000 draws leave sqrt(q (1 - q) / 4000) / density
    // open: 0.020, 0.027, 0.033 and 0.059 deviations; four of these.
    const auto deviations = [&](Duration step) { return (to_ms(step) / nominal - 1) / 0.05; };
    CHECK(deviations(found.p50) == Approx(0).margin(0.08));
    CHECK(deviations(found.p90) == Approx(1.28155).margin(0.11));
    CHECK(deviations(found.p95) == Approx(1.64485).margin(0.13));
    CHECK(deviations(found.p99) == Approx(2.32635).margin(0.24));
}

TEST_CASE("percentiles of a GPU are those of a loop, whose host runs ahead", "[percentiles]") {
    const Json document{{"name", "loop"},
                        {"workload", {{"model", "resnet50"}, {"batch", 32}, {"device", "A100"}}},
                        {"cluster", {{"ranks", 8}, {"link", "nvlink-a100-8"}}},
                        {"sync", {{"strategy", "ddp"}}},
                        {"step", {{"optimizer", "adam"}}}};
    Scenario scenario =
        parse_scenario(document, "s.json", [](const std::string&) { return std::string(); });
    scenario.variation = Variation{.seed = 7};
    const StepPercentiles still = percentiles(scenario, 20);
    const double settled = step_of(scenario);
    CHECK(to_ms(still.p50) == settled);
    CHECK(to_ms(still.p99) == settled);
    scenario.variation->compute_spread = 0.05;
    const StepPercentiles varied = percentiles(scenario, 2000);
    // Computing is not all of the step, but nearly.
    CHECK((to_ms(varied.p50) / settled - 1) / 0.05 == Approx(0).margin(0.12));
    CHECK((to_ms(varied.p95) / settled - 1) / 0.05 == Approx(1.6).margin(0.2));
    scenario.step.sync_each_step = true;
    CHECK(to_ms(percentiles(scenario, 20).p50) > 1.001 * to_ms(still.p50));
}

TEST_CASE("the median step of 100,000 ranks is that of the median slowest rank", "[percentiles]") {
    const Scenario scenario = computing_only({.seed = 2, .rank_spread = 0.02});
    // F(z)^100000 is 0.5 at z = 4.34602 and 0.99 at z = 5.19840. The largest of so many is spread
    // by about a quarter of a deviation.
    const StepPercentiles found = percentiles(scenario, 4000);
    const auto deviations = [&](Duration step) {
        return (to_ms(step) / step_of(scenario) - 1) / 0.02;
    };
    CHECK(deviations(found.p50) == Approx(4.34602).margin(0.03));
    CHECK(deviations(found.p99) == Approx(5.1983).margin(0.1));
}

TEST_CASE("random stragglers are in the percentiles that they are common enough for",
          "[percentiles]") {
    // 1 - (1 - 7e-7)^100000 = 6.8 % of steps have one: p95 and p99 do, p50 and p90 do not.
    const Scenario scenario =
        computing_only({.seed = 2, .straggler_probability = 7e-7, .straggler_slowdown = 1.5});
    const double nominal = step_of(scenario);
    const StepPercentiles found = percentiles(scenario, 4000);
    CHECK(to_ms(found.p50) == Approx(nominal).epsilon(1e-9));
    CHECK(found.p90 == found.p50);
    CHECK(to_ms(found.p95) == Approx(1.5 * nominal).epsilon(1e-3));
    CHECK(found.p99 == found.p95);
}

TEST_CASE("all caps have the same steps drawn, and the same input gives the same answer",
          "[percentiles]") {
    Scenario scenario = synthetic_scenario();
    scenario.variation = Variation{.compute_spread = 0.02,
                                   .operation_spread = 0.1,
                                   .collective_spread = 0.2,
                                   .rank_spread = 0.05};
    const StepInput input = step_input(scenario);
    const SyncSettings cap = settings_for(with_cap(scenario.sync, Bytes{1 << 20}));
    const SyncSettings other = settings_for(with_cap(scenario.sync, Bytes{1 << 16}));
    const auto twice = percentiles_of(input, {cap, other, cap}, 300);
    CHECK(twice[0] == twice[2]);
    CHECK(twice[0] != twice[1]);
    CHECK(percentiles_of(input, {cap, other, cap}, 300) == twice);
    CHECK(twice[0].p50 < twice[0].p90);
    CHECK(twice[0].p90 < twice[0].p95);
    CHECK(twice[0].p95 < twice[0].p99);
    StepInput reseeded = input;
    reseeded.variation->seed = 99;
    CHECK(percentiles_of(reseeded, {cap}, 300).front() != twice[0]);
}

TEST_CASE("a table names the fastest, the default and the least of p50 and p99", "[percentiles]") {
    Scenario scenario = synthetic_scenario();
    scenario.variation = Variation{.compute_spread = 0.05, .collective_spread = 0.3};
    const StepInput input = step_input(scenario);
    const Prediction prediction = predict(input, scenario.sync, {}, [](double) {});
    const PercentileTable table = percentile_table(input, scenario.sync, prediction, 200);
    REQUIRE(table.rows.size() >= 2);
    for (const PercentileRow& row : table.rows) {
        CHECK(table.rows[table.best_p50].steps.p50 <= row.steps.p50);
        CHECK(table.rows[table.best_p99].steps.p99 <= row.steps.p99);
    }
    const auto& fastest = table.rows[table.chosen];
    CHECK(fastest.cap == prediction.chosen().cap);
    CHECK(table.rows[table.default_row()].cap == Cap());
    const Json json = to_json(table);
    CHECK(json["draws"] == 200);
    CHECK(json["chosen"]["p50_ms"] == to_ms(fastest.steps.p50));
    CHECK(json["caps"].size() == table.rows.size());
    CHECK(text_of(table).find("best p99") != std::string::npos);
}

}  // namespace
}  // namespace bucketwise
