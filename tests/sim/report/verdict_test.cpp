#include "sim/report/verdict.h"

#include "sim/base/json_input.h"
#include "sim/report/misfit.h"
#include "sim/report/number_text.h"
#include "sim/report/report.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

// Two gradients of 4 MiB, ready after 4 and 8 of 8 ms, over 1 GB/s between two ranks: ring
// all-reduce of n bytes takes 2 (2 - 1) / 2 n / (1 GB/s), 4.194 ms for each of them.
Json two_gradients() {
    return Json::parse(R"({ "name": "two",
      "workload": { "forward_ms": 4, "backward_ms": 8, "gradients": [
        {"name": "a", "numel": 1048576, "dtype": "float32", "ready_ms": 8},
        {"name": "b", "numel": 1048576, "dtype": "float32", "ready_ms": 4} ] },
      "cluster": { "ranks": 2, "link": { "name": "slow", "algorithm": "ring", "interference": "none",
        "segments": [ {"latency_us": 0, "bandwidth_gb_per_s": 1} ] } },
      "sync": { "strategy": "ddp", "views": true } })");
}

Scenario parsed(const Json& document) {
    return parse_scenario(document, "s.json", [](const std::string&) { return std::string(); });
}

Prediction predicted(const Scenario& scenario) {
    return predict(step_input(scenario), scenario.sync, {}, [](double) {});
}

std::string verdict_text_of(const Json& document) {
    const Scenario scenario = parsed(document);
    return verdict_of(scenario, predicted(scenario)).text;
}

TEST_CASE("a cap that is faster whatever is wrong is to be set, with what it saves") {
    // Forty gradients of 1 MiB, one each ms from 1 to 40 ms, over a link that takes 1.049 ms for
    // one. The default's last buckets of up to 25 MiB begin when backward ends; single gradients
    // are all but one hidden.
    Json document = two_gradients();
    Json gradients = Json::array();
    for (int i = 40; i > 0; --i) {
        gradients.push_back({{"name", "g" + std::to_string(i)},
                             {"numel", 262144},
                             {"dtype", "float32"},
                             {"ready_ms", i}});
    }
    document["workload"] = {
        {"forward_ms", 4}, {"backward_ms", 40}, {"gradients", std::move(gradients)}};
    const Scenario scenario = parsed(document);
    const Prediction prediction = predicted(scenario);
    const PredictedVerdict verdict = verdict_of(scenario, prediction);
    INFO(verdict.text);
    CHECK(verdict.advice == Advice::set_cap);
    CHECK(verdict.text.starts_with("Set bucket_cap_mb="));
    CHECK(verdict.text.ends_with(" % less time than the default of 25 MiB."));
    REQUIRE(verdict.saved.has_value());
    const double typical =
        1 - to_ms(prediction.advised().step()) / to_ms(prediction.default_cap.step());
    CHECK(verdict.saved->low < typical);
    CHECK(typical < verdict.saved->high);
}

TEST_CASE("half the time is said so, and not as 51 % faster") {
    CHECK(faster_than_text(0.12, 0.12, "the default") == "12 % faster than the default");
    CHECK(faster_than_text(0.03, 0.05, "the default") == "3.0 to 5.0 % faster than the default");
    CHECK(faster_than_text(0.51, 0.51, "the default") == "half the time of the default");
    CHECK(faster_than_text(0.35, 0.41, "the default") == "35 to 41 % less time than the default");
    CHECK(less_time_text(0.66, 0.67) == "a third of the time");
    CHECK(less_time_text(0.76, 0.76) == "a quarter of the time");
    CHECK(less_time_text(0.5, 0.6) == "50 to 60 % less time");
}

TEST_CASE("a percent sign stays on the line of its number") {
    // "gains 12 %" has ten characters.
    CHECK(wrapped("gains 12 % here", 9) == "gains\n12 % here");
    CHECK(wrapped("gains 12 % here", 10) == "gains 12 %\nhere");
}

TEST_CASE("where no cap is faster the default is kept") {
    const std::string text = verdict_text_of(two_gradients());
    INFO(text);
    CHECK(text.starts_with("Keep the default of 25 MiB: no cap is faster"));
}

TEST_CASE("what is known to be too weak gives no advice, and nothing to type") {
    Json document = two_gradients();
    document["caveats"] = {{{"text", "the trace replays 30 % off"}, {"withholds_advice", true}}};
    const Scenario scenario = parsed(document);
    const Prediction prediction = predicted(scenario);
    const PredictedVerdict verdict = verdict_of(scenario, prediction);
    CHECK(verdict.advice == Advice::withheld);
    CHECK(verdict.text == "Do not rely on this: the trace replays 30 % off.");
    const std::string report = text_report(scenario, prediction);
    CHECK(report.starts_with(verdict.text));
    CHECK(report.find("Settings to type") == std::string::npos);
    CHECK(report.find("Note: the trace replays 30 % off.") != std::string::npos);
}

