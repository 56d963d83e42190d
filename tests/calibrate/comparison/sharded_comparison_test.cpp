// Settings of a sharded step, predicted beside steps that are made up from the predictions.
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "calibrate/comparison/sharded_comparison.h"
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

TEST_CASE("every setting is predicted beside what it took, and choosing by that is judged") {
    const Scenario scenario = three_layers();
    MeasuredRun run = empty_run();
    // A step takes 3 ms of computing and some collectives of 1 ms and 2 or 6 MB at 1 GB/s. One
    // group kept is predicted the fastest, of an all-gather and a reduce-scatter, and takes a
    // quarter more; each layer by itself takes nine collectives and is measured as predicted.
    add_steps(scenario, layers_together(1), 1.0, run);
    add_steps(scenario, layers_together(3, false), 1.25, run);
    add_steps(scenario, layers_together(3), 0.5, run);
    const ShardedComparison comparison = compare_settings(scenario, run);
    REQUIRE(comparison.points.size() == 3);
    CHECK(comparison.points[0].predicted_ms == Approx(3 + 9 * (1 + 2)));
    CHECK(comparison.points[1].predicted_ms == Approx(3 + 2 * (1 + 6)));
    CHECK(comparison.points[2].predicted_ms == Approx(3 + 3 * (1 + 6)));
    CHECK(comparison.points[0].error() == Approx(0).margin(1e-9));
    CHECK(comparison.points[1].error() == Approx(-0.2));
    CHECK(comparison.points[2].error() == Approx(1.0));
    CHECK(comparison.mape == Approx((0 + 0.2 + 1.0) / 3));
    CHECK(comparison.max_error == Approx(1.0));
    CHECK(comparison.chosen == 1);
    CHECK(comparison.fastest == 2);
    CHECK(comparison.regret == Approx(17 * 1.25 / (24 * 0.5) - 1));
    CHECK(comparison.noise_floor == Approx(0.01));
    const Json json = to_json(comparison);
    CHECK(json["points"][1]["sharding"]["reshard_after_forward"] == false);
    CHECK(json["predicted_best"] == json["points"][1]["sharding"]);
    CHECK(json["measured_best"] == json["points"][2]["sharding"]);
    CHECK_THAT(comparison_report(comparison),
               Contains("3 layers, kept, is 77 % slower than the fastest that was measured") &&
                   Contains("predicted best"));
}

TEST_CASE("steps of another scenario are not compared") {
    const Scenario scenario = three_layers();
    MeasuredRun run = empty_run();
    CHECK_THROWS_AS(compare_settings(scenario, run), InputError);
    add_steps(scenario, layers_together(1), 1.0, run);
    CHECK_NOTHROW(compare_settings(scenario, run));
    CHECK_THROWS_AS(compare_settings(three_layers(4), run), InputError);
    const auto refused = [&](auto spoil) {
        MeasuredRun other = run;
        spoil(other.steps.back());
        CHECK_THROWS_AS(compare_settings(scenario, other), InputError);
    };
    refused([](StepRecord& step) { step.sharding.reset(); });
    refused([](StepRecord& step) { step.strategy = "hsdp"; });
    refused([](StepRecord& step) { step.sharding->asynchronous_unshard = true; });
    refused([](StepRecord& step) { step.sharding->reduce_dtype = DType::bfloat16; });
    refused([](StepRecord& step) { step.collective_begin_us.pop_back(); });
}

}  // namespace
}  // namespace bucketwise
