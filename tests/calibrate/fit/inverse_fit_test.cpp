#include "calibrate/fit/inverse_fit.h"

#include <cmath>
#include <filesystem>
#include <random>
#include <utility>

#include "cli/shell/files.h"
#include "cli/steps_csv.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/predict/prediction.h"
#include "tests/calibrate/fit/synthetic_run.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

namespace fs = std::filesystem;

// Fewer under sanitizers, where a fit takes seconds.
constexpr int machines = BUCKETWISE_TEST_SHARE > 1 ? 4 : 20;

Scenario shipped(const std::string& file) {
    const std::string path = (fs::path(BUCKETWISE_SCENARIO_DIR) / file).string();
    return parse_scenario(parse_json(read_text_file(path), path), path, read_text_file);
}

// Published medians of backward, by cap, of `name`: core, async or sync.
ObservedSteps published(const std::string& name) {
    const std::string file =
        (fs::path(BUCKETWISE_TEST_DATA_DIR) / "published" / ("compare_ddp_" + name + ".csv"))
            .string();
    StepsCsv csv = read_steps_csv(file);
    REQUIRE(csv.part == ObservedPart::backward);
    REQUIRE(csv.steps.size() == 9);
    return {.file = file,
            .scenario = shipped("compare_ddp_" + name + ".json"),
            .part = csv.part,
            .steps = std::move(csv.steps)};
}

const FittedParameter& parameter(const InverseFit& fit, const std::string& name) {
    for (const FittedParameter& p : fit.parameters) {
        if (p.name == name) {
            return p;
        }
    }
    FAIL("no such parameter");
    return fit.parameters.front();
}

// The times that a machine with these factors on the synthetic scenario's would show.
std::vector<ObservedStep> steps_of_machine(const Scenario& scenario, double computing,
                                           double bandwidth, double latency,
                                           const std::vector<Bytes>& caps) {
    StepInput input = step_input(scenario);
    for (Segment& segment : input.link.segments) {
        segment.latency =
            Duration{std::llround(static_cast<double>(segment.latency.count()) * latency)};
        segment.bandwidth.count =
            std::llround(static_cast<double>(segment.bandwidth.count) * bandwidth);
    }
    for (auto* pass : {&input.workload.forward, &input.workload.backward}) {
        for (TimedOperation& operation : *pass) {
            operation.device =
                Duration{std::llround(static_cast<double>(operation.device.count()) * computing)};
        }
    }
    Evaluator evaluator(input, scenario.sync);
    std::vector<ObservedStep> steps;
    for (const Bytes cap : caps) {
        steps.push_back({cap, to_ms(evaluator.evaluate(cap).times.step())});
    }
    return steps;
}

TEST_CASE("the published compare_ddp medians give the shipped scenario's parameters") {
    const InverseFit fit = fit_to_steps({published("core"), published("async"), published("sync")});
    const FittedParameter& backward = parameter(fit, "backward_ms");
    const FittedParameter& bandwidth = parameter(fit, "bandwidth_gb_per_s");
    CHECK(backward.start == Approx(469.4));
    CHECK(std::abs(backward.value - 469.4) <= *backward.standard_error);
    CHECK(bandwidth.start == Approx(1.03));
    CHECK(std::abs(bandwidth.value - 1.03) <= *bandwidth.standard_error);
    CHECK(fit.typical_error < 0.012);
    // Tens of megabytes at 1 GB/s hide 25 us of latency.
    CHECK_FALSE(parameter(fit, "latency_us").is_fitted);
    CHECK(parameter(fit, "latency_us").value == 25.0);
    CHECK(fit.warnings.size() == 1);
}

TEST_CASE("known parameters are found again from exact times, on 20 machines") {
    const Scenario scenario = synthetic_scenario();
    std::mt19937 random(11);
    std::uniform_real_distribution<double> log_factor(std::log(0.5), std::log(2.0));
    for (int round = 0; round < machines; ++round) {
        const double computing = std::exp(log_factor(random));
        const double bandwidth = std::exp(log_factor(random));
        // High enough that some bucket pays for it.
        const double latency = 8 * std::exp(log_factor(random));
        ObservedSteps observed{
            .file = "steps.csv",
            .scenario = scenario,
            .part = ObservedPart::step,
            .steps = steps_of_machine(scenario, computing, bandwidth, latency, synthetic_caps())};
        const InverseFit fit = fit_to_steps({observed});
        CHECK(fit.computing_factor == Approx(computing).epsilon(0.005));
        CHECK(parameter(fit, "bandwidth_gb_per_s").value == Approx(0.2 * bandwidth).epsilon(0.005));
        CHECK(parameter(fit, "latency_us").is_fitted);
        CHECK(parameter(fit, "latency_us").value == Approx(150 * latency).epsilon(0.05));
        CHECK(fit.typical_error < 1e-3);
    }
}

