// Settings of a sharded step, predicted beside steps that are made up from the predictions. Steps
// at caps are compared in tests/calibrate/fit/calibration_test.cpp.
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "calibrate/comparison/step_comparison.h"
#include "sim/base/error.h"
#include "sim/predict/prediction.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

using Catch::Matchers::Contains;

Scenario three_layers(int ranks = 2) {
    GradientWorkload workload;
    workload.forward = duration_from_ms(1);
    workload.backward = duration_from_ms(2);
    for (int layer = 0; layer < 3; ++layer) {
        workload.gradients.push_back({{.name = "layers." + std::to_string(layer) + ".weight",
                                       .numel = 1'000'000,
                                       .dtype = DType::float32,
                                       .rows = 1000},
                                      duration_from_ms(2 - 0.5 * layer)});
    }
    Scenario scenario;
    scenario.name = "three layers";
    scenario.workload = workload;
    scenario.group.ranks = ranks;
    scenario.link.segments.push_back(
        {std::nullopt, duration_from_ms(1), bandwidth_from_gb_per_s(1)});
    scenario.sharding = ShardingRequest{};
    return scenario;
}

ShardedInput on_ranks(const Scenario& scenario, const ShardingRequest& setting) {
    ShardedInput input = sharded_input(scenario);
    input.step.workload.host_is_device = true;
    input.request = setting;
    return input;
}

// Steps at the setting that took `times` as long as predicted, in three rounds.
void add_steps(const Scenario& scenario, const ShardingRequest& setting, double times,
               MeasuredRun& run) {
    const ShardedInput input = on_ranks(scenario, setting);
    const double us = times * to_us(evaluate_sharded(scenario, input).step());
    const std::size_t sent = sharded_program(input).collectives.size();
    for (std::int64_t round = 0; round < 3; ++round) {
        StepRecord& step = run.steps.emplace_back();
        step.transport = run.transport;
        step.strategy = "fsdp";
        step.sharding = setting;
        step.round = round;
        const double off = 1 + 0.01 * static_cast<double>(round - 1);  // a hundredth either way
        step.samples_us = {off * us};
        step.free_communication_us = {0.5 * us};
        step.exposed_communication_us = 0.5 * us;
        step.by_rank.resize(2);
        step.collective_begin_us.resize(sent);
        step.collective_end_us.resize(sent);
        step.collective_last_begin_us.resize(sent);
    }
}

ShardingRequest layers_together(std::int64_t layers, bool reshard = true) {
    ShardingRequest request;
    request.layers_per_group = layers;
    request.reshard_after_forward = reshard;
    return request;
}

MeasuredRun empty_run() {
    MeasuredRun run;
    run.file = "measured.jsonl";
    run.transport = {
        .backend = "gloo", .algorithm = "ring", .implementation = "library", .ranks = 2};
    return run;
}

Comparison compared(const Scenario& scenario, const MeasuredRun& run) {
    const StepInput input = compared_input(scenario, run);
    return compare_steps(scenario, run,
                         predict_sharded(scenario, {input, *scenario.sharding}, [](double) {}));
}

// A step takes 3 ms of computing and some collectives of 1 ms and 2 or 6 MB at 1 GB/s. Each layer
// by itself, the scenario's own setting, takes nine collectives and is measured as predicted. One
// group takes three, in half the time. One group kept takes an all-gather and a reduce-scatter,
// which is predicted to be fastest and takes a quarter more.
MeasuredRun three_settings(const Scenario& scenario) {
    MeasuredRun run = empty_run();
    add_steps(scenario, layers_together(1), 1.0, run);
    add_steps(scenario, layers_together(3, false), 1.25, run);
    add_steps(scenario, layers_together(3), 0.5, run);
    return run;
}

TEST_CASE("every setting is predicted beside what it took, and the advice is judged") {
    const Scenario scenario = three_layers();
    const Comparison c = compared(scenario, three_settings(scenario));
    REQUIRE(c.points.size() == 3);  // those that reshard first
    CHECK(c.points[0].predicted_ms == Approx(3 + 9 * (1 + 2)));
    CHECK(c.points[1].predicted_ms == Approx(3 + 3 * (1 + 6)));
    CHECK(c.points[2].predicted_ms == Approx(3 + 2 * (1 + 6)));
    CHECK(c.points[0].error() == Approx(0).margin(1e-9));
    CHECK(c.points[1].error() == Approx(1.0));
    CHECK(c.points[2].error() == Approx(-0.2));
    CHECK(c.mape == Approx((0 + 0.2 + 1.0) / 3));
    CHECK(c.max_error == Approx(1.0));
    CHECK(c.default_point == 0);
    CHECK(c.chosen == 2);
    CHECK(c.fastest == 1);
    CHECK(c.advised_was_measured);
    const double regret = 17 * 1.25 / (24 * 0.5) - 1;
    CHECK(c.regret == Approx(regret));
    CHECK(c.noise_floor == Approx(0.01));
    CHECK(c.gain_over_default == Approx(30 / (17 * 1.25) - 1));
    // All rounds differ alike, so the differences within them are known exactly.
    CHECK(decision_verdict(c) == Verdict::missed);
    CHECK(c.decision.regret->low == Approx(regret));
    CHECK(c.decision.regret->high == Approx(regret));
    CHECK_THAT(verdict_text(c),
               Contains("Use a group for every 3 layers, resharded after forward, "
                        "which is 44 % faster than a group for every 3 layers, kept"));
    CHECK_THAT(comparison_report(c, true), Contains("3 layers, kept") && Contains("advised") &&
                                               Contains("yours") &&
                                               Contains("collective bandwidth"));
}

