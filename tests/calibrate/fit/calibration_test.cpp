#include "calibrate/fit/calibration.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "calibrate/comparison/step_comparison.h"
#include "sim/base/error.h"
#include "sim/base/transformed.h"
#include "sim/link/assumed_interference.h"
#include "sim/link/link_input.h"
#include "tests/calibrate/fit/synthetic_run.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

std::string no_files(const std::string& path) {
    throw InputError(path, "", "no file", "one");
}

Comparison compared(const Scenario& scenario, const MeasuredRun& run) {
    const StepInput input = step_input(scenario);
    return compare_steps(scenario, run, predict(input, scenario.sync, {}, [](double) {}));
}

Scenario calibrated(const Calibration& calibration) {
    const Json document = calibrated_scenario(Json::parse(synthetic_document()), calibration);
    return parse_scenario(document, "calibrated.json", no_files);
}

const Cause& cause_named(const SettingComparison& point, std::string_view name) {
    for (const Cause& cause : point.attribution.causes) {
        if (cause.name == name) {
            return cause;
        }
    }
    FAIL("no such cause");
    return point.attribution.causes.front();
}

// Steps of another machine beside what was measured of the first in isolation.
Comparison compare_with(const std::string& other_document) {
    SyntheticMachine machine(synthetic_scenario(), {});
    SyntheticMachine other(synthetic_scenario(other_document), {});
    const MeasuredRun run =
        collect_run(concatenated({synthetic_records(machine, synthetic_document(), {3, 3, 3}),
                                  other.steps(3, synthetic_caps())}),
                    false, "mixed.jsonl");
    return compared(calibrated(calibrate({run}, synthetic_scenario())), run);
}

std::string replaced(const std::string& from, const std::string& to) {
    std::string text = synthetic_document();
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
}

TEST_CASE("a machine without noise is found again, and its steps predicted exactly") {
    const MeasuredRun run = synthetic_run({});
    const Calibration calibration = calibrate({run}, synthetic_scenario());
    const Scenario truth = synthetic_scenario();
    REQUIRE(calibration.link.segments.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
        CHECK(to_us(calibration.link.segments[i].latency) ==
              Approx(to_us(truth.link.segments[i].latency)).epsilon(1e-3));
        CHECK(static_cast<double>(calibration.link.segments[i].bandwidth.count) ==
              Approx(static_cast<double>(truth.link.segments[i].bandwidth.count)).epsilon(1e-3));
    }
    REQUIRE(calibration.link.interference.size() == 1);
    CHECK(calibration.link.interference[0].slowdown == Interference{1'250'000, 1'100'000});
    CHECK(static_cast<double>(calibration.link.copy_bandwidth->count) == Approx(4e9).epsilon(1e-3));

    const Comparison comparison = compared(calibrated(calibration), run);
    CHECK(comparison.points.size() == 13);
    CHECK(comparison.max_error < 1e-3);
    CHECK(comparison.regret == 0);
    CHECK(comparison.rank_correlation > 0.99);
    CHECK(comparison.noise_floor == 0);
    CHECK(comparison.default_point.has_value());
    for (const SettingComparison& point : comparison.points) {
        for (const Cause& cause : point.attribution.causes) {
            CHECK(std::abs(cause.ms) < 2e-3 * point.measured_ms);
        }
    }
}

MeasuredRun synthetic_gpu_run(bool shared_gpu = false) {
    SyntheticMachine machine(synthetic_scenario(synthetic_gpu_document()), {});
    std::vector<Measurement> records =
        synthetic_records(machine, synthetic_gpu_document(), {6, 6, 6, 6});
    for (Measurement& record : records) {
        std::visit(
            [&](auto& r) {
                if constexpr (std::is_same_v<std::decay_t<decltype(r)>, ComputeRecord>) {
                    r.shared_gpu = shared_gpu;
                } else {
                    r.transport.shared_gpu = shared_gpu;
                }
            },
            record);
    }
    return collect_run(records, false, "gpu.jsonl");
}

double step_ms_of(const Scenario& scenario) {
    const StepInput input = step_input(scenario);
    return to_ms(Evaluator(input, scenario.sync).evaluate(std::nullopt).times.step());
}

TEST_CASE("a GPU's launches and slowdowns by thread blocks are found again, and its steps") {
    const MeasuredRun run = synthetic_gpu_run();
    const Scenario truth = synthetic_scenario(synthetic_gpu_document());
    const Calibration calibration = calibrate({run}, truth);
    CHECK(calibration.link.host_issue == duration_from_us(50));
    CHECK(calibration.link.ctas == 4);
    REQUIRE(calibration.link.interference.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
        REQUIRE(calibration.link.interference[i].computing);
        CHECK(calibration.link.interference[i].ctas == truth.link.interference[i].ctas);
        CHECK(calibration.link.interference[i].slowdown == truth.link.interference[i].slowdown);
    }
    CHECK(static_cast<double>(calibration.link.copy_bandwidth->count) == Approx(4e9).epsilon(1e-3));
    REQUIRE(calibration.compute);
    CHECK(calibration.compute->launch == HostCost{duration_from_us(1000), 0});
    CHECK(calibration.compute->graph_launch == HostCost{duration_from_us(700), 0});
    REQUIRE(calibration.device);
    CHECK(calibration.device->device.launch == duration_from_us(1000));

    const Json document = calibrated_scenario(Json::parse(synthetic_gpu_document()), calibration);
    CHECK(document["workload"]["device"]["host_is_device"] == false);
    Scenario fitted = parse_scenario(document, "calibrated.json", no_files);
    const Comparison comparison = compared(fitted, run);
    CHECK(comparison.max_error < 1e-3);
    CHECK(comparison.rank_correlation > 0.99);
    // Launching binds part of that step, so what operations take without it is known, too: the
    // step as one CUDA graph, and with other thread blocks, which were never measured.
    Scenario other = truth;
    CHECK(step_ms_of(fitted) == Approx(step_ms_of(other)).epsilon(1e-3));
    for (const std::int64_t ctas : {2, 3, 6, 8}) {
        fitted.link.ctas = other.link.ctas = ctas;
        CHECK(step_ms_of(fitted) == Approx(step_ms_of(other)).epsilon(1e-3));
    }
    const double eager_ms = step_ms_of(other);
    fitted.step.cuda_graph = other.step.cuda_graph = true;
    CHECK(step_ms_of(other) < 0.99 * eager_ms);
    CHECK(step_ms_of(fitted) == Approx(step_ms_of(other)).epsilon(1e-3));
}