TEST_CASE("each of many rows has the time of its own cap, whatever caps give the same plan") {
    const Scenario scenario = synthetic_scenario();
    std::mt19937 random(13);
    std::vector<Bytes> caps;
    for (int i = 0; i < 300; ++i) {
        caps.push_back({std::uniform_int_distribution<std::int64_t>(1, 60'000'000)(random)});
    }
    const ObservedSteps observed{.file = "steps.csv",
                                 .scenario = scenario,
                                 .part = ObservedPart::step,
                                 .steps = steps_of_machine(scenario, 1.3, 0.7, 8, caps)};
    std::vector<double> shares;
    const InverseFit fit = fit_to_steps({observed}, [&](double done) { shares.push_back(done); });
    // Steps of these plans differ by up to a half, and the fit is exact to some thousandths.
    for (const FittedStep& step : fit.steps) {
        CHECK(step.fitted_ms == Approx(step.observed.ms).epsilon(0.003));
    }
    CHECK(std::is_sorted(shares.begin(), shares.end()));
    CHECK((shares.front() > 0 && shares.back() < 1));
}

TEST_CASE("a link fitted to steps states what they do not tell, no more what the scenario's did") {
    Scenario scenario = synthetic_scenario();
    scenario.link.caveats = {{.text = "a placeholder", .withholds = true}};
    ObservedSteps observed{.file = "steps.csv",
                           .scenario = scenario,
                           .part = ObservedPart::step,
                           .steps = steps_of_machine(scenario, 1.3, 0.7, 8, synthetic_caps())};
    CHECK(fit_to_steps({observed}).link.caveats.empty());
    observed.steps.resize(2);  // for three unknowns
    const InverseFit fit = fit_to_steps({observed});
    REQUIRE(fit.link.caveats.size() == fit.warnings.size());
    CHECK(fit.link.caveats.front() == Caveat{.text = fit.warnings.front()});
}

TEST_CASE("under 1 % noise known parameters lie within three standard errors, on 20 machines") {
    const Scenario scenario = synthetic_scenario();
    std::mt19937 random(12);
    std::normal_distribution<double> normal;
    int within = 0;
    int fitted = 0;
    for (int round = 0; round < machines; ++round) {
        ObservedSteps observed{.file = "steps.csv",
                               .scenario = scenario,
                               .part = ObservedPart::step,
                               .steps = steps_of_machine(scenario, 1.3, 0.7, 8, synthetic_caps())};
        for (ObservedStep& step : observed.steps) {
            step.ms *= 1 + 0.01 * normal(random);
        }
        const InverseFit fit = fit_to_steps({observed});
        const FittedParameter& bandwidth = parameter(fit, "bandwidth_gb_per_s");
        CHECK(bandwidth.value > 0);
        if (!bandwidth.is_fitted) {
            continue;  // it says that it cannot tell
        }
        ++fitted;
        REQUIRE(bandwidth.standard_error);
        within += std::abs(bandwidth.value - 0.14) <= 3 * *bandwidth.standard_error ? 1 : 0;
    }
    CHECK(fitted >= 0.75 * machines);
    // Standard errors are linear, and steps have kinks: not quite the 99.7 % of a straight line.
    CHECK(within >= 0.75 * fitted);
}

TEST_CASE("from two rows it says what is not identifiable") {
    ObservedSteps observed = published("async");
    observed.steps = {observed.steps.front(), observed.steps.back()};
    const InverseFit fit = fit_to_steps({observed});
    CHECK_FALSE(parameter(fit, "latency_us").is_fitted);
    REQUIRE(fit.warnings.size() == 2);
    CHECK(fit.warnings[0].find("latency_us is not identifiable") == 0);
    CHECK(fit.warnings[1].find("is unknown") != std::string::npos);
    CHECK_FALSE(parameter(fit, "bandwidth_gb_per_s").standard_error);
    CHECK_FALSE(fit.link.segments.front().errors);
}

