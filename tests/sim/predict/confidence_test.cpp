#include "sim/predict/confidence.h"

#include <cmath>

#include "sim/predict/prediction.h"
#include "sim/program/step_programs.h"
#include "tests/calibrate/fit/synthetic_run.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

std::vector<Setting> choices_of(const SyncRequest& request, const std::vector<Bytes>& caps) {
    std::vector<Setting> choices;
    for (const Bytes cap : caps) {
        choices.emplace_back(settings_for(with_cap(request, cap)));
    }
    return choices;
}

double step_ms(const StepInput& input, const Setting& setting) {
    const auto& sync = std::get<SyncSettings>(setting);
    const BucketPlan plan =
        make_plan(input.workload.gradients, input.workload.readiness, sync.policy);
    return to_ms(simulate_times(build_program(input, sync, plan)).step());
}

TEST_CASE("a spread of computing alone gives the interval of a normal distribution") {
    Scenario scenario = synthetic_scenario();
    scenario.link.segments = {
        {.bandwidth = bandwidth_from_gb_per_s(1e6)}};  // communication is free
    scenario.link.interference.clear();
    scenario.link.copy_bandwidth = bandwidth_from_gb_per_s(1e6);
    scenario.variation = Variation{.seed = 3, .compute_spread = 0.05};
    const StepInput input = step_input(scenario);
    const auto choices = choices_of(scenario.sync, {Bytes{1 << 20}});
    const double nominal_ms = step_ms(input, choices[0]);
    const StepConfidence confidence = confidence_of(input, choices, 0.005).front();
    // 1.96 deviations of 5 % on each side; 200 draws leave about 0.8 % of it open.
    CHECK(to_ms(confidence.interval->low) == Approx(nominal_ms * (1 - 1.96 * 0.05)).epsilon(0.02));
    CHECK(to_ms(confidence.interval->high) == Approx(nominal_ms * (1 + 1.96 * 0.05)).epsilon(0.02));
    CHECK(confidence.regret == DrawnRegret{});
}

TEST_CASE("ranks that vary move the interval to where the slowest of them lies") {
    Scenario scenario = synthetic_scenario();
    scenario.link.segments = {{.bandwidth = bandwidth_from_gb_per_s(1e6)}};
    scenario.link.interference.clear();
    scenario.link.copy_bandwidth = bandwidth_from_gb_per_s(1e6);
    scenario.variation = Variation{.seed = 3, .rank_spread = 0.05};
    scenario.group = {8, 8};
    const StepInput input = step_input(scenario);
    const auto choices = choices_of(scenario.sync, {Bytes{1 << 20}});
    const double nominal_ms = step_ms(input, choices[0]);
    const StepConfidence confidence = confidence_of(input, choices, 0.005).front();
    // F(z)^8 is 0.025 at z = 0.333 and 0.975 at z = 2.731, of 5 % each; 200 draws leave some open.
    CHECK(to_ms(confidence.interval->low) == Approx(nominal_ms * (1 + 0.333 * 0.05)).epsilon(0.02));
    CHECK(to_ms(confidence.interval->high) ==
          Approx(nominal_ms * (1 + 2.731 * 0.05)).epsilon(0.03));
}

TEST_CASE("an uncertain bandwidth widens the interval of what it makes slow") {
    Scenario scenario = synthetic_scenario();
    scenario.link.interference.clear();
    for (Segment& segment : scenario.link.segments) {
        segment.errors = SegmentErrors{.bandwidth_gb_per_s = 0.02};
    }
    const StepInput input = step_input(scenario);
    const auto choices = choices_of(scenario.sync, synthetic_caps());
    const auto confidences = confidence_of(input, choices, 0.005);
    for (std::size_t i = 0; i < choices.size(); ++i) {
        CHECK(confidences[i].interval->low < confidences[i].interval->high);
        const double ms = step_ms(input, choices[i]);
        CHECK(to_ms(confidences[i].interval->low) <= ms);
        CHECK(ms <= to_ms(confidences[i].interval->high));
    }
    // The same seed gives the same draws, another one others.
    CHECK(confidence_of(input, choices, 0.005) == confidences);
    StepInput other = input;
    other.variation = Variation{.seed = 99};
    CHECK(confidence_of(other, choices, 0.005) != confidences);
}

TEST_CASE("without a fit's errors or a variation nothing says where steps lie") {
    const Scenario scenario = synthetic_scenario();
    const Prediction prediction = predict(step_input(scenario), scenario.sync, {}, [](double) {});
    for (const Evaluation& evaluation : prediction.sweep) {
        if (evaluation.confidence) {
            CHECK_FALSE(evaluation.confidence->interval);
        }
    }
}

TEST_CASE("the recommended cap is the one with the least expected regret") {
    Scenario scenario = synthetic_scenario();
    for (Segment& segment : scenario.link.segments) {
        segment.errors = SegmentErrors{.latency_us = 100, .bandwidth_gb_per_s = 0.05};
    }
    scenario.variation = Variation{.compute_standard_error = 0.05};
    const StepInput input = step_input(scenario);
    const Prediction prediction = predict(input, scenario.sync, {}, [](double) {});
    const auto& best = prediction.sweep[prediction.best].confidence;
    REQUIRE(best);
    for (const Evaluation& evaluation : prediction.sweep) {
        if (evaluation.confidence) {
            CHECK(best->regret.expected <= evaluation.confidence->regret.expected + 2e-3);
        }
    }
    CHECK(prediction.plateau_low <= prediction.best);
    CHECK(prediction.best <= prediction.plateau_high);
    CHECK(prediction.default_cap.confidence.has_value());
}

TEST_CASE("latencies, bandwidths and slowdowns that are drawn stay possible") {
    Scenario scenario = synthetic_scenario();
    for (Segment& segment : scenario.link.segments) {
        segment.errors =
            SegmentErrors{.latency_us = 1e4, .bandwidth_gb_per_s = 10, .correlation = -0.99};
    }
    scenario.link.interference[0].errors = InterferenceErrors{10, 10, 1e6};
    scenario.variation = Variation{.compute_spread = 1,
                                   .operation_spread = 1,
                                   .collective_spread = 1,
                                   .compute_standard_error = 1};
    const StepInput input = step_input(scenario);
    for (const StepConfidence& confidence :
         confidence_of(input, choices_of(scenario.sync, synthetic_caps()), 0.005)) {
        CHECK(confidence.interval->low >= Duration{0});
        CHECK(confidence.interval->low <= confidence.interval->high);
        CHECK(confidence.regret.expected >= 0);
    }
}

}  // namespace
}  // namespace bucketwise