TEST_CASE("the report tells what the host takes, and matrix products from the rest") {
    const Calibration calibration =
        calibrate({synthetic_gpu_run()}, synthetic_scenario(synthetic_gpu_document()));
    // With 4 CTAs 1000 us take 1200: products 955.6 x 1.1, and the rest 148.9 for 44.4.
    const InterferencePoint& four = calibration.interference.points[3];
    CHECK(four.ctas == 4);
    CHECK(four.apart.products.value() == Approx(1.1));
    CHECK(four.apart.rest.value() == Approx(5.65).epsilon(1e-3));
    const std::string report = calibration_report(calibration);
    INFO(report);
    for (const char* text :
         {"issuing one takes the host 50.00 us (interquartile range 0 %)",
          "launching an operation takes the host 1000.00 us",
          "launching the step as one CUDA graph takes it 700.00 us",
          "  4 CTAs  compute 1.200 ± 0.005  all-reduce 1.200 ± 0.005  matrix products 1.100  other "
          "operations 5.650",
          "used: those of collectives of 4 CTAs"}) {
        CHECK(report.find(text) != std::string::npos);
    }
    const Json json = fit_json(calibration);
    CHECK(json["host"]["launch"]["median_us"] == 1000.0);
    CHECK(json["interference"][3]["ctas"] == 4);
    CHECK(calibration.link.provenance.hardware.find("synthetic GPU, 1 GiB; synthetic CPU") == 0);
    CHECK(calibration.link.name == "nccl within one host, measured");
}

// Contention of one size and round; of a skewed link when `alone` is not even.
std::vector<ContentionRecord> contention_of(const std::vector<double>& alone,
                                            const std::vector<double>& disturbed) {
    ContentionRecord record;
    record.transport.backend = "nccl";
    record.size = {1 << 20};
    record.allreduce_alone_us = alone;
    record.allreduce_disturbed_us = disturbed;
    record.compute_alone_us = record.compute_disturbed_us = {1000, 1000};
    return {record};
}

TEST_CASE("a link whose times are skewed alone as much as beside computing is not slowed") {
    // Mean 20 both times, medians 10.
    const InterferenceFit fit = fit_interference(
        contention_of({10, 10, 10, 10, 60}, {60, 10, 10, 10, 10, 60, 10, 10, 10, 10}));
    REQUIRE(fit.segments.size() == 1);
    CHECK(fit.segments[0].slowdown == Interference{});
    // Means 20 and 30, medians 10 and 10.
    CHECK(fit_interference(contention_of({10, 10, 10, 10, 60}, {10, 10, 10, 10, 110}))
              .segments[0]
              .slowdown.communication_slowdown_ppm == 1'500'000);
}

// 1 MiB takes 10 us on the link, and 15 in contention runs.
TEST_CASE("collectives are slowed against the link's time, and added time is linear in the size") {
    std::vector<ContentionRecord> records = contention_of({15}, {20});
    records.push_back(contention_of({50}, {46}).front());
    records.back().size = {4 << 20};
    const auto slowdowns = [&](const TimeAlone& alone_us) {
        return transformed(fit_interference(records, {}, alone_us).segments,
                           [](const InterferenceSegment& segment) {
                               return segment.slowdown.communication_slowdown_ppm;
                           });
    };
    const auto on_link = [](Bytes size) { return 10.0 * to_mib(size); };
    // They add 10 and 6 us: 10 - 4 / 3 to the 20 us of 2 MiB.
    CHECK(slowdowns(on_link) == std::vector<std::int64_t>{2'000'000, 1'433'333, 1'150'000});
    // Without a link: 20 / 15, and no less than 1.
    CHECK(slowdowns({}) == std::vector<std::int64_t>{1'333'333, 1'126'667, 1'000'000});
}

TEST_CASE("contention that shows no slowdown is written, so that none is assumed") {
    LinkParameters link;
    link.provenance.backend = "nccl";
    CHECK(lacks_interference(link));
    link.interference = fit_interference(contention_of({10}, {10})).segments;
    CHECK(link_json(link)["interference"]["compute_slowdown"] == 1.0);
    CHECK_FALSE(lacks_interference(link));
}

TEST_CASE("without contention measured, GPUs are assumed to disturb, and CPUs are not") {
    const auto warning = [](const char* document) {
        const Calibration calibration =
            calibrate({synthetic_run_of(document, {1, 1})}, synthetic_scenario(document));
        CHECK_FALSE(link_json(calibration.link).contains("interference"));
        return calibration.warnings.back();
    };
    CHECK(warning(synthetic_gpu_document()).find("is assumed in predictions") != std::string::npos);
    CHECK(warning(synthetic_document()).find("are assumed not to slow each other") !=
          std::string::npos);
}

TEST_CASE("what is weak in a link is stated in its file, and nothing in a good one's") {
    CHECK(calibrate({synthetic_run({})}, synthetic_scenario()).link.caveats.empty());
    CHECK_FALSE(
        link_json(calibrate({synthetic_run({})}, synthetic_scenario()).link).contains("caveats"));
    SyntheticMachine machine(synthetic_scenario(), {});
    const MeasuredRun alone = collect_run(machine.all_reduces(1), false, "alone.jsonl");
    const LinkParameters link = calibrate({alone}, std::nullopt).link;
    REQUIRE(link.caveats.size() == 1);
    CHECK(link.caveats.front().text.find("no contention was measured") == 0);
    CHECK_FALSE(link.caveats.front().withholds);
    const Json json = link_json(link);
    CHECK(read_link({&json, "link.json", ""}, no_files) == link);
}