TEST_CASE("where communication is hidden its bandwidth is not identifiable") {
    const Scenario scenario = synthetic_scenario();
    // A hundred times the bandwidth: a few milliseconds of communication behind a long backward.
    ObservedSteps observed{
        .file = "steps.csv", .scenario = scenario, .part = ObservedPart::step, .steps = {}};
    std::mt19937 random(13);
    std::normal_distribution<double> normal;
    for (const Bytes cap : {Bytes{200'000}, Bytes{300'000}, Bytes{400'000}, Bytes{500'000}}) {
        const double ms = steps_of_machine(scenario, 1, 1000, 0.001, {cap}).front().ms;
        observed.steps.push_back({cap, ms * (1 + 0.01 * normal(random))});
    }
    const InverseFit fit = fit_to_steps({observed});
    CHECK_FALSE(parameter(fit, "bandwidth_gb_per_s").is_fitted);
    CHECK(parameter(fit, "forward_and_backward_ms").is_fitted);
}

TEST_CASE("the fitted scenario predicts what was observed") {
    const Scenario scenario = synthetic_scenario();
    const ObservedSteps observed{
        .file = "steps.csv",
        .scenario = scenario,
        .part = ObservedPart::step,
        .steps = steps_of_machine(scenario, 1.4, 0.6, 1, synthetic_caps())};
    const InverseFit fit = fit_to_steps({observed});
    const Json document =
        fitted_scenario(Json::parse(synthetic_document()), scenario, ObservedPart::step, fit);
    const Scenario fitted =
        parse_scenario(document, "fitted.json", [](const std::string& path) { return path; });
    const StepInput input = step_input(fitted);
    Evaluator evaluator(input, fitted.sync);
    for (const ObservedStep& step : observed.steps) {
        CHECK(to_ms(evaluator.evaluate(step.cap).times.step()) == Approx(step.ms).epsilon(0.002));
    }
}

TEST_CASE("a fitted scenario keeps what its device's host takes to launch") {
    for (const bool host_is_device : {false, true}) {
        Json document = Json::parse(synthetic_document());
        document["workload"]["device"]["launch_us"] = 300;
        document["workload"]["device"]["host_is_device"] = host_is_device;
        const Scenario scenario = synthetic_scenario(document.dump());
        const ObservedSteps observed{
            .file = "steps.csv",
            .scenario = scenario,
            .part = ObservedPart::step,
            .steps = steps_of_machine(scenario, 1.4, 0.6, 1, synthetic_caps())};
        const InverseFit fit = fit_to_steps({observed});
        CHECK(fit.warnings.empty());
        const Scenario fitted =
            synthetic_scenario(fitted_scenario(document, scenario, ObservedPart::step, fit).dump());
        const StepInput input = step_input(fitted);
        CHECK(input.workload.forward.front().host ==
              (host_is_device ? Duration{0} : duration_from_us(300)));
        Evaluator evaluator(input, fitted.sync);
        for (const ObservedStep& step : observed.steps) {
            // Where the host is the device, launching has become part of what collectives slow by
            // a quarter: up to 2 % of this step.
            CHECK(to_ms(evaluator.evaluate(step.cap).times.step()) ==
                  Approx(step.ms).epsilon(host_is_device ? 0.02 : 0.002));
        }
    }
}

TEST_CASE("observations that cannot be fitted are refused") {
    ObservedSteps one{.file = "steps.csv",
                      .scenario = synthetic_scenario(),
                      .part = ObservedPart::step,
                      .steps = {{Bytes{1 << 20}, 100.0}}};
    CHECK_THROWS_AS(fit_to_steps({one}), InputError);
    ObservedSteps other = one;
    other.scenario.link.launch = duration_from_us(1);
    CHECK_THROWS_AS(fit_to_steps({one, other}), InputError);
    other = one;
    other.scenario.sync.strategy = Strategy::naive;
    other.steps.push_back({Bytes{1 << 21}, 100.0});
    CHECK_THROWS_AS(fit_to_steps({other}), InputError);
}

}  // namespace
}  // namespace bucketwise
