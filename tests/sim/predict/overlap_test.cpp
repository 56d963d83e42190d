#include "sim/predict/overlap.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <nlohmann/json.hpp>

#include "sim/frameworks/framework_advice.h"
#include "sim/predict/named_cap.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

Scenario parsed(const Json& document) {
    return parse_scenario(document, "s.json", [](const std::string&) { return std::string(); });
}

Prediction prediction_of(const Scenario& scenario) {
    return predict(step_input(scenario), scenario.sync, {}, [](double) {});
}

Json on_gpus(const std::string& model, const std::string& device, const std::string& link) {
    Json document{
        {"name", model},
        {"workload", {{"model", model}, {"batch", 8}, {"dtype", "bfloat16"}, {"device", device}}},
        {"cluster", {{"ranks", 8}, {"ranks_per_node", 8}, {"link", link}}},
        {"sync", {{"strategy", "ddp"}}}};
    if (model.starts_with("gpt2") || model.starts_with("bert")) {
        document["workload"]["sequence_length"] = 256;
    }
    return document;
}

TEST_CASE("a place between both ends is linear on each side of what is assumed") {
    const Interference assumed{1'300'000, 1'400'000, std::chrono::microseconds(100)};
    CHECK(at_place(assumed, {}) == assumed);
    CHECK(at_place(assumed, {0, 0, 0}) == Interference{});
    // The strongest: 1.8 and 1.8, and two and a half times the delay.
    CHECK(at_place(assumed, {1, 1, 1}) ==
          Interference{1'800'000, 1'800'000, std::chrono::microseconds(250)});
    // Half of 0.3; 0.4 and half of what lies between 0.4 and 0.8; a quarter of the way from 100 to
    // 250 us and as much again.
    CHECK(at_place(assumed, {0.25, 0.75, 0.75}) ==
          Interference{1'150'000, 1'600'000, std::chrono::microseconds(175)});
    // A cost that is assumed to be stronger than any measurement is its own end.
    const Interference stronger{1'900'000, 1'000'000, Duration{0}};
    CHECK(at_place(stronger, {1, 0, 0}).compute_slowdown_ppm == 1'900'000);
    CHECK(computing_lost({0, 0, 0}) == Duration{0});
    CHECK(computing_lost({1, 1, 1}) == std::chrono::microseconds(50));
    CHECK(host_issue_factor({}) == Approx(1));
    CHECK(host_issue_factor({0, 0, 1}) / host_issue_factor({0, 0, 0}) == Approx(115 / 20.6));
}

TEST_CASE("draws lie between both ends, evenly, and keep close from size to size") {
    Normal normal(3);
    constexpr int draws = 4000;
    double sum = 0;
    double squares = 0;
    double together = 0;
    for (int i = 0; i < draws; ++i) {
        const DrawnOverlap overlap = DrawnOverlap::drawn(normal);
        const OverlapPlace small = overlap.at({1 << 20});
        const OverlapPlace next = overlap.at({1 << 21});
        for (const double place : {small.of_computing, small.of_collective, small.of_each}) {
            REQUIRE(place >= 0);
            REQUIRE(place <= 1);
        }
        CHECK(small.of_each == next.of_each);
        CHECK(overlap.opposite().at({1 << 20}).of_computing == Approx(1 - small.of_computing));
        sum += small.of_computing;
        squares += std::pow(small.of_computing - 0.5, 2);
        together += (small.of_computing - 0.5) * (next.of_computing - 0.5);
    }
    // A uniform number has the mean 1/2 and the variance 1/12. Uniform numbers from normal deviates
    // with the correlation r have 6 / pi asin(r / 2): 0.891 for 0.9.
    CHECK(sum / draws == Approx(0.5).margin(0.02));
    CHECK(squares / draws == Approx(1.0 / 12).epsilon(0.05));
    CHECK(together / squares == Approx(0.891).margin(0.02));
}