TEST_CASE("an all-reduce's single sample and few sizes are stated in the link") {
    SyntheticMachine machine(synthetic_scenario(), {});
    std::vector<Measurement> few;
    for (Measurement& record : machine.all_reduces(1)) {
        auto& all_reduce = std::get<CollectiveRecord>(record);
        all_reduce.samples_us.resize(1);
        if (few.size() < 3) {
            few.push_back(record);
        }
    }
    const LinkParameters link =
        calibrate({collect_run(few, false, "few.jsonl")}, std::nullopt).link;
    REQUIRE(link.caveats.size() == 4);
    CHECK(link.caveats[0].text.find("of 1024 bytes and perhaps others there is a single") == 0);
    CHECK(link.caveats[1].text.find("only 3 different sizes") == 0);
    // 1,024 to 4,096 bytes are less than 16 times apart.
    CHECK(link.caveats[2].text.find("sizes from 1024 to 4096 bytes only") == 0);
}

TEST_CASE("a scenario states that its computing was measured in few rounds") {
    const auto caveats_of_rounds = [&](int rounds) {
        const MeasuredRun run = synthetic_run_of(synthetic_document(), {1, rounds});
        return calibrated(calibrate({run}, synthetic_scenario())).caveats;
    };
    CHECK(caveats_of_rounds(2) ==
          std::vector<Caveat>{{.text = "computing was measured in 2 rounds only"}});
    CHECK(caveats_of_rounds(3).empty());
}

TEST_CASE("matrix products and the rest measured apart mix to what both together were") {
    ContentionRecord record = contention_of({10}, {10}).front();
    const auto fitted = [&] { return fit_interference({record}).segments.front(); };
    CHECK_FALSE(fitted().computing);
    // Products are 1200 of 2000 us: 1200 become 1320, the other 800 become 1080.
    record.products_alone_us = {600, 600};
    record.products_disturbed_us = {660, 660};
    record.compute_disturbed_us = {1200, 1200};
    CHECK(fitted().computing == SlowdownsOfComputing{1'100'000, 1'350'000});
    CHECK(fitted().slowdown.compute_slowdown_ppm == 1'200'000);
    LinkParameters mixed;
    mixed.interference = {fitted()};
    set_product_share(0.6, mixed);
    CHECK(mixed.interference.front().slowdown.compute_slowdown_ppm == 1'200'000);
    // One of two more rounds was interrupted for 1200 us in products, which median and mixture
    // leave out: over the three rounds 1.1 + 1/3 to 1.35, together 1.4, by 1.2 / 1.4.
    ContentionRecord interrupted = record;
    interrupted.products_disturbed_us[0] += 1200;
    interrupted.compute_disturbed_us[0] += 1200;
    const InterferenceSegment robust =
        fit_interference({record, interrupted, record}).segments.front();
    CHECK(robust.slowdown.compute_slowdown_ppm == 1'200'000);
    CHECK(robust.computing == SlowdownsOfComputing{1'228'571, 1'157'143});
    // Products only: what the rest would be slowed is not known.
    record.products_alone_us = record.compute_alone_us;
    record.products_disturbed_us = record.compute_disturbed_us;
    CHECK_FALSE(fitted().computing);
}

TEST_CASE("several ranks on one GPU are never called an interconnect") {
    const MeasuredRun run = synthetic_gpu_run(true);
    const Calibration calibration = calibrate({run}, synthetic_scenario(synthetic_gpu_document()));
    CHECK(calibration.link.name == "nccl measured, shared GPU, not an interconnect");
    CHECK(calibration.link.caveats.front() ==
          Caveat{.text = std::string(shared_gpu_warning), .withholds = true});
    CHECK(calibration_report(calibration).find("several ranks ran on one GPU") !=
          std::string::npos);
    const Scenario fitted =
        parse_scenario(calibrated_scenario(Json::parse(synthetic_gpu_document()), calibration),
                       "c.json", no_files);
    const Comparison comparison = compared(fitted, run);
    CHECK(comparison.machine.find("2 ranks of one shared GPU") != std::string::npos);
    const std::string verdict = verdict_text(comparison);
    INFO(verdict);
    CHECK(verdict.starts_with("Do not rely on this: "));
    CHECK(verdict.find("several ranks ran on one GPU") != std::string::npos);
    CHECK(to_json(comparison)["shared_gpu"] == true);
    CHECK_FALSE(to_json(compared(fitted, synthetic_gpu_run())).contains("shared_gpu"));
}

// As when `compare` gives the measured times to a scenario that knows its computing from a device.
TEST_CASE("what launching took goes into the scenario's own device, or is taken out of it") {
    Json document = Json::parse(synthetic_gpu_document());
    document["workload"]["device"] = "H100";
    ComputeFit compute =
        *fit_compute(synthetic_gpu_run(), synthetic_scenario(synthetic_gpu_document()));
    const auto device = [&] {
        return with_measured_computing(document, compute)["workload"]["device"];
    };
    CHECK(device() == Json{{"preset", "H100"},
                           {"host_is_device", false},
                           {"launch_us", 1000.0},
                           {"graph_launch_us", 700.0}});
    // On a CPU launching is in the times of operations: a GPU's preset would add it once more.
    compute.launch.reset();
    compute.graph_launch.reset();
    document["step"]["cuda_graph"] = true;
    CHECK(device() == Json{{"preset", "H100"}, {"host_is_device", true}, {"launch_us", 0.0}});
    CHECK_FALSE(with_measured_computing(document, compute)["step"].contains("cuda_graph"));
    document["workload"]["device"] = {{"preset", "H100"}, {"launch_us", 0}};
    CHECK(device() == document["workload"]["device"]);
}

TEST_CASE("under noise the prediction stays within it") {
    const MeasuredRun run =
        synthetic_run({.compute = 0.05, .all_reduce = 0.05, .step = 0.02, .seed = 7}, 10);
    const Calibration calibration = calibrate({run}, synthetic_scenario());
    const Comparison comparison = compared(calibrated(calibration), run);
    CHECK(comparison.mape < 0.02);
    CHECK(error_verdict(comparison) == Verdict::held);
    CHECK(decision_verdict(comparison) == Verdict::held);
    // Nearly every measured median lies within the interval of single steps.
    int within = 0;
    for (const SettingComparison& point : comparison.points) {
        const auto& confidence = point.predicted.confidence;
        REQUIRE(confidence);
        within += to_ms(confidence->interval->low) <= point.measured_ms &&
                          point.measured_ms <= to_ms(confidence->interval->high)
                      ? 1
                      : 0;
    }
    CHECK(within >= 11);
}