TEST_CASE("the JSON of a sharded comparison names settings in place of caps") {
    const Scenario scenario = three_layers();
    const Json json = to_json(compared(scenario, three_settings(scenario)));
    CHECK(json["sharded"] == true);
    CHECK(json["format"] == comparison_format);
    const Json& kept = json["points"][2];
    CHECK(kept["setting"] == "3 layers, kept");
    CHECK(kept["sharding"]["reshard_after_forward"] == false);
    CHECK_FALSE(kept.contains("bucket_cap_mib"));
    CHECK(json["points"][0]["is_default"] == true);
    CHECK(json["predicted_best"] == kept["sharding"]);
    CHECK(json["measured_best"] == json["points"][1]["sharding"]);
    CHECK(json["verdict"]["decision"] == "missed");
    CHECK(json["verdict"]["regret_95"].size() == 2);
    CHECK(json["pictures"]["setting"] == kept["setting"]);
    // Free communication leaves the 3 ms of computing.
    CHECK(json["what_if"][4]["step_ms"].get<double>() == Approx(3));
    for (const Json& point : json["points"]) {
        double explained = 0;
        for (const auto& [cause, ms] : point["causes_ms"].items()) {
            explained += ms.get<double>();
        }
        const double error_ms =
            point["measured_step_ms"].get<double>() - point["predicted_step_ms"].get<double>();
        CHECK(explained == Approx(error_ms).margin(1e-9));
    }
}

TEST_CASE("where the advised setting was not measured, the fastest by prediction stands for it") {
    const Scenario scenario = three_layers();
    MeasuredRun run = empty_run();
    add_steps(scenario, layers_together(1), 1.0, run);
    add_steps(scenario, layers_together(3), 1.0, run);
    const Comparison c = compared(scenario, run);
    CHECK(c.chosen == 1);
    CHECK_FALSE(c.advised_was_measured);
    CHECK_THAT(comparison_report(c, false), Contains("was not measured; this one, predicted ") &&
                                                Contains(" slower, stands for it"));
}

TEST_CASE("steps of another scenario are not compared") {
    const Scenario scenario = three_layers();
    MeasuredRun run = empty_run();
    CHECK_THROWS_AS(compared(scenario, run), InputError);
    add_steps(scenario, layers_together(1), 1.0, run);
    CHECK_NOTHROW(compared(scenario, run));
    CHECK_THROWS_AS(compared(three_layers(4), run), InputError);
    const auto refused = [&](auto spoil) {
        MeasuredRun other = run;
        spoil(other.steps.back());
        CHECK_THROWS_AS(compared(scenario, other), InputError);
    };
    refused([](StepRecord& step) { step.sharding.reset(); });
    refused([](StepRecord& step) { step.strategy = "hsdp"; });
    refused([](StepRecord& step) { step.sharding->reduce_dtype = DType::bfloat16; });
    refused([](StepRecord& step) { step.collective_begin_us.pop_back(); });
}

TEST_CASE("a measured rank computes between the collectives that block it") {
    Program program;
    program.host_is_device = true;
    program.collectives.resize(2);
    program.collectives[0].kind = CollectiveKind::all_gather;
    program.collectives[1].kind = CollectiveKind::reduce_scatter;
    MeasuredSetting measured;
    measured.sharding = ShardingRequest{};
    measured.forward_us = 10'000;
    measured.backward_us = 20'000;
    measured.begin_us = {0, 12'000};
    measured.end_us = {4'000, 15'000};
    using Spans = std::vector<PictureSpan>;
    const Spans backward{{"backward", 10, 12}, {"backward", 15, 30}};
    Spans expected{{"forward", 4, 10}};
    expected.insert(expected.end(), backward.begin(), backward.end());
    CHECK(measured_picture(measured, program).computing == expected);
    measured.sharding->asynchronous_unshard = true;
    expected.front().begin_ms = 0;
    CHECK(measured_picture(measured, program).computing == expected);
}

}  // namespace
}  // namespace bucketwise
