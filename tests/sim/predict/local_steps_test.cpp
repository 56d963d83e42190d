#include "sim/predict/local_steps.h"

#include "tests/catch.h"

namespace bucketwise {
namespace {

// Ten milliseconds of computing; 8 MB of parameters, which two ranks all-reduce in 8 ms at 1 GB/s.
StepInput ten_milliseconds() {
    StepInput input;
    input.workload =
        workload_from_readiness({{{"a", 2'000'000, DType::float32, false}, Duration{0}}},
                                duration_from_ms(3), duration_from_ms(6));
    input.step.optimizer = duration_from_ms(1);
    input.group.ranks = 2;
    input.link.segments = {{std::nullopt, Duration{0}, bandwidth_from_gb_per_s(1)}};
    return input;
}

TEST_CASE("the period of local steps is the smallest whose communication costs little enough") {
    const LocalSteps found = local_steps(ten_milliseconds(), {.share = 0.05});
    CHECK(found.alone == duration_from_ms(10));
    CHECK(found.all_reduce == duration_from_ms(8));
    // 8 / (10 H + 8) <= 0.05 from H = 15.2 on.
    REQUIRE(found.smallest);
    CHECK(found.smallest->period == 16);
    CHECK(found.smallest->share == Approx(8.0 / 168));
    CHECK(found.smallest->step == duration_from_ms(10.5));
    CHECK(found.rows.front().period == 1);
    CHECK(found.rows.front().share == Approx(8.0 / 18));
}

TEST_CASE("half the bytes take half as long") {
    const LocalSteps found =
        local_steps(ten_milliseconds(), {.share = 0.05, .dtype = DType::bfloat16});
    CHECK(found.all_reduce == duration_from_ms(4));
    CHECK(found.smallest->period == 8);
}

TEST_CASE("streamed fragments hide behind the steps that follow them") {
    StepInput input = ten_milliseconds();
    input.link.segments.front().bandwidth = bandwidth_from_gb_per_s(0.1);
    // 80 ms in all, 20 ms for each of four fragments, which has H / 4 steps of 10 ms: from H = 8 on
    // all of it is hidden; at H = 4 half of it, 10 of 20 ms a step.
    const LocalSteps found = local_steps(input, {.share = 0.01, .fragments = 4});
    CHECK(found.fragment == Bytes{2'000'000});
    REQUIRE(found.smallest);
    CHECK(found.smallest->period == 8);
    CHECK(found.smallest->share == 0);
    CHECK(found.rows.front().period == 4);
    CHECK(found.rows.front().share == Approx(0.5));
    // At once it is a hundred times the period.
    CHECK(local_steps(input, {.share = 0.01}).smallest->period == 792);
}

TEST_CASE("what is streamed disturbs what computes beside it") {
    StepInput input = ten_milliseconds();
    input.link.interference = constant_interference({1'250'000, 1'500'000});
    // Two fragments of 4 ms are 6 ms under way, of which computing loses a fifth: 2.4 ms a period.
    const LocalSteps found = local_steps(input, {.share = 0.01, .fragments = 2});
    // 2.4 / (10 H + 2.4) <= 0.01 from H = 23.76 on, in twos.
    CHECK(found.smallest->period == 24);
}

TEST_CASE("no period is short enough where nothing but communication takes time") {
    StepInput input = ten_milliseconds();
    input.workload.forward.clear();
    input.workload.backward = {{.name = "b", .device = Duration{0}, .ready_count = 1}};
    input.step.optimizer = Duration{0};
    CHECK_FALSE(local_steps(input, {.share = 0.05}).smallest);
}

}  // namespace
}  // namespace bucketwise