TEST_CASE("causes sum to the error") {
    const Comparison comparison =
        compare_with(replaced("\"latency_us\": 150, \"bandwidth_gb_per_s\": 0.2",
                              "\"latency_us\": 250, \"bandwidth_gb_per_s\": 0.15"));
    for (const SettingComparison& point : comparison.points) {
        double sum = 0;
        for (const Cause& cause : point.attribution.causes) {
            sum += cause.ms;
        }
        CHECK(sum == Approx(point.measured_ms - point.predicted_ms).margin(1e-6));
    }
}

TEST_CASE("slower all-reduces within steps are called interference on all-reduces") {
    const Comparison comparison = compare_with(
        replaced("\"communication_slowdown\": 1.1", "\"communication_slowdown\": 1.6"));
    for (const SettingComparison& point : comparison.points) {
        const double error_ms = point.measured_ms - point.predicted_ms;
        if (error_ms > 0.02 * point.predicted_ms) {
            // Longer all-reduces also disturb computing for longer.
            CHECK(cause_named(point, "interference on all-reduces").ms +
                      cause_named(point, "interference on computing").ms >
                  0.8 * error_ms);
        }
    }
    CHECK(comparison.max_error > 0.02);
}

TEST_CASE("a machine that got slower between its own measurement and the steps is called drift") {
    const Comparison comparison =
        compare_with(replaced("\"peak_tflop_per_s\": { \"float32\": 0.01 }",
                              "\"peak_tflop_per_s\": { \"float32\": 0.008 }"));
    const SettingComparison& last = comparison.points.back();
    const double error_ms = last.measured_ms - last.predicted_ms;
    CHECK(error_ms > 0);
    CHECK(cause_named(last, "drift, copies and launches").ms == Approx(error_ms).epsilon(0.25));
}

TEST_CASE("computing that is disturbed more than in isolation is interference on computing") {
    const Comparison comparison =
        compare_with(replaced("\"compute_slowdown\": 1.25", "\"compute_slowdown\": 1.7"));
    double explained = 0;
    double errors = 0;
    for (const SettingComparison& point : comparison.points) {
        explained += cause_named(point, "interference on computing").ms;
        errors += point.measured_ms - point.predicted_ms;
    }
    CHECK(errors > 0);
    CHECK(explained == Approx(errors).epsilon(0.3));
}

TEST_CASE("twice the bandwidth, no latency and free communication never take longer") {
    const Comparison comparison = compare_with(synthetic_document());
    REQUIRE(comparison.what_if.size() == 5);
    for (const ChangedMachine& what : comparison.what_if) {
        CHECK(what.step_ms <= comparison.what_if.front().step_ms);
    }
    CHECK(comparison.what_if.back().step_ms < comparison.what_if[1].step_ms);
}

TEST_CASE("the device behind the operations' times is found") {
    const Calibration calibration = calibrate({synthetic_run({})}, synthetic_scenario());
    REQUIRE(calibration.device);
    CHECK(calibration.device->device.peak(Arithmetic::float32) == Approx(0.01).epsilon(0.01));
    CHECK(static_cast<double>(calibration.device->device.memory_bandwidth.count) ==
          Approx(8e9).epsilon(0.01));
    CHECK(calibration.device->typical_residual < 0.01);
}

TEST_CASE("runs on 2 and 4 ranks make one link") {
    SyntheticMachine machine(synthetic_scenario(), {});
    const MeasuredRun two = collect_run(machine.all_reduces(2), false, "two.jsonl");
    const MeasuredRun four = collect_run(machine.all_reduces(2, 4), false, "four.jsonl");
    const Calibration both = calibrate({two, four}, std::nullopt);
    CHECK(both.link_fit.residuals.size() == 30);
    CHECK(both.link.provenance.ranks == 4);
    for (const LinkResidual& residual : both.link_fit.residuals) {
        CHECK(std::abs(residual.relative()) < 0.01);
    }
    CHECK_FALSE(both.compute);
}

TEST_CASE("a benchmark's file may hold several numbers of ranks, but one algorithm only") {
    SyntheticMachine machine(synthetic_scenario(), {});
    // Each number of ranks after an environment of its own.
    std::vector<Measurement> four = machine.environment("");
    std::get<EnvironmentRecord>(four.front()).transport.ranks = 4;
    std::vector<Measurement> records = concatenated(
        {machine.environment(""), machine.all_reduces(2), four, machine.all_reduces(2, 4)});
    const Calibration both = calibrate({collect_run(records, false, "bench.jsonl")}, std::nullopt);
    CHECK(both.link_fit.residuals.size() == 30);
    std::get<CollectiveRecord>(records.back()).transport.algorithm = "direct";
    CHECK_THROWS_AS(collect_run(records, false, "bench.jsonl"), InputError);
}

// All-gathers take half as long for each step, reduce-scatters have their own bandwidth, too.
Scenario with_own_numbers() {
    Json document = Json::parse(synthetic_document());
    Json& link = document["cluster"]["link"];
    link["all_gather"] = {
        {"launch_us", 12},
        {"segments", {{{"latency_us", 30}, {"bandwidth_gb_per_s", 0.3}}}},
        {"interference", {{"compute_slowdown", 1.5}, {"communication_slowdown", 1.25}}}};
    link["reduce_scatter"] = {{"segments", {{{"latency_us", 80}, {"bandwidth_gb_per_s", 0.1}}}}};
    return synthetic_scenario(document.dump());
}

