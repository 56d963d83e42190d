#include "sim/predict/confidence.h"

#include <cmath>

#include "sim/link/link_presets.h"
#include "sim/predict/drawn_link.h"
#include "sim/predict/prediction.h"
#include "tests/calibrate/fit/synthetic_run.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

constexpr ModelError no_error{.computing = 0,
                              .readiness = 0,
                              .link_fixed = 0,
                              .link_bytes = 0,
                              .interference = 0,
                              .collective_us = 0,
                              .plan = 0,
                              .measuring = 0};

std::vector<Setting> caps_of(const SyncRequest& request, const std::vector<Bytes>& caps) {
    std::vector<Setting> choices;
    for (const Bytes cap : caps) {
        choices.emplace_back(settings_for(with_cap(request, cap)));
    }
    return choices;
}

TEST_CASE("a model without an error costs what it simulates, for certain") {
    const Scenario scenario = synthetic_scenario();
    const StepInput input = step_input(scenario);
    const auto choices = caps_of(scenario.sync, synthetic_caps());
    const auto regrets = drawn_regrets(input, choices, no_error, 0.005);
    Evaluator evaluator(input, scenario.sync);
    std::vector<double> steps;
    for (const Bytes cap : synthetic_caps()) {
        steps.push_back(to_ms(evaluator.evaluate(cap).step()));
    }
    const double fastest = *std::ranges::min_element(steps);
    for (std::size_t i = 0; i < steps.size(); ++i) {
        CHECK(regrets[i].expected == Approx(steps[i] / fastest - 1).margin(1e-9));
        CHECK(regrets[i].most == Approx(steps[i] / fastest - 1).margin(1e-9));
        CHECK(regrets[i].told_from_best == (steps[i] > 1.005 * fastest));
    }
}

TEST_CASE("each error widens what a choice may cost") {
    const Scenario scenario = synthetic_scenario();
    const StepInput input = step_input(scenario);
    const auto choices = caps_of(scenario.sync, synthetic_caps());
    const auto exact = drawn_regrets(input, choices, no_error, 0.005);
    const auto most = [](const std::vector<DrawnRegret>& regrets) {
        double sum = 0;
        for (const DrawnRegret& regret : regrets) {
            sum += regret.most - regret.expected;
        }
        return sum;
    };
    CHECK(most(exact) == Approx(0).margin(1e-9));
    for (double ModelError::*part :
         {&ModelError::computing, &ModelError::readiness, &ModelError::link_fixed,
          &ModelError::link_bytes, &ModelError::interference, &ModelError::plan,
          &ModelError::measuring}) {
        ModelError error = no_error;
        error.*part = 0.1;
        CHECK(most(drawn_regrets(input, choices, error, 0.005)) > 1e-4);
    }
    ModelError costs = no_error;
    costs.collective_us = 1000;
    const auto regrets = drawn_regrets(input, choices, costs, 0.005);
    CHECK(most(regrets) > 1e-4);
    // The cost of each collective in computing speaks against many.
    CHECK(regrets.front().expected > exact.front().expected);
}

TEST_CASE("what a choice may cost does not grow with passes that no plan changes") {
    const Scenario scenario = synthetic_scenario();
    const auto lost_ms = [&](std::int64_t accumulation) {
        StepInput input = step_input(scenario);
        input.step.accumulation = accumulation;
        const auto regrets = drawn_regrets(input, caps_of(scenario.sync, synthetic_caps()),
                                           model_error_of(input), 0.005);
        const double step = to_ms(Evaluator(input, scenario.sync).step(synthetic_caps().front()));
        return regrets.front().expected * step;
    };
    CHECK(lost_ms(100) < 1.2 * lost_ms(1));
    CHECK(lost_ms(100) > lost_ms(1) / 3);
}

TEST_CASE("choices with equal plans cost the same, whatever is drawn of the model") {
    const Scenario scenario = synthetic_scenario();
    const StepInput input = step_input(scenario);
    const Bytes cap = synthetic_caps().front();
    const auto regrets =
        drawn_regrets(input, caps_of(scenario.sync, {cap, cap}), model_error_of(input), 0.005);
    CHECK(regrets[0] == regrets[1]);
    CHECK(regrets[0] == DrawnRegret{});
    // The steps that judge the choices are measured twice.
    ModelError error = model_error_of(input);
    error.measuring = 0.02;
    const auto judged = drawn_regrets(input, caps_of(scenario.sync, {cap, cap}), error, 0.005);
    // The expected maximum of two normal deviates, over one of them: 0.02 / sqrt(pi).
    CHECK(judged[0].expected == Approx(0.02 / std::sqrt(3.14159)).epsilon(0.35));
}

