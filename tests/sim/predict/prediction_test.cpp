#include "sim/predict/prediction.h"

#include <algorithm>
#include <random>
#include <set>

#include "sim/base/error.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

void no_progress(double) {}

StepInput random_input(std::mt19937& random) {
    const auto between = [&](std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random);
    };
    StepInput input;
    std::vector<GradientReadiness> gradients;
    for (std::int64_t i = between(1, 12); i > 0; --i) {
        gradients.push_back(
            {{"g", between(1, 30), i % 3 == 0 ? DType::float16 : DType::float32, false},
             Duration{between(0, 1'000'000)}});
    }
    input.workload = workload_from_readiness(gradients, Duration{0}, Duration{1'000'000});
    input.group = {2, 2};
    input.link.segments = {
        {std::nullopt, Duration{between(0, 10'000)}, {between(1, 1000) * 1'000'000}}};
    return input;
}

TEST_CASE(
    "auto finds every distinct plan and no other, against every cap in bytes, on 300 random "
    "steps") {
    std::mt19937 random(11);
    for (int round = 0; round < 300; ++round) {
        const StepInput input = random_input(random);
        SyncRequest request;
        request.strategy = round % 2 == 0 ? Strategy::ddp : Strategy::python_async;
        request.explicit_cap_sets_first = round % 4 < 2;
        const Prediction prediction = predict(input, request, {}, no_progress);
        REQUIRE(prediction.every_plan);

        // Every cap from one byte to beyond the total of at most 12 x 30 x 4 bytes.
        Evaluator evaluator(input, request);
        std::vector<std::vector<Bucket>> plans;
        Duration fastest = longest_duration;
        for (std::int64_t cap = 1; cap <= 1500; ++cap) {
            const BucketPlan plan = evaluator.plan(Bytes{cap});
            if (plans.empty() || plans.back() != plan.buckets) {
                plans.push_back(plan.buckets);
                fastest = std::min(fastest, evaluator.evaluate(Bytes{cap}, plan).times.step());
            }
        }
        REQUIRE(prediction.sweep.size() == plans.size());
        for (std::size_t i = 0; i < plans.size(); ++i) {
            CHECK(evaluator.plan(prediction.sweep[i].cap).buckets == plans[i]);
            CHECK(evaluator.plan(prediction.sweep[i].same_plan.lowest).buckets == plans[i]);
            if (prediction.sweep[i].same_plan.highest) {
                CHECK(evaluator.plan(*prediction.sweep[i].same_plan.highest).buckets == plans[i]);
            }
        }
        const auto least = std::ranges::min_element(prediction.sweep, {}, &Evaluation::step);
        CHECK(least->step() == fastest);
        const Evaluation& advised = prediction.sweep[prediction.best];
        REQUIRE(advised.confidence);
        REQUIRE(least->confidence);
        CHECK(advised.confidence->regret.expected <= least->confidence->regret.expected + 5.1e-3);
        // No row of the plateau is slower than a drawn row of it.
        Duration slowest = least->step();
        for (std::size_t i = prediction.plateau_low; i <= prediction.plateau_high; ++i) {
            const Evaluation& row = prediction.sweep[i];
            slowest = row.confidence ? std::max(slowest, row.step()) : slowest;
        }
        for (std::size_t i = prediction.plateau_low; i <= prediction.plateau_high; ++i) {
            CHECK(to_ms(prediction.sweep[i].step()) <=
                  (1 + plateau_tolerance + 1e-12) * to_ms(slowest));
        }
    }
}

TEST_CASE("exposed communication is zero without ranks to talk to, and never negative") {
    std::mt19937 random(12);
    for (int round = 0; round < 100; ++round) {
        StepInput input = random_input(random);
        for (const Evaluation& e : predict(input, {}, {}, no_progress).sweep) {
            CHECK(e.exposed >= Duration{0});
            CHECK(e.exposed <= e.communication);
        }
        input.group = {1, 1};
        for (const Evaluation& e : predict(input, {}, {}, no_progress).sweep) {
            CHECK(e.exposed == Duration{0});
        }
    }
}

TEST_CASE("the binding adds up to the step, and the plateau holds the best") {
    std::mt19937 random(13);
    for (int round = 0; round < 100; ++round) {
        const Prediction p = predict(random_input(random), {}, {}, no_progress);
        CHECK(p.binding.communication + p.binding.launch + p.binding.compute == p.advised().step());
        CHECK(p.plateau_low <= p.best);
        CHECK(p.best <= p.plateau_high);
        const double fastest =
            to_ms(std::ranges::min_element(p.sweep, {}, &Evaluation::step)->step());
        for (std::size_t i = p.plateau_low; i <= p.plateau_high; ++i) {
            const std::optional<StepConfidence>& confidence = p.sweep[i].confidence;
            const bool told = confidence && confidence->regret.told_from_best;
            CHECK((!told || to_ms(p.sweep[i].step()) <= fastest * (1 + plateau_tolerance) + 1e-9));
        }
    }
}

TEST_CASE("what launching binds of a step that is one CUDA graph is the graph's launch") {
    std::mt19937 random(17);
    for (int round = 0; round < 100; ++round) {
        StepInput input = random_input(random);
        for (TimedOperation& operation : input.workload.backward) {
            operation.host = Duration{10'000'000};  // ten times as long as all computing
        }
        input.step.accumulation = 1 + round % 3;
        input.step.sync_each_step = true;
        const Prediction eager = predict(input, {}, {}, no_progress);
        CHECK(eager.binding.launch > eager.binding.compute);
        input.step.graph_launch = Duration{123'456};
        const Prediction graph = predict(input, {}, {}, no_progress);
        CHECK(graph.binding.launch == Duration{123'456});
        CHECK(graph.chosen().times.step() < eager.chosen().times.step());
        Evaluator evaluator(input, {});
        for (const Evaluation& e : graph.sweep) {
            CHECK(e.times == simulate_times(evaluator.program(e.cap)));
        }
        // A graph that is launched while the one before runs costs nothing.
        input.step.sync_each_step = false;
        const Prediction settled = predict(input, {}, {}, no_progress);
        CHECK(settled.binding.launch == Duration{0});
        const auto least = [](const Prediction& prediction) {
            return std::ranges::min_element(prediction.sweep, {}, &Evaluation::step)->step();
        };
        CHECK(least(settled) == least(graph) - Duration{123'456});
    }
}

TEST_CASE("a loop whose host is slower than its device is bound by launching, whatever the cap") {
    std::mt19937 random(18);
    for (int round = 0; round < 100; ++round) {
        StepInput input = random_input(random);
        Duration issuing{0};
        for (TimedOperation& operation : input.workload.backward) {
            operation.host = Duration{10'000'000'000};  // ten seconds and more in all
            issuing += operation.host;
        }
        const Prediction p = predict(input, {}, {}, no_progress);
        for (const Evaluation& e : p.sweep) {
            CHECK(e.step() >= issuing);
            CHECK(e.exposed == Duration{0});
        }
        CHECK(p.binding.communication == Duration{0});
        CHECK(p.binding.launch == p.advised().step() - p.binding.compute);
    }
}

TEST_CASE("PyTorch's default is recommended where no cap that can be named beats it") {
    // Two gradients of 1 MiB and 24 MiB in readiness order. The default closes the first bucket at
    // 1 MiB and hides it; an explicit cap of 25 MiB or more joins both, a smaller one gives the
    // same two.
    std::vector<GradientReadiness> gradients{
        {{"large", 6 << 20, DType::float32, false}, duration_from_ms(10)},
        {{"small", 1 << 18, DType::float32, false}, duration_from_ms(1)}};
    StepInput input;
    input.workload = workload_from_readiness(gradients, Duration{0}, duration_from_ms(10));
    input.group = {2, 2};
    input.link.segments = {{std::nullopt, Duration{0}, {1'000'000'000}}};
    const Prediction same = predict(input, {}, {}, no_progress);
    CHECK_FALSE(same.default_is_fastest);  // a cap of 1 to 24 MiB gives the default's plan

    // With four equal gradients of 1 MiB, [1 MiB, 25 MiB] gives 1 + 3, which no single cap can: it
    // gives 1+1+1+1, 2+2, 3+1 or 4. Latency makes two collectives better than four.
    input.workload =
        workload_from_readiness({{{"d", 1 << 18, DType::float32, false}, duration_from_ms(9)},
                                 {{"c", 1 << 18, DType::float32, false}, duration_from_ms(9)},
                                 {{"b", 1 << 18, DType::float32, false}, duration_from_ms(9)},
                                 {{"a", 1 << 18, DType::float32, false}, duration_from_ms(1)}},
                                Duration{0}, duration_from_ms(9));
    input.link.segments = {{std::nullopt, duration_from_ms(2), {1'000'000'000}}};
    const Prediction prediction = predict(input, {}, {}, no_progress);
    CHECK(prediction.default_is_fastest);
    CHECK(prediction.chosen() == prediction.default_cap);
    // 1 MiB hidden, then 3 MiB from 9 ms: 2 steps x 2 ms + 3 x 1.048576 ms.
    CHECK(to_ms(prediction.chosen().times.step()) == Approx(9 + 4 + 3.145728));
}

TEST_CASE("a step longer than ten days is refused") {
    std::mt19937 random(15);
    StepInput input = random_input(random);
    input.workload.backward.front().device = longest_duration;
    CHECK_THROWS_AS(predict(input, {}, {}, no_progress), InputError);
}

TEST_CASE("beyond 2,000 gradients the sweep is thinned, and says so") {
    std::vector<GradientReadiness> gradients;
    std::mt19937 random(16);
    for (int i = 0; i < 2100; ++i) {
        gradients.push_back({{"g", std::uniform_int_distribution<std::int64_t>(1, 1 << 20)(random),
                              DType::float32, false},
                             Duration{i}});
    }
    StepInput input;
    input.workload = workload_from_readiness(gradients, Duration{0}, duration_from_ms(10));
    input.group = {2, 2};
    input.link.segments = {{std::nullopt, duration_from_us(10), {1'000'000'000}}};
    const Prediction prediction = predict(input, {}, {}, no_progress);
    CHECK_FALSE(prediction.every_plan);
    CHECK(prediction.notes.size() == 1);
    CHECK(prediction.sweep.size() < 3000);
}

}  // namespace
}  // namespace bucketwise