void check_segment(const std::vector<Segment>& segments, double latency_us, double gb_per_s) {
    REQUIRE(segments.size() == 1);
    CHECK(to_us(segments[0].latency) == Approx(latency_us).epsilon(1e-3));
    CHECK(to_gb_per_s(segments[0].bandwidth) == Approx(gb_per_s).epsilon(1e-3));
    CHECK(segments[0].errors.has_value());
}

TEST_CASE("what all-gathers and reduce-scatters cost and disturb of their own is found again") {
    SyntheticMachine machine(with_own_numbers(), {});
    const auto gathers = CollectiveKind::all_gather;
    const auto scatters = CollectiveKind::reduce_scatter;
    std::vector<Measurement> records = concatenated({machine.environment("")});
    for (const std::int64_t ranks : {2, 4}) {
        records = concatenated(
            {records, machine.all_reduces(3, ranks), machine.collectives(gathers, 3, ranks)});
    }
    // On one number of ranks, which does not separate launching from latency.
    records = concatenated({records, machine.collectives(scatters, 3)});
    // Contention is of the first number of ranks.
    records = concatenated({records, machine.contentions(3), machine.contentions(3, gathers)});
    const Calibration calibration =
        calibrate({collect_run(records, false, "own.jsonl")}, std::nullopt);
    const LinkParameters& link = calibration.link;
    CHECK(link.segments.size() == 2);
    check_segment(link.all_gather.segments, 30, 0.3);
    CHECK(to_us(link.all_gather.launch) == Approx(12).epsilon(1e-3));
    check_segment(link.reduce_scatter.segments, 80, 0.1);
    CHECK(link.reduce_scatter.launch == Duration{0});
    CHECK(interference_for(CollectiveKind::all_reduce, link, {1 << 20}) ==
          Interference{1'250'000, 1'100'000});
    CHECK(interference_for(gathers, link, {1 << 20}) == Interference{1'500'000, 1'250'000});
    CHECK(link.reduce_scatter.interference.empty());
    const std::string report = calibration_report(calibration);
    CHECK(report.find("all-gathers, by their own steps and bytes") != std::string::npos);
    CHECK(report.find("all-gather 1.250") != std::string::npos);
    const Json fit = fit_json(calibration);
    CHECK(fit["all_gather"].size() == 30);
    CHECK(fit["reduce_scatter"].size() == 15);
    CHECK(fit["interference"].back()["collective"] == "all-gather");
    const Json json = Json::parse(link_json(link).dump());
    CHECK(read_link({&json, "link.json", ""}, no_files) == link);
}

TEST_CASE("without all-reduces the link is what all others say together, and states that") {
    Json document = Json::parse(synthetic_document());
    document["cluster"]["link"]["segments"] = {{{"latency_us", 40}, {"bandwidth_gb_per_s", 0.3}}};
    SyntheticMachine machine(synthetic_scenario(document.dump()), {});
    const std::vector<Measurement> records =
        concatenated({machine.environment(""), machine.collectives(CollectiveKind::all_gather, 2),
                      machine.collectives(CollectiveKind::reduce_scatter, 2)});
    const auto calibrated_with = [&](const std::vector<Measurement>& more) {
        return calibrate({collect_run(concatenated({records, more}), false, "halves.jsonl")},
                         std::nullopt);
    };
    const Calibration calibration = calibrated_with({});
    // A step of either takes what a step of an all-reduce takes.
    check_segment(calibration.link.segments, 40, 0.3);
    check_segment(calibration.link.all_gather.segments, 40, 0.3);
    CHECK(calibration.link.provenance.samples == 2 * 2 * 15 * 5);
    REQUIRE_FALSE(calibration.link.caveats.empty());
    CHECK(calibration.link.caveats.front().text.find("no all-reduces were measured") == 0);
    CHECK(calibration.link.caveats.back().text.find("no contention was measured") == 0);
    CHECK(fit_json(calibration)["all_reduce"].empty());
    const Calibration with_contention =
        calibrated_with(machine.contentions(2, CollectiveKind::all_gather));
    CHECK(with_contention.link.caveats.size() + 1 == calibration.link.caveats.size());
    CHECK(with_contention.link.caveats.front() == calibration.link.caveats.front());
}

TEST_CASE("kinds may be carried out by others, one kind by one only") {
    SyntheticMachine machine(synthetic_scenario(), {});
    const MeasuredRun all_reduces = collect_run(machine.all_reduces(1), false, "reduce.jsonl");
    std::vector<Measurement> gathers = machine.collectives(CollectiveKind::all_gather, 1);
    const MeasuredRun library = collect_run(gathers, false, "library.jsonl");
    for (Measurement& record : gathers) {
        std::get<CollectiveRecord>(record).transport.implementation = "bucketwise";
        // Nothing is summed, so any type will do.
        std::get<CollectiveRecord>(record).dtype = DType::bfloat16;
    }
    const MeasuredRun ours = collect_run(gathers, false, "ours.jsonl");
    CHECK(calibrate({all_reduces, ours}, std::nullopt).link.all_gather.segments.size() == 2);
    CHECK_THROWS_AS(calibrate({all_reduces, library, ours}, std::nullopt), InputError);
}

TEST_CASE("links of different machines are not fitted together") {
    SyntheticMachine machine(synthetic_scenario(), {});
    std::vector<Measurement> other = machine.all_reduces(1, 4);
    for (Measurement& record : other) {
        std::get<CollectiveRecord>(record).transport.implementation = "bucketwise";
    }
    const MeasuredRun two = collect_run(machine.all_reduces(1), false, "two.jsonl");
    const MeasuredRun four = collect_run(other, false, "four.jsonl");
    CHECK_THROWS_AS(calibrate({two, four}, std::nullopt), InputError);
}