TEST_CASE("a verdict that hangs on an assumption keeps the default and says what would settle it") {
    const Scenario scenario = parsed(two_gradients());
    Prediction prediction = predicted(scenario);
    prediction.keep_default = true;
    prediction.doubt = {
        true, {-0.012, 0.034}, DecidingCost{OverlapTerm::computing, 1.28, 1.06, false}};
    const PredictedVerdict verdict = verdict_of(scenario, prediction);
    CHECK(verdict.advice == Advice::cannot_tell);
    CHECK(verdict.text ==
          "Cannot tell from priors: keep the default of 25 MiB. Larger buckets may be from 1.2 % "
          "slower to 3.4 % faster. This hangs on what collectives cost computing (assumed 1.28; "
          "from 1.06 on, keep the default). Ten minutes of `validate` or 50 steps of `bw.advise` "
          "would settle it.");
    prediction.doubt = {false, {0, 0.02}, DecidingCost{OverlapTerm::each, 93.4, 41.2, true}};
    CHECK(verdict_of(scenario, prediction).text ==
          "Cannot tell from priors: keep the default of 25 MiB. Smaller buckets may be up to 2.0 % "
          "faster or no faster at all. This hangs on what each collective costs, whatever its size "
          "(assumed 93.4 us; below 41.2 us, keep the default). Ten minutes of `validate` or 50 "
          "steps of `bw.advise` would settle it.");
}

TEST_CASE("a step that does not fit its device has no advice, but what fits") {
    // 1.56 billion parameters: weights, gradients and two moments of float32, 16 bytes each, are
    // 23 GiB, buckets without views 6 GiB more. An L4 has 24 GiB, and an eighth of it fits.
    const Scenario scenario = parsed({{"name", "large"},
                                      {"workload",
                                       {{"model", "gpt2-xl"},
                                        {"batch", 1},
                                        {"sequence_length", 128},
                                        {"dtype", "float32"},
                                        {"device", "L4"}}},
                                      {"cluster", {{"ranks", 8}, {"link", "eth-100g"}}},
                                      {"sync", {{"strategy", "ddp"}}},
                                      {"step", {{"optimizer", "adam"}}}});
    Prediction prediction = predicted(scenario);
    prediction.misfit = misfit_text(scenario);
    const PredictedVerdict verdict = verdict_of(scenario, prediction);
    INFO(verdict.text);
    CHECK(verdict.advice == Advice::does_not_fit);
    CHECK(verdict.text.starts_with("Does not fit: a rank needs about "));
    CHECK(verdict.text.find(" GiB, and L4 has 24.0 GiB. The fastest that fits: fsdp with ") !=
          std::string::npos);
    const std::string report = text_report(scenario, prediction);
    CHECK(report.starts_with("Does not fit: "));
    CHECK(report.find("Settings to type") == std::string::npos);
    // One that fits, one whose device is not known, and one that shards already say nothing.
    CHECK(misfit_text(parsed(two_gradients())).empty());
}

TEST_CASE("a strategy without caps says so, and that DDP is faster where it is") {
    // Naive: both after backward, 12 + 8.389 ms. DDP sends the first after 8 ms and the second
    // after it: 8 + 8.389 ms, 19.6 % faster.
    Json document = two_gradients();
    document["sync"] = {{"strategy", "naive"}};
    const std::string text = verdict_text_of(document);
    CHECK(text ==
          "A step takes 20.4 ms; naive has no bucket cap to choose. Better, use "
          "DistributedDataParallel (strategy ddp): 20 % faster with its default caps.");
}

TEST_CASE("the report begins with the verdict, and its details only come when asked for") {
    const Scenario scenario = parsed(two_gradients());
    const Prediction prediction = predicted(scenario);
    const std::string brief = text_report(scenario, prediction);
    const std::string full = text_report(scenario, prediction, {}, {}, Detail::full);
    const std::string verdict = verdict_of(scenario, prediction).text;
    CHECK(brief.starts_with(verdict + "\n\ntwo: ddp, 2 ranks, ring over slow\n"));
    CHECK(full.starts_with(verdict));
    CHECK(brief.find("is bound by computing (") != std::string::npos);
    CHECK(full.size() >= brief.size());
}

TEST_CASE("numbers have three digits, shares one or none after the point") {
    CHECK(three_digits(0) == "0");
    CHECK(three_digits(0.012345) == "0.0123");
    CHECK(three_digits(9.996) == "10.0");
    CHECK(three_digits(123.4) == "123");
    CHECK(three_digits(98765.4) == "98765");
    CHECK(percent_text(0.0004) == "less than 0.1 %");
    CHECK(percent_text(0.0321) == "3.2 %");
    CHECK(percent_text(0.1499) == "15 %");
    CHECK(percent_range_text(0.031, 0.049) == "3.1 to 4.9 %");
    CHECK(percent_range_text(-0.0001, 0.003) == "0.0 to 0.3 %");
    CHECK(percent_range_text(0.2, 0.2) == "20 %");
    CHECK(counted(1, "round") == "1 round");
    CHECK(counted(2, "round") == "2 rounds");
    CHECK(waiting_text(41) == "50 seconds");
    CHECK(waiting_text(700) == "12 minutes");
    CHECK(waiting_text(7201) == "3 hours");
}

}  // namespace
}  // namespace bucketwise