TEST_CASE("the declared error is a preset's, and a GPU's") {
    Scenario scenario = synthetic_scenario();
    CHECK(model_error_of(step_input(scenario)) == ModelError{});
    scenario.group = {8, 8};
    scenario.link = preset_link(*find_preset("wan-1gbit-20ms"), PresetEnd::typical);
    const ModelError wide = model_error_of(step_input(scenario));
    // 0.03 to 0.117 GB/s are four standard errors of the logarithm, 20 ms steps are 15 to 10.
    CHECK(wide.link_bytes == Approx(std::log(0.117 / 0.03) / 4).epsilon(0.2));
    CHECK(wide.link_fixed == Approx(std::log(15.0 / 10) / 4).epsilon(0.1));
    CHECK(wide.collective_us == 0);
    scenario.link = preset_link(*find_preset("nvlink-h100-8"), PresetEnd::typical);
    StepInput on_gpus = step_input(scenario);
    on_gpus.workload.host_is_device = false;
    CHECK(model_error_of(on_gpus).collective_us > 0);
}

TEST_CASE("of what cannot be told apart the default is taken, else what is short to type") {
    const auto sure = [](double expected) {
        return std::optional(StepConfidence{{.expected = expected}, {}});
    };
    const std::vector<Cap> caps{Bytes{2694134}, Bytes{2 << 20}, Bytes{10 << 20}, Bytes{25 << 20}};
    CHECK(shortest_to_type({sure(0.001), sure(0.0015), sure(0.1), sure(0.1)}, caps, 0) == 1);
    // 2 and 10 are as short; 10 is nearer to 25.
    CHECK(shortest_to_type({sure(0.001), sure(0.0015), sure(0.0018), sure(0.1)}, caps, 0) == 2);
    CHECK(shortest_to_type({sure(0.001), sure(0.0015), sure(0.0015), sure(0.0019)}, caps, 0) == 3);
    // 2.569332... is worth leaving for a round number, which is the one that costs least.
    CHECK(shortest_to_type({sure(0.001), sure(0.0035), sure(0.0059), sure(0.1)}, caps, 0) == 1);
    CHECK(shortest_to_type({sure(0.001), std::nullopt, sure(0.0059), sure(0.1)}, caps, 0) == 2);
    CHECK(shortest_to_type({sure(0.001), std::nullopt, sure(0.0061), sure(0.1)}, caps, 0) == 0);
    const std::vector<Cap> short_ones{Bytes{3 << 20}, Bytes{2 << 20}};
    CHECK(shortest_to_type({sure(0.001), sure(0.0021)}, short_ones, 0) == 0);
    CHECK(shortest_to_type({std::nullopt, sure(0.0), sure(0.0), sure(0.0)}, caps, 0) == 0);
    CHECK(least_expected_regret({sure(0.01), sure(0.002), std::nullopt, sure(0.00195)}, 0) == 1);
}

TEST_CASE("a drawn link is the link where nothing is drawn, and the opposite lies opposite") {
    Scenario scenario = synthetic_scenario();
    for (Segment& segment : scenario.link.segments) {
        segment.errors = SegmentErrors{.latency_us = 1, .bandwidth_gb_per_s = 0.01};
    }
    scenario.link.all_gather = {.segments = scenario.link.segments};
    Normal normal(7);
    const LinkParameters& link = scenario.link;
    const LinkDeviates deviates = drawn_deviates(link, normal);
    CHECK(drawn_link(link, LinkDeviates(deviates.size())) == link);
    const LinkParameters one = drawn_link(link, deviates);
    const LinkParameters other = drawn_link(link, deviates, -1);
    const double product =
        to_gb_per_s(one.segments.front().bandwidth) * to_gb_per_s(other.segments.front().bandwidth);
    CHECK(std::sqrt(product) == Approx(to_gb_per_s(link.segments.front().bandwidth)).epsilon(1e-6));
    // The errors of a kind's own segments are drawn on their own; three are of interference.
    CHECK(deviates.size() == 4 * link.segments.size() + 3);
    CHECK(one.all_gather.segments.front().latency != link.segments.front().latency);
    CHECK(one.all_gather.segments.front().latency != one.segments.front().latency);
}

}  // namespace
}  // namespace bucketwise