TEST_CASE("a link file reads back as it was written") {
    LinkParameters link =
        calibrate({synthetic_run({.all_reduce = 0.05})}, synthetic_scenario()).link;
    link.interference = {
        {.up_to = Bytes{1000}, .slowdown = {1'100'000, 1'200'000}},
        {.slowdown = {1'000'000, 2'000'000}, .errors = InterferenceErrors{0.1, 0.2}}};
    const auto reread = [&] {
        const Json json = Json::parse(link_json(link).dump());
        return read_link({&json, "link.json", ""}, no_files);
    };
    CHECK(reread() == link);
    link.interference.back().computing = {1'100'000, 1'500'000};
    CHECK(reread() == link);
    link.ctas = 6;
    link.interference = {
        {.up_to = Bytes{1000}, .slowdown = {1'100'000, 1'200'000}, .ctas = 4},
        {.slowdown = {1'000'000, 2'000'000}, .errors = InterferenceErrors{0.1, 0.2}, .ctas = 4},
        {.slowdown = {1'300'000, 1'400'000}, .ctas = 8}};
    CHECK(reread() == link);
    link.interference.erase(link.interference.begin(), link.interference.begin() + 2);
    CHECK(reread() == link);
    link.provenance.source = std::string(300, 'x');
    CHECK(link_json(link)["provenance"]["source"].get<std::string>().size() == 200);
}

// Steps of stage 3, whose parameters are all small ones.
MeasuredRun run_of_stage_3(double copies_us) {
    SyntheticMachine machine(synthetic_scenario(), {});
    std::vector<Measurement> records =
        concatenated({machine.environment(synthetic_document()),
                      machine.collectives(CollectiveKind::all_gather, 3), machine.computes(3)});
    for (Measurement& record : records) {
        if (auto* compute = std::get_if<ComputeRecord>(&record)) {
            compute->copies_us = copies_us;
        }
    }
    return collect_run(records, false, "stage_3.jsonl");
}

TEST_CASE("copies within collectives of stage 3 tell how fast it copies") {
    Scenario scenario = synthetic_scenario();
    scenario.sharding = ShardingRequest{.strategy = ShardedStrategy::zero3};
    scenario.sharding->zero3.persistence_threshold = 1'000'000'000;
    // Every gradient is copied into the bucket and once more, to be flat. All divide by two ranks.
    const Workload workload = step_input(scenario).workload;
    const double bytes = 2 * static_cast<double>(workload.gradient_bytes().count);
    const Calibration calibration = calibrate({run_of_stage_3(bytes / 5e3)}, scenario);
    CHECK(static_cast<double>(calibration.link.copy_bandwidth->count) == Approx(5e9).epsilon(1e-3));
}

TEST_CASE("steps that shard have collectives of some ranks, of as many that all are") {
    SyntheticMachine machine(synthetic_scenario(), {});
    const auto run_with = [&](std::int64_t ranks) {
        std::vector<Measurement> records =
            concatenated({machine.environment(synthetic_document()),
                          machine.collectives(CollectiveKind::all_gather, 2, ranks)});
        std::get<EnvironmentRecord>(records.front()).transport.ranks = 4;
        return collect_run(records, false, "some.jsonl");
    };
    for (const std::int64_t ranks : {2, 4}) {
        const Calibration calibration = calibrate({run_with(ranks)}, std::nullopt);
        CHECK(calibration.link.provenance.ranks == ranks);
    }
    CHECK_THROWS_AS(run_with(3), InputError);
    CHECK_THROWS_AS(run_with(1), InputError);
}

TEST_CASE("records of different runs in one file are refused, the line named") {
    SyntheticMachine machine(synthetic_scenario(), {});
    std::vector<Measurement> records = machine.all_reduces(1);
    std::get<CollectiveRecord>(records[3]).transport.ranks = 3;
    try {
        collect_run(records, false, "mixed.jsonl");
        FAIL("accepted");
    } catch (const InputError& error) {
        CHECK(std::string(error.what()) ==
              "mixed.jsonl:4: expected records of one run: gloo ring (library) on 2 ranks, got "
              "gloo ring (library) on 3 ranks");
    }
    std::vector<Measurement> resumed =
        concatenated({machine.environment(""), machine.environment("{}")});
    CHECK_THROWS_AS(collect_run(resumed, false, "mixed.jsonl"), InputError);
    CHECK_THROWS_AS(collect_run({}, false, "empty.jsonl"), InputError);
}

TEST_CASE("a torn last line costs its sample and a warning") {
    SyntheticMachine machine(synthetic_scenario(), {});
    const MeasuredRun run = collect_run(machine.all_reduces(1), true, "torn.jsonl");
    REQUIRE(run.warnings.size() == 1);
    CHECK(run.warnings[0].find("its sample is lost") != std::string::npos);
    CHECK(calibrate({run}, std::nullopt).warnings.front() == run.warnings[0]);
}

template <typename Record>
std::function<void(Measurement&)> spoiling(void (*change)(Record&)) {
    return [change](Measurement& record) {
        if (auto* r = std::get_if<Record>(&record)) {
            change(*r);
        }
    };
}

TEST_CASE("values that cannot be are refused") {
    SyntheticMachine machine(synthetic_scenario(), {});
    const auto refused = [&](const auto& spoil) {
        std::vector<Measurement> records =
            synthetic_records(machine, synthetic_document(), {1, 1, 1, 1, {Bytes{1 << 20}}});
        for (Measurement& record : records) {
            spoil(record);
        }
        CHECK_THROWS_AS(collect_run(records, false, "m.jsonl"), InputError);
    };
    refused(spoiling<CollectiveRecord>([](CollectiveRecord& r) { r.samples_us.clear(); }));
    refused(spoiling<CollectiveRecord>([](CollectiveRecord& r) { r.samples_us[0] = 0; }));
    refused(spoiling<ComputeRecord>([](ComputeRecord& r) { r.forward_operations_us.pop_back(); }));
    refused(spoiling<ComputeRecord>([](ComputeRecord& r) { r.rank = 2; }));
    refused(spoiling<ContentionRecord>([](ContentionRecord& r) { r.compute_alone_us.pop_back(); }));
    refused(spoiling<StepRecord>([](StepRecord& r) { r.collective_end_us.pop_back(); }));
    refused(spoiling<StepRecord>([](StepRecord& r) { r.by_rank.clear(); }));
}

