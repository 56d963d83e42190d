// BatchNorm that is synchronised over ranks, inside a step: its collectives block, and queue among
// the buckets.
#include <algorithm>
#include <random>

#include <fmt/format.h>

#include "sim/base/json_input.h"
#include "sim/engine/engine.h"
#include "sim/predict/prediction.h"
#include "sim/program/program.h"
#include "sim/program/step_programs.h"
#include "sim/report/perfetto.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"
#include "tests/oracle/recurrence.h"

namespace bucketwise {
namespace {

Duration ms(double count) {
    return duration_from_ms(count);
}

TimedOperation operation(const char* name, double device_ms, std::int32_t ready_count = 0,
                         std::optional<Exchange> exchange = {}) {
    return {.name = name,
            .device = ms(device_ms),
            .ready_count = ready_count,
            .source = {},
            .exchange = exchange};
}

// Two ranks on a link of 1 GB/s without latency: an all-reduce of 1 MB takes 1 ms, and so does an
// all-gather of 1 MB from each, 2 MB together; half of it crosses the wire.
//
// Forward: statistics 1 ms, all-gather, normalise 1 ms. Backward: 1 ms, which makes gradient b of 3
// MB ready; sums 1 ms, all-reduce; 1 ms, which makes a of 1 MB ready.
StepInput one_layer() {
    StepInput input;
    Workload& workload = input.workload;
    workload.gradients = {{"a", 250'000, DType::float32, false},
                          {"b", 750'000, DType::float32, false}};
    workload.readiness = {1, 0};
    const Exchange gather{CollectiveKind::all_gather, Bytes{1'000'000}, DType::float32};
    const Exchange reduce{CollectiveKind::all_reduce, Bytes{1'000'000}, DType::float32};
    workload.forward = {operation("norm statistics", 1, 0, gather), operation("norm", 1)};
    workload.backward = {operation("product", 1, 1), operation("norm sums", 1, 0, reduce),
                         operation("norm input", 1, 1)};
    input.group = {2, 2};
    input.link.segments = {{std::nullopt, Duration{0}, {1'000'000'000}}};
    return input;
}

SyncRequest ddp_with_cap(std::int64_t bytes) {
    SyncRequest request;
    request.bucket_cap = Bytes{bytes};
    return request;
}

Program program_of(const StepInput& input, const SyncRequest& request) {
    const SyncSettings sync = settings_for(request);
    return build_program(
        input, sync, make_plan(input.workload.gradients, input.workload.readiness, sync.policy));
}

StepTimes times_of(const StepInput& input, const SyncRequest& request) {
    return simulate_times(program_of(input, request));
}

// Forward 1 + 1 + 1. From 3 ms: product until 4, when the bucket [b] of 3 ms goes out; sums until
// 5; their all-reduce is behind the bucket, from 7 to 8; the rest until 9; [a] until 10.
TEST_CASE("statistics behind a long bucket stall backward until it has gone") {
    const StepTimes times = times_of(one_layer(), ddp_with_cap(3'000'000));
    CHECK(times.forward == ms(3));
    CHECK(times.backward == ms(7));
}

// One bucket of 4 MB goes out last: product, sums, all-reduce, rest until 7 ms, bucket until 11.
TEST_CASE("a larger bucket is out of their way, and ends later") {
    CHECK(times_of(one_layer(), ddp_with_cap(4'000'000)).step() == ms(11));
}

// Without: forward 2; product until 3, [b] from 3 to 6; computing until 5; [a] from 6 to 7.
TEST_CASE("what is not exchanged stalls nothing") {
    StepInput input = one_layer();
    for (auto* pass : {&input.workload.forward, &input.workload.backward}) {
        for (TimedOperation& each : *pass) {
            each.exchange.reset();
        }
    }
    CHECK(times_of(input, ddp_with_cap(3'000'000)).step() == ms(7));
    // The strategy that does not communicate does not exchange either: 2 + 3.
    SyncRequest none;
    none.strategy = Strategy::none;
    CHECK(times_of(one_layer(), none).step() == ms(5));
}

// Each micro-step exchanges: the first takes 3 + 4 ms (sums are behind no bucket), the last 10.
TEST_CASE("statistics are exchanged in every micro-step, gradients in the last") {
    StepInput input = one_layer();
    input.step.accumulation = 2;
    const SyncRequest request = ddp_with_cap(3'000'000);
    const Program program = program_of(input, request);
    CHECK(simulate_times(program).step() == ms(17));
    CHECK(std::count_if(program.collectives.begin(), program.collectives.end(),
                        [](const Collective& c) { return c.statistics() != nullptr; }) == 4);
    // In parts, as a sweep simulates them, it is the same. On the wire: four times 1 ms, and 4 MB.
    // Were communication free: 5 ms each micro-step.
    Evaluator evaluator(input, request);
    const Evaluation evaluation = evaluator.evaluate(Bytes{3'000'000});
    CHECK(evaluation.times.step() == ms(17));
    CHECK(evaluation.communication == ms(8));
    CHECK(evaluation.exposed == ms(7));
    CHECK(evaluation.bucket_bytes == std::vector<Bytes>{{3'000'000}, {1'000'000}});
}

// The map of unused parameters is waited for at the end, statistics only where they are launched.
TEST_CASE("every collective is waited for once") {
    StepInput input = one_layer();
    input.step.accumulation = 3;
    SyncRequest request = ddp_with_cap(3'000'000);
    request.find_unused_parameters = true;
    const Program program = program_of(input, request);
    std::vector<int> waits(program.collectives.size());
    for (const Instruction& instruction : program.instructions) {
        if (instruction.kind == InstructionKind::wait) {
            ++waits[static_cast<std::size_t>(instruction.subject)];
        }
    }
    CHECK(waits == std::vector<int>(waits.size(), 1));
}

TEST_CASE("a trace names what was exchanged after what") {
    const StepInput input = one_layer();
    const Program program = program_of(input, ddp_with_cap(3'000'000));
    const std::string trace =
        perfetto_trace("test", input, program, simulate({&program, 1}, Record::timeline));
    CHECK(trace.find("all-gather after norm statistics (1.91 MiB)") != std::string::npos);
    CHECK(trace.find("all-reduce after norm sums (0.95 MiB)") != std::string::npos);
}

// Any mix of gradients reduced one by one and statistics, against the oracle.
TEST_CASE("steps with statistics are the recurrence that waits for them") {
    std::mt19937 random(11);
    const auto drawn = [&](int most) {
        return static_cast<std::int64_t>(random() % static_cast<unsigned>(most));
    };
    for (int repeat = 0; repeat < 300; ++repeat) {
        StepInput input = one_layer();
        Workload& workload = input.workload;
        workload.gradients.clear();
        workload.readiness.clear();
        workload.forward.clear();
        workload.backward.clear();
        std::vector<oracle::ComputedAndSent> expected;
        for (std::int64_t i = drawn(12); i >= 0; --i) {
            const std::int64_t compute_us = drawn(2000);
            const std::int64_t bytes = 4 * (1 + drawn(400'000));
            TimedOperation next = operation("backward", 0);
            next.device = duration_from_us(static_cast<double>(compute_us));
            const bool reduces = drawn(2) == 0;
            if (reduces) {
                next.ready_count = 1;
                workload.readiness.push_back(static_cast<std::int32_t>(workload.gradients.size()));
                workload.gradients.push_back(
                    {fmt::format("{}", i), bytes / 4, DType::float32, false});
            } else {
                next.exchange = Exchange{CollectiveKind::all_reduce, Bytes{bytes}, DType::float32};
            }
            workload.backward.push_back(next);
            // Over two ranks all of the bytes cross a wire of 1 byte per ns.
            expected.push_back({compute_us * 1'000'000, bytes * 1000, !reduces});
        }
        SyncRequest request;
        request.strategy = Strategy::overlap;
        CHECK(times_of(input, request).step().count() == oracle::step_with_waits(expected));
    }
}

// --- from a scenario -----------------------------------------------------------------------------

Scenario resnet18(const std::string& batch_norm) {
    const std::string text = R"({ "name": "resnet",
      "workload": { "model": "resnet18", "batch": 2, "image_size": 64, "forward_ms": 10,
                    "backward_ms": 20 },
      "cluster": { "ranks": 4, "link": { "name": "free", "algorithm": "ring",
                   "segments": [ { "latency_us": 0, "bandwidth_gb_per_s": 1000000 } ] } },
      "sync": { "strategy": "ddp", "broadcast_buffers": false, "batch_norm": ")" +
                             batch_norm + R"(" } })";
    return parse_scenario(Json::parse(text), "test", {});
}

std::vector<Collective> statistics_of(const Scenario& scenario) {
    std::vector<Collective> found;
    const StepInput input = step_input(scenario);
    for (const Collective& collective : program_of(input, scenario.sync).collectives) {
        if (collective.statistics() != nullptr) {
            found.push_back(collective);
        }
    }
    return found;
}

// ResNet-18 has 20 BatchNorms: 1, 2 in each of 8 blocks, 3 in shortcuts. The first has 64 channels:
// 129 float32 from each of 4 ranks, 2,064 bytes; 129 float64; and 128 float32 in backward.
TEST_CASE("every BatchNorm of a model is synchronised, forward and backward") {
    const std::vector<Collective> gather = statistics_of(resnet18("gather"));
    REQUIRE(gather.size() == 40);
    CHECK(gather.front().kind == CollectiveKind::all_gather);
    CHECK(gather.front().bytes == Bytes{2064});
    CHECK(gather.back().kind == CollectiveKind::all_reduce);
    CHECK(gather.back().bytes == Bytes{512});
    const std::vector<Collective> fused = statistics_of(resnet18("fused"));
    REQUIRE(fused.size() == 40);
    CHECK(fused.front().kind == CollectiveKind::all_reduce);
    CHECK(fused.front().bytes == Bytes{1032});
    CHECK(statistics_of(resnet18("local")).empty());
}

// Measured totals hold, and each pass of a BatchNorm keeps its share of them.
TEST_CASE("over a link that takes no time synchronising changes no time") {
    const StepTimes local = times_of(step_input(resnet18("local")), resnet18("local").sync);
    const StepTimes gather = times_of(step_input(resnet18("gather")), resnet18("gather").sync);
    CHECK(local.forward == ms(10));
    CHECK(to_us(gather.forward) == Approx(10'000).margin(0.001));
    CHECK(to_us(gather.backward) == Approx(to_us(local.backward)).margin(50));
    // Each of the 20 BatchNorms runs one operation more.
    CHECK(step_input(resnet18("gather")).workload.forward.size() ==
          step_input(resnet18("local")).workload.forward.size() + 20);
    CHECK(step_input(resnet18("gather")).workload.backward.size() ==
          step_input(resnet18("local")).workload.backward.size());
}

TEST_CASE("every gradient still becomes ready once, a BatchNorm's when all of it has run") {
    const Workload workload = step_input(resnet18("fused")).workload;
    std::vector<std::int32_t> sorted = workload.readiness;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < sorted.size(); ++i) {
        CHECK(sorted[i] == static_cast<std::int32_t>(i));
    }
    std::size_t ready = 0;
    for (const TimedOperation& each : workload.backward) {
        CHECK_FALSE((each.exchange && each.ready_count > 0));
        ready += static_cast<std::size_t>(each.ready_count);
    }
    CHECK(ready == workload.gradients.size());
}

TEST_CASE("a key for BatchNorm that does nothing is said so, and a wrong one is refused") {
    Scenario none = resnet18("gather");
    none.sync.strategy = Strategy::none;
    CHECK(caveats(none) ==
          std::vector<std::string>{"/sync/broadcast_buffers has no effect with the strategy none",
                                   "/sync/batch_norm has no effect with the strategy none"});
    const Json gpt2 = Json::parse(R"({ "name": "gpt2",
      "workload": { "model": "gpt2", "batch": 1, "sequence_length": 8, "device": "A100" },
      "cluster": { "ranks": 2, "link": { "name": "l", "algorithm": "ring",
                   "segments": [ { "latency_us": 0, "bandwidth_gb_per_s": 1 } ] } },
      "sync": { "strategy": "ddp", "batch_norm": "gather" } })");
    CHECK(
        caveats(parse_scenario(gpt2, "test", {})) ==
        std::vector<std::string>{"/sync/batch_norm has no effect on a workload without BatchNorm"});
    CHECK_THROWS_WITH(resnet18("all"),
                      "test: /sync/batch_norm: expected one of local, gather, fused, got \"all\"");
}

}  // namespace
}  // namespace bucketwise