TEST_CASE("what overlap costs is only drawn where it is assumed") {
    Json document = on_gpus("gpt2", "H100", "nvlink-h100-8");
    CHECK(prediction_of(parsed(document)).default_cap.saved_at_ends == DrawnShare{});
    document["cluster"]["link"] = {
        {"name", "known"},
        {"algorithm", "ring"},
        {"interference", {{"compute_slowdown", 1.2}, {"communication_slowdown", 1.1}}},
        {"provenance", {{"backend", "nccl"}}},
        {"segments", {{{"latency_us", 5}, {"bandwidth_gb_per_s", 200}}}}};
    const Prediction known = prediction_of(parsed(document));
    CHECK_FALSE(known.doubt);
    for (const Evaluation& row : known.sweep) {
        CHECK_FALSE(row.saved_at_ends);
    }
}

// Twelve gradients of 8 MiB are ready 0.4 ms after one another. On two GPUs each takes 2 ms, as a
// ring moves 8.39 MB at 4.19 GB/s, and `latency_us` twice.
Json slow_link(double latency_us) {
    Json gradients = Json::array();
    for (int i = 12; i > 0; --i) {
        gradients.push_back({{"name", "g" + std::to_string(i)},
                             {"numel", 2 << 20},
                             {"dtype", "float32"},
                             {"ready_ms", 0.4 * i}});
    }
    return {{"name", "twelve"},
            {"workload",
             {{"forward_ms", 2}, {"backward_ms", 4.8}, {"gradients", std::move(gradients)}}},
            {"cluster",
             {{"ranks", 2},
              {"link",
               {{"name", "slow"},
                {"algorithm", "ring"},
                {"provenance", {{"backend", "nccl"}}},
                {"segments", {{{"latency_us", latency_us}, {"bandwidth_gb_per_s", 4.19}}}}}}}},
            {"sync", {{"strategy", "ddp"}, {"views", true}}}};
}

TEST_CASE("the saving at both ends is that of two steps simulated with these costs") {
    const Scenario scenario = parsed(slow_link(50));
    const StepInput input = step_input(scenario);
    REQUIRE(input.link.assumes_interference);
    const std::vector<SyncSettings> choices{settings_for(with_cap(scenario.sync, Bytes{8 << 20})),
                                            settings_for(with_cap(scenario.sync, Bytes{96 << 20}))};
    const std::vector<DrawnShare> saved = savings_at_ends(input, choices, 0);
    CHECK(saved[0] == DrawnShare{});
    // With one bucket nothing overlaps: 4.8 ms, then 24 ms and its latency, twice 50 us a
    // collective, whatever overlap costs. Without costs eight-MiB buckets follow one another from
    // 0.4 ms on: 12 x 2.1 ms.
    const double one = 2 + 4.8 + 12 * 2.002 + 0.1;
    const double many = 2 + 0.4 + 12 * (2.002 + 0.1);
    CHECK(saved[1].low == Approx(1 - one / many).margin(0.002));
    CHECK(saved[1].low < 0);
    CHECK(saved[1].high > saved[1].low);
}

TEST_CASE("the assumption that decides is named with the number at which it turns") {
    // A large latency speaks for few collectives, the tail of large ones against them: what each
    // collective costs besides decides.
    for (const double latency_us : {0.0, 20.0, 60.0, 100.0, 140.0}) {
        const Scenario scenario = parsed(slow_link(latency_us));
        const StepInput input = step_input(scenario);
        const SyncSettings few = settings_for(with_cap(scenario.sync, Bytes{32 << 20}));
        const SyncSettings many = settings_for(with_cap(scenario.sync, Bytes{8 << 20}));
        const auto decides = deciding_cost(input, few, many, 0);
        if (!decides) {
            continue;
        }
        CHECK(decides->turns > (decides->cost == OverlapTerm::each ? 0 : 1));
        // The other way round the other choice saves.
        const auto opposite = deciding_cost(input, many, few, 0);
        REQUIRE(opposite);
        CHECK(opposite->cost == decides->cost);
        CHECK(opposite->saves_above != decides->saves_above);
        CHECK(opposite->turns == Approx(decides->turns).epsilon(0.05));
    }
}