TEST_CASE("contention may be measured with other thread blocks than the rest, and no other GPU") {
    SyntheticMachine machine(synthetic_scenario(synthetic_gpu_document()), {});
    const std::vector<Measurement> records =
        synthetic_records(machine, synthetic_gpu_document(), {1, 1, 1});
    CHECK(collect_run(records, false, "gpu.jsonl").transport.ctas == 4);
    const auto refusal = [&](const std::function<void(Measurement&)>& change) {
        std::vector<Measurement> changed = records;
        for (Measurement& record : changed) {
            change(record);
        }
        try {
            collect_run(changed, false, "gpu.jsonl");
        } catch (const InputError& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    CHECK(refusal(spoiling<CollectiveRecord>([](CollectiveRecord& r) { r.transport.ctas = 8; })) ==
          "gpu.jsonl:2: expected records of one run: nccl ring (library) on 2 ranks, 4 CTAs at "
          "most, got nccl ring (library) on 2 ranks, 8 CTAs at most");
    CHECK(refusal(spoiling<ComputeRecord>([](ComputeRecord& r) { r.shared_gpu = true; })) ==
          "gpu.jsonl:17: /shared_gpu: expected records of one run: false, got true");
    CHECK(refusal(spoiling<ContentionRecord>([](ContentionRecord& r) {
              r.transport.shared_gpu = true;
          })).find("on 2 ranks of one GPU") != std::string::npos);
}

TEST_CASE("steps of other buckets, ranks or strategies are not compared") {
    const MeasuredRun run = synthetic_run({}, 2);
    const Scenario scenario = synthetic_scenario();
    Scenario other = scenario;
    other.group.ranks = other.group.ranks_per_node = 4;
    CHECK_THROWS_AS(compared(other, run), InputError);
    other = scenario;
    other.sync.strategy = Strategy::bucketed;
    CHECK_THROWS_AS(compared(other, run), InputError);
    other = scenario;
    other.sync.explicit_cap_sets_first = false;  // PyTorch 1.13's first bucket
    CHECK_THROWS_AS(compared(other, run), InputError);
    MeasuredRun without = run;
    without.steps.clear();
    CHECK_THROWS_AS(compared(scenario, without), InputError);
}

// Medians of parts do not sum to medians of wholes; the fit must not make operations of the
// difference.
TEST_CASE("a listed workload keeps its operations, whatever the noise") {
    const std::string document = R"({
      "name": "listed", "workload": { "forward_ms": 1.0, "backward_ms": 3.0, "gradients": [
        {"name": "a", "numel": 262144, "dtype": "float32", "ready_ms": 3.0},
        {"name": "b", "numel": 524288, "dtype": "float32", "ready_ms": 2.999},
        {"name": "c", "numel": 524288, "dtype": "float32", "ready_ms": 1.0} ] },
      "cluster": { "ranks": 2, "link": { "name": "slow", "algorithm": "ring",
        "segments": [ {"latency_us": 50.0, "bandwidth_gb_per_s": 1.0} ] } },
      "sync": { "strategy": "ddp", "views": true } })";
    const Scenario scenario = synthetic_scenario(document);
    for (unsigned seed = 1; seed <= 50; ++seed) {
        const MeasuredRun run =
            synthetic_run_of(document, {3, 3, 3, 3, {Bytes{1 << 20}, Bytes{1 << 22}}},
                             {.compute = 0.2, .step = 0.05, .seed = seed});
        const Calibration calibration = calibrate({run}, scenario);
        const Scenario fitted = parse_scenario(
            calibrated_scenario(Json::parse(document), calibration), "fitted.json", no_files);
        CHECK(compared(fitted, run).points.size() == 3);
    }
}

TEST_CASE("a strategy without caps is compared, with nothing to decide") {
    std::string document = synthetic_document();
    document.replace(document.find("\"ddp\""), 5, "\"flat\"");
    const Scenario scenario = synthetic_scenario(document);
    const Comparison comparison = compared(scenario, synthetic_run_of(document, {3, 3, 0, 6, {}}));
    CHECK(comparison.points.size() == 1);
    CHECK_FALSE(has_decision(comparison));
    CHECK(to_json(comparison)["verdict"]["decision"].is_null());
    CHECK(comparison_report(comparison, true).find("regret") == std::string::npos);
}

TEST_CASE("measurements of another step than the scenario's are refused") {
    const MeasuredRun run = synthetic_run({}, 2);
    const auto refused = [&](const std::string& from, const std::string& to) {
        CHECK_THROWS_AS(compared(synthetic_scenario(replaced(from, to)), run), InputError);
    };
    refused("\"views\": true", "\"views\": false");
    refused("\"batch\": 1", "\"batch\": 2");
    refused("{ \"optimizer\": \"sgd\" }", "{ \"optimizer\": \"sgd\", \"accumulation\": 2 }");
    refused("\"hidden\": 256", "\"hidden\": 128");
    MeasuredRun spoilt = run;
    for (StepRecord& step : spoilt.steps) {
        step.collective_begin_us.pop_back();
        step.collective_end_us.pop_back();
        step.collective_last_begin_us.pop_back();
    }
    CHECK_THROWS_AS(compared(synthetic_scenario(), spoilt), InputError);
}

TEST_CASE("operations too short to time give no device, and no crash") {
    std::string document =
        replaced("\"hidden\": 256, \"feed_forward\": 1024", "\"hidden\": 8, \"feed_forward\": 8");
    const Scenario scenario = synthetic_scenario(document);
    MeasuredRun run = synthetic_run_of(document, {1, 1});
    for (ComputeRecord& compute : run.computes) {
        std::ranges::fill(compute.forward_operations_us, 0.5);
        std::ranges::fill(compute.backward_operations_us, 0.5);
        compute.forward_us = compute.backward_us = 20;
    }
    CHECK_FALSE(calibrate({run}, scenario).device);
}

TEST_CASE("a round that a rank did not finish is left out") {
    MeasuredRun run = synthetic_run({}, 3);
    run.computes.pop_back();
    const auto fit = fit_compute(run, synthetic_scenario());
    REQUIRE(fit);
    CHECK(fit->rounds == 2);
    CHECK(fit->warnings.size() == 1);
    run.computes.clear();
    CHECK_FALSE(fit_compute(run, synthetic_scenario()));
}

TEST_CASE("interference depends on the size only where the sizes disagree") {
    std::vector<ContentionRecord> records;
    const auto add = [&](std::int64_t bytes, double compute, double all_reduce) {
        for (int round = 0; round < 5; ++round) {
            ContentionRecord record;
            record.size = {bytes};
            record.round = round;
            record.allreduce_alone_us = {100};
            record.allreduce_disturbed_us = {100 * all_reduce};
            record.compute_alone_us = {1000};
            record.compute_disturbed_us = {1000 * (compute + 0.004 * (round - 2))};
            records.push_back(record);
        }
    };
    add(1 << 16, 1.2, 1.05);
    add(1 << 20, 1.2, 1.05);
    add(1 << 24, 1.201, 1.05);
    CHECK(fit_interference(records).segments.size() == 1);
    CHECK(fit_interference(records).segments[0].slowdown.compute_slowdown_ppm / 1000 == 1200);
    add(1 << 26, 1.5, 0.9);
    const InterferenceFit by_size = fit_interference(records);
    REQUIRE(by_size.segments.size() == 11);            // one for each power of two
    CHECK(by_size.segments[0].up_to == Bytes{92682});  // the geometric middle, 2^16.5
    CHECK(by_size.segments[9].up_to == Bytes{47453133});
    // Half-way in the logarithm: 1.201 and 1.5, 1.05 and 0.9.
    CHECK(by_size.segments[8].slowdown == Interference{1'201'000, 1'050'000});
    CHECK(by_size.segments[9].slowdown == Interference{1'350'500, 1'000'000});
    CHECK(by_size.segments[10].slowdown == Interference{1'500'000, 1'000'000});
    CHECK_FALSE(by_size.segments[10].up_to);
    CHECK(fit_interference({}).segments.empty());
}

TEST_CASE("ranks and rounds of contention in which no operation counted are left out") {
    ContentionRecord record;
    record.size = {1 << 20};
    record.allreduce_alone_us = {100};
    record.allreduce_disturbed_us = {120};
    record.compute_alone_us = {0, 1000};
    record.compute_disturbed_us = {0, 1500};
    record.products_alone_us = {0, 1000};
    record.products_disturbed_us = {0, 1500};
    ContentionRecord nothing = record;
    nothing.compute_alone_us = nothing.compute_disturbed_us = {0, 0};
    nothing.products_alone_us = nothing.products_disturbed_us = {0, 0};
    ContentionRecord other_size = nothing;
    other_size.size = {1 << 24};

    const InterferenceFit fit = fit_interference({record, nothing, other_size});
    CHECK(fit.warnings.empty());
    REQUIRE(fit.points.size() == 2);
    CHECK(fit.points[0].compute == MeasuredSlowdown{1.5, 0.005});
    CHECK(fit.points[0].communication.factor == Approx(1.2));
    CHECK(fit.points[0].rounds == 2);
    CHECK(fit.points[0].apart.products.value() == Approx(1.5));
    CHECK_FALSE(fit.points[0].apart.rest);
    CHECK_FALSE(fit.points[1].compute);
    REQUIRE(fit.segments.size() == 1);
    CHECK(fit.segments[0].slowdown == Interference{1'500'000, 1'200'000});
}

TEST_CASE("contention in which no operation counted at all is taken for none, with a warning") {
    MeasuredRun run = synthetic_gpu_run();
    for (ContentionRecord& record : run.contentions) {
        for (auto* times : {&record.compute_alone_us, &record.compute_disturbed_us,
                            &record.products_alone_us, &record.products_disturbed_us}) {
            times->assign(times->size(), 0.0);
        }
    }
    const Calibration calibration = calibrate({run}, synthetic_scenario(synthetic_gpu_document()));
    REQUIRE(calibration.link.interference.size() == 3);
    for (const InterferenceSegment& segment : calibration.link.interference) {
        CHECK(segment.slowdown.compute_slowdown_ppm == 1'000'000);
        CHECK(segment.slowdown.communication_slowdown_ppm > 1'000'000);
    }
    CHECK(std::count_if(calibration.warnings.begin(), calibration.warnings.end(),
                        [](const std::string& warning) {
                            return warning.find("no operation of backward ran wholly") == 0;
                        }) == 3);  // by number of thread blocks
    const std::string report = calibration_report(calibration);
    CHECK(report.find("  4 CTAs  compute ?  all-reduce 1.200") != std::string::npos);
    CHECK(report.find("nan") == std::string::npos);
    const Json json = fit_json(calibration);
    for (const Json& point : json["interference"]) {
        CHECK_FALSE(point.contains("compute_slowdown"));
        CHECK_FALSE(point.contains("products_slowdown"));
    }
}

TEST_CASE("contention counts as far as its thread blocks are like the steps'") {
    std::vector<ContentionRecord> records;
    const auto add = [&](std::optional<std::int64_t> ctas, double compute) {
        ContentionRecord record;
        record.transport.ctas = ctas;
        record.size = {1 << 20};
        record.allreduce_alone_us = {100};
        record.allreduce_disturbed_us = {120};
        record.compute_alone_us = {1000};
        record.compute_disturbed_us = {1000 * compute};
        records.push_back(record);
    };
    add(8, 1.5);
    add(2, 1.25);
    const InterferenceFit free = fit_interference(records);
    CHECK(free.ctas == 8);  // the library's choice is not known: the largest measured
    REQUIRE(free.segments.size() == 2);
    CHECK(free.segments[0].ctas == 2);
    CHECK(fit_interference(records, 4).ctas == 4);
    add(std::nullopt, 1.75);
    const InterferenceFit like_free_steps = fit_interference(records);
    CHECK_FALSE(like_free_steps.ctas);
    REQUIRE(like_free_steps.segments.size() == 1);
    CHECK(like_free_steps.segments[0].slowdown.compute_slowdown_ppm == 1'750'000);
    CHECK(like_free_steps.warnings.size() == 1);
    CHECK(fit_interference(records, 4).segments == free.segments);
    CHECK(fit_interference(records, 4).warnings.size() == 1);
}

}  // namespace
}  // namespace bucketwise