TEST_CASE("on 200 random scenarios of GPUs no cap is advised or typed that may not be named") {
    std::mt19937 random(45);
    const auto one_of = [&](const auto& list) {
        return list[std::uniform_int_distribution<std::size_t>(0, std::size(list) - 1)(random)];
    };
    const std::vector<const char*> models{"gpt2",      "resnet50",    "resnet152",      "vit_b_16",
                                          "bert-base", "gpt2-medium", "resnext50_32x4d"};
    const std::vector<std::pair<const char*, const char*>> gpus{{"nvlink-a100-8", "A100"},
                                                                {"nvlink-h100-8", "H100"},
                                                                {"nvlink-b200-8", "B200"},
                                                                {"ib-ndr-400", "H100"},
                                                                {"ib-hdr-200", "A100"}};
    // All plans of every tenth scenario, eleven caps of the others.
    std::vector<Bytes> caps;
    for (const std::int64_t mib : {1, 5, 10, 25, 50, 100, 250, 500, 1000, 2000, 5000}) {
        caps.push_back(Bytes{mib * bytes_per_mib});
    }
    int named = 0;
    for (int round = 0; round < 200; ++round) {
        const auto [link, device] = one_of(gpus);
        Json document = on_gpus(one_of(models), device, link);
        document["workload"]["batch"] = one_of(std::vector{1, 2, 4, 16, 64});
        document["workload"]["dtype"] = one_of(std::vector{"float32", "bfloat16"});
        document["cluster"]["ranks"] = one_of(std::vector{2, 4, 8});
        document["cluster"]["ranks_per_node"] = document["cluster"]["ranks"];
        document["sync"]["views"] = one_of(std::vector{false, true});
        document["sync"]["strategy"] = one_of(std::vector{"ddp", "ddp", "bucketed"});
        const Scenario scenario = parsed(document);
        const StepInput input = step_input(scenario);
        const Prediction prediction = predict(
            input, scenario.sync, round % 10 == 0 ? std::vector<Bytes>{} : caps, [](double) {});
        INFO(document.dump());
        constexpr Bytes most{1000 * bytes_per_mib};
        const Evaluation& best = prediction.sweep[prediction.best];
        CHECK(best.cap.size().value() <= most);
        const Evaluation& advised = prediction.advised();
        const Bytes cap = advised.cap.size().value();
        CHECK(cap <= most);
        if (advised.cap.named()) {
            ++named;
            REQUIRE(advised.saved_at_ends);
            CHECK(advised.saved_at_ends->low > 0);
            const bool usual =
                cap <= largest_usual_cap &&
                advised.bucket_bytes.size() >=
                    std::min<std::size_t>(4, prediction.default_cap.bucket_bytes.size());
            CHECK((usual || advised.confidence->regret.saved->low > 0));
        }
        // PyTorch types what the table recommends, or of another strategy's table no more.
        const SettingAdvice typed =
            setting_advice(input, scenario.sync, prediction,
                           {{SettingPlace::pytorch_ddp}, {SettingPlace::lightning}});
        const FrameworkChoice& choice = typed.frameworks.front().best;
        const double largest =
            std::max(to_mib(largest_usual_cap), advised.cap.named() ? to_mib(cap) : 0.0);
        CHECK(choice.value.value_or(0) <= largest);
        CHECK(typed.wrappers.front().mib.value_or(0) <= largest + 1);
        if (scenario.sync.strategy == Strategy::ddp) {
            CHECK(choice.value.has_value() == advised.cap.named().has_value());
        }
    }
    CHECK(named > 0);
}

}  // namespace
}  // namespace bucketwise
