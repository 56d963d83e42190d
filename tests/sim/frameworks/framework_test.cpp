// Frameworks' bucket rules against buckets and steps worked out by hand, and against naive
// simulations that share no code with them.
#include "sim/program/framework.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "sim/frameworks/framework_advice.h"
#include "sim/frameworks/framework_step.h"
#include "sim/predict/prediction.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

struct TestGradient {
    std::int64_t numel = 0;
    Duration ready{0};  // from the start of backward
    DType dtype = DType::float32;
};

// Two ranks in a ring without latency: n bytes at 1 GB/s, so that 250,000 float32 take 1 ms.
StepInput input_of(const std::vector<TestGradient>& gradients, Duration forward,
                   Duration backward) {
    std::vector<GradientReadiness> listed;
    for (const TestGradient& g : gradients) {
        listed.push_back({{std::to_string(listed.size()), g.numel, g.dtype}, g.ready});
    }
    StepInput input;
    input.workload = workload_from_readiness(listed, forward, backward);
    input.group = {2, 2};
    input.link.name = "1 GB/s";
    input.link.segments = {{std::nullopt, Duration{0}, {1'000'000'000}}};
    return input;
}

// a, b, c, d of 1 MB each, ready 4, 3, 2 and 1 ms into backward, which follows 1 ms of forward.
StepInput four_gradients() {
    constexpr std::int64_t megabyte = 250'000;
    return input_of({{megabyte, milliseconds{4}},
                     {megabyte, milliseconds{3}},
                     {megabyte, milliseconds{2}},
                     {megabyte, milliseconds{1}}},
                    milliseconds{1}, milliseconds{4});
}

using Groups = std::vector<std::vector<std::int32_t>>;

Groups groups_of(const BucketPlan& plan) {
    Groups groups;
    for (const Bucket& bucket : plan.buckets) {
        groups.push_back(bucket.gradients);
    }
    return groups;
}

TEST_CASE("Megatron-LM closes a bucket at its number of elements and sends it as it fills") {
    const StepInput input = four_gradients();
    FrameworkStep step(input, {}, {.framework = Framework::megatron_lm});
    // In reverse order of parameters; d and c are the 500,000.
    const FusedPlan fused = step.plan(Bytes{500'000});
    CHECK(groups_of(fused.plan) == Groups{{3, 2}, {1, 0}});
    // The first is full at 1 + 2 = 3 ms and takes 2, the second at 5 and takes 2.
    CHECK(step.step(fused) == milliseconds{7});
    // 500,001 elements need a third gradient.
    CHECK(groups_of(step.plan(Bytes{500'001}).plan) == Groups{{3, 2, 1}, {0}});
    // 40 million elements hold everything: 4 ms from 5 ms on.
    CHECK(step.step(step.plan(std::nullopt)) == milliseconds{9});
    CHECK(step.step_after_backward() == milliseconds{9});
}

TEST_CASE("Megatron-LM sends a bucket that is full although an earlier one is not") {
    // c of bucket {d, c} is late: ready at 4 ms, while {b, a} is full at 3 ms.
    constexpr std::int64_t megabyte = 250'000;
    const StepInput input = input_of({{megabyte, milliseconds{3}},
                                      {megabyte, milliseconds{2}},
                                      {megabyte, milliseconds{4}},
                                      {megabyte, milliseconds{1}}},
                                     Duration{0}, milliseconds{4});
    FrameworkStep step(input, {}, {.framework = Framework::megatron_lm});
    const FusedPlan fused = step.plan(Bytes{500'000});
    CHECK(groups_of(fused.plan) == Groups{{3, 2}, {1, 0}});
    // {b, a} 3 to 5 ms, {d, c} 5 to 7; in bucket order it would be 4 to 6 and 6 to 8.
    CHECK(step.step(fused) == milliseconds{7});
}

FrameworkUse zero1() {
    return {.framework = Framework::deepspeed_zero1};
}
FrameworkUse zero2() {
    return {.framework = Framework::deepspeed_zero2};
}

TEST_CASE("DeepSpeed sends a bucket with the gradient that no longer fits") {
    const StepInput input = four_gradients();
    FrameworkStep step(input, {}, zero1());
    const FusedPlan fused = step.plan(Bytes{500'000});
    CHECK(groups_of(fused.plan) == Groups{{3, 2}, {1, 0}});
    // {d, c} waits for b, at 1 + 3 = 4 ms, and takes 2; {b, a} goes at the end, at 5, and begins at
    // 6: 8 ms, where Megatron-LM's same buckets take 7. The gather of all parameters, 4 MB, takes 2
    // ms more: each of two ranks sends its half.
    CHECK(step.step(fused) == milliseconds{10});
    // One element less and every gradient is alone, each waiting for the next: d 3, c 4, b 5, a 6.
    CHECK(groups_of(step.plan(Bytes{499'999}).plan) == Groups{{3}, {2}, {1}, {0}});
    CHECK(step.step(step.plan(Bytes{499'999})) == milliseconds{9});
}

TEST_CASE("a bucket that DeepSpeed sends holds up computing until the one before is reduced") {
    StepInput input = four_gradients();
    input.link.segments.front().bandwidth = {400'000'000};  // 2.5 ms a gradient
    FrameworkStep waits(input, {}, zero1());
    const FusedPlan each = waits.plan(Bytes{250'000});
    CHECK(groups_of(each.plan) == Groups{{3}, {2}, {1}, {0}});
    // d goes with c, 3 to 5.5. c goes with b, which is there at 4: computing stands still until
    // 5.5; c to 8. a is there 1 ms later, at 6.5, and stands still until 8; b to 10.5. Backward's
    // end, at 8, as well; a to 13. The gather of 4 MB takes 5.
    CHECK(waits.step(each) == milliseconds{18});
    // {d, c} goes with b at 4, to 9; a is there at 5. {b, a} at the end, at 5: 9 to 14.
    CHECK(waits.step(waits.plan(Bytes{500'000})) == milliseconds{19});
    // Where a small gradient follows a large one, it costs: x of 3 MB is there at 1 ms, y of 0.25
    // at 2, z of 0.25 at 8, and backward ends at 9.
    input =
        input_of({{62'500, milliseconds{8}}, {62'500, milliseconds{2}}, {750'000, milliseconds{1}}},
                 Duration{0}, milliseconds{9});
    FrameworkStep waits_2(input, {}, zero1());
    const FusedPlan alone = waits_2.plan(Bytes{62'500});
    CHECK(groups_of(alone.plan) == Groups{{2}, {1}, {0}});
    // x goes with y at 2, to 5; y with z at 8, to 8.25; z at 9, to 9.25; the gather takes 1.75.
    CHECK(waits_2.step(alone) == milliseconds{11});
    // With z there at 2.5 ms, y's turn is at 2.5: computing stands still until 5, 2.5 ms.
    input = input_of(
        {{62'500, microseconds{2500}}, {62'500, milliseconds{2}}, {750'000, milliseconds{1}}},
        Duration{0}, milliseconds{9});
    CHECK(FrameworkStep(input, {}, zero1()).step(alone) == microseconds{13'500});
}

TEST_CASE("ZeRO stage 2 reduces in every micro-step, stage 1 in the last") {
    StepInput input = four_gradients();
    input.step.accumulation = 3;
    FrameworkStep stage_1(input, {}, zero1());
    FrameworkStep stage_2(input, {}, zero2());
    const FusedPlan fused = stage_1.plan(Bytes{500'000});
    // A micro-step computes for 5 ms; with its buckets it takes 8, as above. The gather takes 2.
    CHECK(stage_1.step(fused) == milliseconds{5 + 5 + 8 + 2});
    CHECK(stage_2.step(fused) == milliseconds{8 + 8 + 8 + 2});
    // Only a few of very many are simulated.
    input.step.accumulation = 10'000;
    CHECK(FrameworkStep(input, {}, zero2()).step(fused) == milliseconds{8 * 10'000 + 2});
    CHECK(FrameworkStep(input, {}, zero1()).step(fused) == milliseconds{5 * 9'999 + 8 + 2});
}

TEST_CASE("without overlap_comm DeepSpeed computes nothing while a bucket is reduced") {
    const StepInput input = four_gradients();
    FrameworkUse stage_2 = zero2();
    FrameworkUse stage_1 = zero1();
    stage_1.overlaps = stage_2.overlaps = false;
    FrameworkStep second(input, {}, stage_2);
    // {d, c} goes with b at 4, computing goes on at 6, ends at 7, {b, a} is reduced at 9; gather 2.
    const FusedPlan fused = second.plan(Bytes{500'000});
    CHECK(groups_of(fused.plan) == Groups{{3, 2}, {1, 0}});
    CHECK(second.step(fused) == milliseconds{11});
    // Stage 1 does so after backward, in the order of parameters: 5 + 4 + 2.
    FrameworkStep first(input, {}, stage_1);
    CHECK(groups_of(first.plan(Bytes{500'000}).plan) == Groups{{0, 1}, {2, 3}});
    CHECK(first.step(first.plan(Bytes{500'000})) == milliseconds{11});
    // On a CPU overlap_comm is the same as none: what reduces blocks.
    StepInput cpu = input;
    cpu.workload.host_is_device = true;
    CHECK(FrameworkStep(cpu, {}, zero2()).step(fused) == milliseconds{11});
}

TEST_CASE("what ZeRO shards, the optimizer, takes its share of the time") {
    StepInput input = four_gradients();
    input.step.optimizer = milliseconds{4};
    FrameworkStep step(input, {}, zero1());
    CHECK(step.step(step.plan(Bytes{500'000})) == milliseconds{8 + 2 + 2});
}

TEST_CASE(
    "DeepSpeed copies and divides beside the bucket's reduction, and spares a large gradient") {
    StepInput input = four_gradients();
    input.copy_bandwidth = BytesPerSecond{10'000'000'000};  // 0.1 ms a megabyte
    FrameworkStep step(input, {}, zero1());
    // d 2.1, c 3.2, b 4.3, a 5.4 ms into buckets: each is copied. {d, c} goes with b, at 4.2, and
    // takes 2 ms and two passes over 2 MB, of the division and of a rank's half twice: 2.4. {b, a}
    // at 6.6, to 9; the gather 2.
    CHECK(step.step(step.plan(Bytes{500'000})) == microseconds{11'000});
    // Larger than the limit, none is copied: d goes with c at 3 ms for 1.2, to 4.2; c with b there
    // at 4 at 4.2, to 5.4; b with a there at 5.2 at 5.4, to 6.6; a at 6.6, to 7.8; the gather 2.
    const FusedPlan alone = step.plan(Bytes{249'999});
    CHECK(alone.plan.buckets.front().in_place);
    CHECK(step.step(alone) == microseconds{9800});
}

TEST_CASE("DeepSpeed holds all gradients in one dtype, the narrowest, or the one that is set") {
    const StepInput input =
        input_of({{100, milliseconds{2}, DType::bfloat16}, {50, milliseconds{1}, DType::float32}},
                 Duration{0}, milliseconds{2});
    const FrameworkStep step(input, {}, zero1());
    const BucketPlan plan = step.plan(Bytes{150}).plan;
    REQUIRE(groups_of(plan) == Groups{{1, 0}});
    CHECK(plan.buckets.front().size == Bytes{300});
    FrameworkUse wide = zero1();
    wide.reduced_as = DType::float32;
    CHECK(FrameworkStep(input, {}, wide).plan(Bytes{150}).plan.buckets.front().size == Bytes{600});
}

TEST_CASE("Megatron-LM adds bfloat16 to float32, looks for NaN and scales before it sends") {
    StepInput input = four_gradients();
    for (Gradient& gradient : input.workload.gradients) {
        gradient.dtype = DType::bfloat16;  // 0.5 MB each, 1 MB in main_grad
    }
    FrameworkUse use{.framework = Framework::megatron_lm};
    use.checks_gradients = false;
    use.averages_in_collective = true;
    // Float32 travels: as the same plan of float32 gradients.
    CHECK(FrameworkStep(input, {}, use).step(FrameworkStep(input, {}, use).plan(Bytes{500'000})) ==
          milliseconds{7});
    use.reduces_in_bfloat16 = true;
    // d and c at 3 ms, to 4; b and a at 5, to 6.
    CHECK(FrameworkStep(input, {}, use).step(FrameworkStep(input, {}, use).plan(Bytes{500'000})) ==
          milliseconds{6});
    use.reduces_in_bfloat16 = false;
    input.copy_bandwidth = BytesPerSecond{10'000'000'000};  // 0.1 ms a megabyte
    // A gradient is read at 0.5 MB, main_grad read and written at 1 MB each: 1.25 MB of copying,
    // 0.125 ms. c is there at 3 + 0.25, b at 4 + 0.375, a at 5 + 0.5; {b, a} goes at 5.5, to 7.5.
    CHECK(FrameworkStep(input, {}, use).step(FrameworkStep(input, {}, use).plan(Bytes{500'000})) ==
          microseconds{7500});
    // Each bucket is read for its norm, 0.1 ms of its 2 MB, and scaled, 0.2: 2 x 0.3 ms.
    use.checks_gradients = true;
    use.averages_in_collective = false;
    CHECK(FrameworkStep(input, {}, use).step(FrameworkStep(input, {}, use).plan(Bytes{500'000})) ==
          microseconds{8100});
}

TEST_CASE("Megatron-LM's distributed optimizer pads buckets, scatters, and gathers in forward") {
    const FrameworkUse use{.framework = Framework::megatron_distributed_optimizer};
    StepInput input = four_gradients();
    input.step.optimizer = milliseconds{2};
    FrameworkStep step(input, {}, use);
    const FusedPlan fused = step.plan(Bytes{500'000});
    CHECK(groups_of(fused.plan) == Groups{{3, 2}, {1, 0}});
    // c begins at the 64th multiple from 250,000, 250,048, and ends at 500,048; the bucket is a
    // multiple of 128 elements: 500,096.
    CHECK(fused.plan.buckets.front().size == Bytes{std::int64_t{4} * 500'096});
    // Two ranks scatter half of that at 1 GB/s: 1.000192 ms. One operation of forward needs both
    // gathers, one after the other: 2 x 1.000192; then 1 ms of forward. {d, c} is there 2 ms later,
    // {b, a} 4 ms later, and waited for; half the optimizer is a rank's.
    const Duration half = std::chrono::nanoseconds{1'000'192};
    CHECK(step.step(fused) == 2 * half + milliseconds{5} + half + milliseconds{1});
    // With a forward of two operations, the parameters of {b, a}, which backward finishes last, are
    // needed by the first, and gathered alone; {d, c}'s while that runs.
    input.workload.forward = {{"one", milliseconds{2}}, {"two", milliseconds{2}}};
    FrameworkStep overlapped(input, {}, use);
    const FusedPlan gathered = overlapped.plan(Bytes{500'000});
    REQUIRE(gathered.plan.gathers.size() == 2);
    CHECK(gathered.plan.gathers[0].needed_by == 0);
    CHECK(gathered.plan.gathers[1].needed_by == 1);
    CHECK(gathered.plan.gathers[0].next == 1);
    CHECK_FALSE(gathered.plan.gathers[1].next);
    CHECK(overlapped.step(gathered) == half + milliseconds{4 + 4} + half + milliseconds{1});
    // The steps to compare with gather, too: buckets of other plans have no gathers of their own.
    BucketPlan of_another = gathered.plan;
    of_another.gathers.clear();
    CHECK(overlapped.step_in_order(of_another) == overlapped.step(gathered));
    // Not so where --overlap-param-gather is left out: both after the optimizer.
    FrameworkUse after = use;
    after.gathers_in_forward = false;
    FrameworkStep gathers_after(input, {}, after);
    CHECK(gathers_after.step(gathers_after.plan(Bytes{500'000})) ==
          milliseconds{4 + 4} + half + milliseconds{1} + 2 * half);
    // In later micro-steps parameters are there.
    input.step.accumulation = 3;
    FrameworkStep often(input, {}, use);
    CHECK(often.step(often.plan(Bytes{500'000})) ==
          half + milliseconds{3 * 8} + half + milliseconds{1});
}

TEST_CASE("versions are read, and ordered") {
    CHECK(version_from("0.14.2") == FrameworkVersion{0, 14, 2});
    for (const char* const text : {"0.14.2", "0.14", "2"}) {
        CHECK(version_text(*version_from(text)) == text);
    }
    CHECK(*version_from("0.14") > FrameworkVersion{0, 14, 3});  // its last patch
    for (const char* const text : {"", "x", "0.14.", "0..1", "0.1.2.3", "-1", "0.14.2rc1"}) {
        CAPTURE(text);
        CHECK_FALSE(version_from(text));
    }
    for (const Framework framework : every<Framework>) {
        CHECK(oldest_version(framework) <= rule_of({.framework = framework}).newest);
    }
}

TEST_CASE("with DeepSpeed a gradient larger than the bucket is alone") {
    const StepInput input = input_of({{100'000, milliseconds{4}},
                                      {100'000, milliseconds{3}},
                                      {400'000, milliseconds{2}},
                                      {250'000, milliseconds{1}}},
                                     Duration{0}, milliseconds{4});
    const FrameworkStep step(input, {}, zero1());
    CHECK(groups_of(step.plan(Bytes{300'000}).plan) == Groups{{3}, {2}, {1, 0}});
}

TEST_CASE("limits in elements count alike for every dtype, each with buckets of its own") {
    // 100 elements: two float16 gradients of 50 each, and two float32 of 60 each.
    const StepInput input = input_of({{60, milliseconds{4}},
                                      {50, milliseconds{3}, DType::float16},
                                      {60, milliseconds{2}},
                                      {50, milliseconds{1}, DType::float16}},
                                     Duration{0}, milliseconds{4});
    const FrameworkStep megatron(input, {}, {.framework = Framework::megatron_lm});
    // Float32's buffer is first, as its first parameter is.
    CHECK(groups_of(megatron.plan(Bytes{100}).plan) == Groups{{2, 0}, {3, 1}});
    CHECK(groups_of(megatron.plan(Bytes{60}).plan) == Groups{{2}, {0}, {3, 1}});
}

TEST_CASE("Horovod fuses what became ready between two cycles") {
    const StepInput input = four_gradients();  // ready 2, 3, 4 and 5 ms into the step
    FrameworkStep step(input, {}, {.framework = Framework::horovod});
    // Every millisecond one: 2 to 3, 3 to 4, 4 to 5, 5 to 6.
    const FusedPlan each = step.plan(std::nullopt, milliseconds{1});
    CHECK(groups_of(each.plan) == Groups{{3}, {2}, {1}, {0}});
    CHECK(step.step(each) == milliseconds{6});
    // At 2 ms d, at 4 ms c and b, at 6 ms a: 2 to 3, 4 to 6, 6 to 7.
    const FusedPlan two = step.plan(std::nullopt, milliseconds{2});
    CHECK(groups_of(two.plan) == Groups{{3}, {2, 1}, {0}});
    CHECK(two.times == std::vector<Duration>{milliseconds{2}, milliseconds{4}, milliseconds{6}});
    CHECK(step.step(two) == milliseconds{7});
    // With two ranks on a node a threshold is rounded up to a multiple of 1,024: 1,953 of these are
    // 1,999,872. One byte more means 2,000,896, and two of a million bytes fit. With less they go
    // one by one, at the same time.
    CHECK(two.plan.same_plan == CapRange{Bytes{1'999'873}, std::nullopt});
    CHECK(groups_of(step.plan(Bytes{1'999'872}, milliseconds{2}).plan) ==
          Groups{{3}, {2}, {1}, {0}});
    // A cycle longer than the step: all at 20 ms, 4 ms long.
    CHECK(step.step(step.plan(std::nullopt, milliseconds{20})) == milliseconds{24});
    // On the way through an operation: at 2.5 ms d (ready at 2), at 5 ms the rest. 2.5 to 3.5, 5
    // to 8.
    CHECK(step.step(step.plan(std::nullopt, microseconds{2500})) == milliseconds{8});
}

TEST_CASE("Horovod looks past a gradient that does not fit for later ones that do") {
    const std::vector<GradientMoments> at_once(4);
    const auto fused = [&](const std::vector<Gradient>& gradients, std::int64_t threshold) {
        return groups_of(fuse_in_cycles(gradients, {0, 1, 2, 3}, at_once, {threshold}, {}).plan);
    };
    const auto gradient = [](std::int64_t numel, DType dtype) {
        return Gradient{"g", numel, dtype};
    };
    const DType f32 = DType::float32;
    const DType f16 = DType::float16;
    // 400 + 800 do not fit into 1,000, and 400 + 800 looked past neither: {0}. 800 + 100 fit: {1,
    // 2}; 900 + 400 looked past is too much, so 3 is not asked.
    CHECK(fused({gradient(100, f32), gradient(200, f32), gradient(25, f32), gradient(100, f32)},
                1000) == Groups{{0}, {1, 2}, {3}});
    // 0 and 1 fit not, 400 + 500 looked past do; then 400 + 90 fits.
    CHECK(fused({gradient(100, f32), gradient(250, f16), gradient(22, f32), gradient(10, f16)},
                1000) == Groups{{0, 2}, {1, 3}});
}

TEST_CASE("Horovod's thread leaves waiting for gradients to a device apart from the host") {
    // All handed over at once, as a host does that runs ahead; there at 1, 2, 3 and 10 ms.
    std::vector<GradientMoments> moments;
    for (const int ms : {1, 2, 3, 10}) {
        moments.push_back({Duration{0}, milliseconds{ms}});
    }
    const std::vector<Gradient> gradients(4, Gradient{"g", 100, DType::float32});
    // Two fit; the first response goes at 2 ms, the second at 10.
    for (const bool waits : {false, true}) {
        const FusedPlan fused =
            fuse_in_cycles(gradients, {0, 1, 2, 3}, moments, {800}, {milliseconds{1}, waits});
        CHECK(groups_of(fused.plan) == Groups{{0, 1}, {2, 3}});
        CHECK(fused.times == std::vector<Duration>{milliseconds{2}, milliseconds{10}});
    }
    // Handed over at 0, 1, 2 and 3 ms, the first there at 10: a thread that waits for it then finds
    // the three others; one that does not takes each as it comes.
    for (std::size_t i = 0; i < 4; ++i) {
        moments[i] = {milliseconds{i}, milliseconds{10 + i}};
    }
    CHECK(
        groups_of(fuse_in_cycles(gradients, {0, 1, 2, 3}, moments, {4000}, {milliseconds{1}, true})
                      .plan) == Groups{{0}, {1, 2, 3}});
    const FusedPlan free =
        fuse_in_cycles(gradients, {0, 1, 2, 3}, moments, {4000}, {milliseconds{1}, false});
    CHECK(groups_of(free.plan) == Groups{{0}, {1}, {2}, {3}});
    CHECK(free.times == std::vector<Duration>{milliseconds{10}, milliseconds{11}, milliseconds{12},
                                              milliseconds{13}});
}

TEST_CASE("copies into and out of Horovod's buffer are part of its all-reduces") {
    StepInput input = four_gradients();
    input.copy_bandwidth = BytesPerSecond{10'000'000'000};  // 0.1 ms a megabyte
    FrameworkStep step(input, {}, {.framework = Framework::horovod});
    // One that is alone is not copied; two are, in and out: 2 + 2 x 0.2 ms. 4 to 6.4, 6.4 to 7.4.
    CHECK(step.step(step.plan(std::nullopt, milliseconds{1})) == milliseconds{6});
    CHECK(step.step(step.plan(std::nullopt, milliseconds{2})) == microseconds{7400});
}

// --- naive simulations ---

struct RandomStep {
    std::vector<TestGradient> gradients;
    Duration forward{0};
    Duration backward{0};
};

RandomStep random_step(std::mt19937& random) {
    const auto draw = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(random);
    };
    RandomStep step;
    step.forward = microseconds{100 * draw(0, 30)};
    const int count = draw(1, 8);
    for (int i = 0; i < count; ++i) {
        const Duration ready = microseconds{100 * draw(0, 100)};
        step.gradients.push_back({draw(1, 12), ready});
        step.backward = std::max(step.backward, ready);
    }
    step.backward += microseconds{100 * draw(0, 20)};
    return step;
}

// In the order backward finishes them; of equals the later parameter first.
std::vector<std::size_t> by_readiness(const RandomStep& step) {
    std::vector<std::size_t> order;
    for (std::size_t i = step.gradients.size(); i-- > 0;) {
        order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return step.gradients[a].ready < step.gradients[b].ready;
    });
    return order;
}

// As its input: a gradient of 12 elements takes 2.4 ms.
StepInput input_of(const RandomStep& step) {
    StepInput input = input_of(step.gradients, step.forward, step.backward);
    input.link.segments.front().bandwidth = {20'000};
    return input;
}

// (moment it goes, bytes); 50 us a byte.
using Sent = std::vector<std::pair<Duration, std::int64_t>>;

Duration step_of(const RandomStep& step, const Sent& sent) {
    Duration free{0};
    for (const auto& [at, bytes] : sent) {
        free = std::max(free, at) + microseconds{50 * bytes};
    }
    return std::max(free, step.forward + step.backward);
}

Duration naive_megatron(const RandomStep& step, std::int64_t limit) {
    Sent sent;
    std::int64_t open = 0;
    Duration full{0};
    for (std::size_t i = step.gradients.size(); i-- > 0;) {
        open += step.gradients[i].numel;
        full = std::max(full, step.forward + step.gradients[i].ready);
        if (open >= limit || i == 0) {
            sent.emplace_back(full, 4 * open);
            open = 0;
            full = Duration{0};
        }
    }
    std::stable_sort(sent.begin(), sent.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    return step_of(step, sent);
}

// Padding to 64 elements, buckets to 128; each of two ranks sends half of a bucket. The one
// operation of forward needs all gathers.
Duration naive_distributed(const RandomStep& step, std::int64_t limit) {
    Sent sent;
    std::int64_t open = 0;
    Duration full{0};
    std::int64_t gathered = 0;
    for (std::size_t i = step.gradients.size(); i-- > 0;) {
        open = (open + 63) / 64 * 64 + step.gradients[i].numel;
        full = std::max(full, step.forward + step.gradients[i].ready);
        if (open >= limit || i == 0) {
            const std::int64_t bytes = 4 * ((open + 127) / 128 * 128);
            sent.emplace_back(full, bytes / 2);
            gathered += bytes / 2;
            open = 0;
            full = Duration{0};
        }
    }
    std::stable_sort(sent.begin(), sent.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    return microseconds{50 * gathered} + step_of(step, sent);
}

Duration naive_deepspeed(const RandomStep& step, std::int64_t limit) {
    std::int64_t open = 0;
    std::int64_t all = 0;
    Duration late{0};  // of computing
    Duration free{0};  // of the network
    const auto flush = [&](Duration moment) {
        Duration now = step.forward + moment + late;
        if (free > now) {
            late += free - now;
            now = free;
        }
        free = std::max(free, now) + microseconds{open * 4 * 50};
        open = 0;
    };
    for (const std::size_t i : by_readiness(step)) {
        const TestGradient& gradient = step.gradients[i];
        if (open > 0 && open + gradient.numel > limit) {
            flush(gradient.ready);
        }
        open += gradient.numel;
        all += gradient.numel;
    }
    flush(step.backward);
    // The gather: of a multiple of 4 elements each of two ranks sends half.
    return std::max(free, step.forward + step.backward + late) +
           microseconds{(all + 3) / 4 * 4 * 50 * 2};
}

// Cycle by cycle. One dtype, so looking past only passes what does not fit.
Duration naive_horovod(const RandomStep& step, std::int64_t threshold, Duration cycle) {
    Sent sent;
    std::vector<std::size_t> left = by_readiness(step);
    for (Duration now{0}; !left.empty(); now += cycle) {
        std::vector<std::size_t> here;
        while (!left.empty() && step.forward + step.gradients[left.front()].ready <= now) {
            here.push_back(left.front());
            left.erase(left.begin());
        }
        while (!here.empty()) {
            std::int64_t bytes = 4 * step.gradients[here.front()].numel;
            std::int64_t passed = 0;
            here.erase(here.begin());
            for (std::size_t k = 0; k < here.size();) {
                const std::int64_t next = 4 * step.gradients[here[k]].numel;
                if (bytes + next <= threshold) {
                    bytes += next;
                    here.erase(here.begin() + static_cast<std::ptrdiff_t>(k));
                } else if (bytes + (passed += next) <= threshold) {
                    ++k;
                } else {
                    break;
                }
            }
            sent.emplace_back(now, bytes);
        }
    }
    return step_of(step, sent);
}

TEST_CASE("every limit's step equals a naive simulation's, and the best one is the least of all") {
    std::mt19937 random(20261122);
    for (int i = 0; i < 60; ++i) {
        const RandomStep drawn = random_step(random);
        const StepInput input = input_of(drawn);
        const Prediction prediction = predict(input, {}, {}, [](double) {});
        const std::vector<FrameworkSetting> settings = framework_settings(input, {}, prediction);
        const Duration cycle = settings.back().cycle.value();
        const auto deepspeed = [&](std::int64_t n) { return naive_deepspeed(drawn, n); };
        const std::map<Framework, std::function<Duration(std::int64_t)>> naive{
            {Framework::megatron_lm, [&](std::int64_t n) { return naive_megatron(drawn, n); }},
            {Framework::megatron_distributed_optimizer,
             [&](std::int64_t n) { return naive_distributed(drawn, n); }},
            {Framework::deepspeed_zero1, deepspeed},
            {Framework::deepspeed_zero2, deepspeed},
            {Framework::horovod, [&](std::int64_t n) { return naive_horovod(drawn, n, cycle); }}};
        for (std::size_t f = 1; f < settings.size(); ++f) {
            const FrameworkUse use = settings[f].use;
            FrameworkStep step(input, {}, use);
            Duration least = longest_duration;
            // 8 gradients of 12 elements are at most 96 elements and 384 bytes; each begun at a
            // multiple of 64 elements, 460.
            for (std::int64_t limit = 1; limit <= 461; ++limit) {
                const FusedPlan fused = step.plan(Bytes{limit}, cycle);
                const Duration duration = step.step(fused);
                CAPTURE(i, f, limit);
                REQUIRE(duration == naive.at(use.framework)(limit));
                REQUIRE(step.at_least(fused) <= duration);
                least = std::min(least, duration);
            }
            CAPTURE(i, f);
            // The default stays where nothing is better by more than the plateau's width.
            const bool is_default = settings[f].best.value == settings[f].framework_default.value;
            CHECK(to_ms(settings[f].best.step) <=
                  to_ms(least) * (is_default ? 1 + plateau_tolerance : 1));
            CHECK(naive.at(use.framework)(static_cast<std::int64_t>(*settings[f].best.value)) ==
                  settings[f].best.step);
            CHECK(settings[f].ideal_is_optimum ==
                  (use.framework != Framework::megatron_distributed_optimizer));
            CHECK(settings[f].loss_of(settings[f].best.step) >= 0);
        }
        // PyTorch's caps give plans of cuts, and the ideal is the best of all of these.
        CHECK(settings[0].ideal <= prediction.chosen().times.step());
        CHECK(settings[0].loss_of(settings[0].best.step) >= 0);
    }
}

TEST_CASE("the ideal is the best of all ways to cut the gradients into buckets") {
    std::mt19937 random(7);
    for (int i = 0; i < 40; ++i) {
        const RandomStep drawn = random_step(random);
        const StepInput input = input_of(drawn);
        const std::vector<std::size_t> order = by_readiness(drawn);
        Duration least = longest_duration;
        for (std::size_t cuts = 0; cuts < std::size_t{1} << (order.size() - 1); ++cuts) {
            Sent sent;
            std::int64_t bytes = 0;
            for (std::size_t k = 0; k < order.size(); ++k) {
                const TestGradient& gradient = drawn.gradients[order[k]];
                bytes += 4 * gradient.numel;
                if (k + 1 == order.size() || (cuts >> k & 1) != 0) {
                    sent.emplace_back(drawn.forward + gradient.ready, bytes);
                    bytes = 0;
                }
            }
            least = std::min(least, step_of(drawn, sent));
        }
        const SyncRequest request;
        const std::vector<FrameworkSetting> settings =
            framework_settings(input, request, predict(input, request, {}, [](double) {}));
        for (const FrameworkSetting& setting : settings) {
            CAPTURE(i, setting.use.framework);
            if (setting.use.framework == Framework::megatron_distributed_optimizer) {
                continue;  // the best simulated
            }
            std::int64_t elements = 0;
            for (const TestGradient& gradient : drawn.gradients) {
                elements += gradient.numel;
            }
            const bool gathers = rule_of(setting.use).shards_optimizer;
            const Duration gather = microseconds{gathers ? 100 * ((elements + 3) / 4 * 4) : 0};
            // Megatron-LM's order of parameters may beat that of readiness.
            CHECK(setting.ideal == std::min(least + gather, setting.best.step));
        }
    }
}

// --- GPT-2 XL ---

struct ReadyGradient {
    std::int64_t numel = 0;
    Duration ready{0};  // from the start of backward
};

// GPT-2 XL (Radford et al. 2019): 48 layers of width 1,600, 50,257 tokens, 1,024 places, the
// embedding tied. In the order of readiness; each takes backward its share of the elements' time.
std::vector<ReadyGradient> gpt2_xl(Duration backward) {
    constexpr std::int64_t d = 1600;
    std::vector<std::int64_t> numels{d, d};  // of the last LayerNorm
    for (int layer = 0; layer < 48; ++layer) {
        for (const std::int64_t numel :
             {d, 4 * d * d, 4 * d, 4 * d * d, d, d, d, d * d, 3 * d, 3 * d * d, d, d}) {
            numels.push_back(numel);
        }
    }
    numels.push_back(1024 * d);
    numels.push_back(50257 * d);
    const std::int64_t all = std::accumulate(numels.begin(), numels.end(), std::int64_t{0});
    std::vector<ReadyGradient> gradients;
    std::int64_t done = 0;
    for (const std::int64_t numel : numels) {
        done += numel;
        gradients.push_back(
            {numel, scaled(backward, static_cast<double>(done) / static_cast<double>(all))});
    }
    return gradients;
}

// The rule, replayed: stage_1_and_2.py of 0.19, gradient by gradient. Computing, the network, and
// what one of its collectives takes, are all that there is.
double replayed_ms(const std::vector<ReadyGradient>& gradients, double forward_ms,
                   std::int64_t reduce_bucket_size, double latency_ms, double elements_per_ms) {
    double computed = forward_ms;  // when the compute stream has done all so far
    double reduced = 0;            // when the reduction stream has
    double before = 0;
    std::int64_t in_bucket = 0;
    std::int64_t all = 0;
    const auto flush = [&] {
        computed = std::max(computed, reduced);  // current_stream().wait_stream(reduction_stream)
        reduced = computed + latency_ms + static_cast<double>(in_bucket) / elements_per_ms;
        in_bucket = 0;
    };
    for (const ReadyGradient& gradient : gradients) {
        const double ready = to_ms(gradient.ready);
        computed += ready - before;
        before = ready;
        if (in_bucket > 0 && in_bucket + gradient.numel > reduce_bucket_size) {
            flush();
        }
        in_bucket += gradient.numel;
        all += gradient.numel;
    }
    flush();
    // all_gather_dp_groups: half the steps and half the bytes of an all-reduce.
    return reduced + latency_ms / 2 + static_cast<double>(all) / elements_per_ms / 2;
}

TEST_CASE("with GPT-2 XL DeepSpeed's 50 million elements are better than 5 million") {
    const std::vector<ReadyGradient> gradients = gpt2_xl(milliseconds{100});
    std::vector<GradientReadiness> listed;
    std::int64_t elements = 0;
    for (std::size_t i = gradients.size(); i-- > 0;) {  // parameters in the order of forward
        listed.push_back(
            {{std::to_string(i), gradients[i].numel, DType::bfloat16}, gradients[i].ready});
        elements += gradients[i].numel;
    }
    CHECK(elements == 1'557'611'200);
    // A ring of 32 ranks: 62 steps of 0.2 us an all-reduce, and 2 x 31/32 of its bytes; all of it
    // together takes 80 ms, 0.8 of backward.
    StepInput input;
    input.workload = workload_from_readiness(listed, milliseconds{50}, milliseconds{100});
    input.group = {32, 8};
    const double wire_bytes = static_cast<double>(elements) * 2 * 2 * 31 / 32;
    input.link.segments = {{std::nullopt,
                            std::chrono::nanoseconds{200},
                            {static_cast<std::int64_t>(wire_bytes / 0.080)}}};
    const double latency_ms = 62 * 0.0002;
    const double elements_per_ms = static_cast<double>(elements) / 80;

    FrameworkStep step(input, {}, zero2());
    const auto simulated_ms = [&](std::int64_t limit) {
        return to_ms(step.step(step.plan(Bytes{limit})));
    };
    for (const std::int64_t limit : {5'000'000, 50'000'000, 500'000'000}) {
        CAPTURE(limit);
        const double replayed = replayed_ms(gradients, 50, limit, latency_ms, elements_per_ms);
        CHECK(std::abs(simulated_ms(limit) / replayed - 1) < 0.01);
    }
    CHECK(simulated_ms(50'000'000) < simulated_ms(5'000'000));
    // The numbers that docs/frameworks.md has.
    CHECK(simulated_ms(5'000'000) == Approx(202.4).margin(0.05));
    CHECK(simulated_ms(50'000'000) == Approx(194.6).margin(0.05));
}

// --- what is typed ---

// Latency makes few buckets good, and the last one should be small: 16 gradients of 1 MB, ready
// every 0.8 ms, and a ring of 1 GB/s with 2 x 50 us. DDP's default sends 2 MB and then 14.
StepInput sixteen_gradients() {
    std::vector<TestGradient> gradients;
    for (int i = 16; i > 0; --i) {
        gradients.push_back({250'000, microseconds{800 * i}});
    }
    StepInput input = input_of(gradients, Duration{0}, microseconds{12'800});
    input.link.segments.front().latency = microseconds{50};
    return input;
}

TEST_CASE("settings are typed in each framework's own unit, and a list where it gains") {
    const StepInput input = sixteen_gradients();
    const SyncRequest request;
    const Prediction prediction = predict(input, request, {}, [](double) {});
    const std::vector<FrameworkSetting> settings = framework_settings(input, request, prediction);
    REQUIRE(settings.size() == every<Framework>.size());
    const FrameworkSetting& ddp = settings[0];
    REQUIRE(ddp.best.value);
    CHECK(ddp.best.step == prediction.sweep[prediction.best].times.step());
    CHECK(ddp.typed.find("DistributedDataParallel(model, bucket_cap_mb=") == 0);
    // 1 MiB, which the first bucket has anyway: it is typed alike everywhere.
    CHECK(ddp.typed.find("bucket_cap_mb=1)") != std::string::npos);
    CHECK(ddp.typed_elsewhere.empty());
    SyncRequest larger_first = request;
    larger_first.first_bucket = Bytes{3 << 20};
    CHECK(
        framework_settings(input, larger_first, predict(input, larger_first, {}, [](double) {}))[0]
            .typed_elsewhere.find("before PyTorch 2.4: torch.distributed._DEFAULT_FIRST") == 0);
    CHECK(settings[1].typed.find("--overlap-grad-reduce --ddp-bucket-size ") == 0);
    CHECK(settings[2].typed.find("--use-distributed-optimizer --overlap-grad-reduce ") == 0);
    CHECK(settings[3].typed.find("\"stage\": 1, \"overlap_comm\": true, \"reduce_b") == 0);
    CHECK(settings[4].typed.find("\"stage\": 2, \"overlap_comm\": true, \"reduce_b") == 0);
    CHECK(settings[5].typed.find("HOROVOD_FUSION_THRESHOLD=") == 0);
    for (const FrameworkSetting& setting : settings) {
        CAPTURE(setting.use.framework);
        CHECK(setting.ideal_is_optimum ==
              (setting.use.framework != Framework::megatron_distributed_optimizer));
        CHECK(setting.loss_of(setting.best.step) >= 0);
        CHECK(setting.best.step <= setting.framework_default.step);
    }
    if (!ddp.typed_list.empty()) {
        CHECK(ddp.list.step == ddp.ideal);
        CHECK(ddp.typed_list.find("bucket_cap_mb_list=[") != std::string::npos);
    }
}

TEST_CASE("PyTorch's first bucket is typed as each version takes it") {
    const StepInput input = sixteen_gradients();
    const auto typed = [&](const SyncRequest& request) {
        // Only this cap, with which the default is slower.
        const Prediction prediction = predict(input, request, {Bytes{2 << 20}}, [](double) {});
        return framework_settings(input, request, prediction)[0];
    };
    // Since 2.4 the cap is the first bucket's too; before, that was a variable.
    const FrameworkSetting since = typed({});
    CHECK(since.typed == "DistributedDataParallel(model, bucket_cap_mb=2)");
    CHECK(since.typed_elsewhere ==
          "before PyTorch 2.4: torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = 2097152; "
          "DistributedDataParallel(model, bucket_cap_mb=2)");
    // Before, the first bucket is 1 MiB; since, that takes a list.
    SyncRequest old_version;
    old_version.explicit_cap_sets_first = false;
    const FrameworkSetting before = typed(old_version);
    CHECK(before.typed == "DistributedDataParallel(model, bucket_cap_mb=2)");
    CHECK(before.typed_elsewhere ==
          "from the end of 2025 on: DistributedDataParallel(model, bucket_cap_mb_list=[1, 2])");
    SyncRequest own_first;
    own_first.first_bucket = Bytes{1 << 19};
    const FrameworkSetting own = typed(own_first);
    CHECK(own.typed == "DistributedDataParallel(model, bucket_cap_mb_list=[0.5, 2])");
    CHECK(own.typed_elsewhere.find("_DEFAULT_FIRST_BUCKET_BYTES = 524288; ") != std::string::npos);
    CHECK(before.best.bucket_bytes != since.best.bucket_bytes);
}

TEST_CASE("a version of PyTorch that is asked for has its own first bucket") {
    const StepInput input = sixteen_gradients();
    const Prediction prediction = predict(input, {}, {Bytes{2 << 20}}, [](double) {});
    const auto with = [&](std::optional<FrameworkVersion> version) {
        return framework_settings(input, {}, prediction,
                                  {{.framework = Framework::pytorch_ddp, .version = version}})
            .front();
    };
    SyncRequest old_version;
    old_version.explicit_cap_sets_first = false;
    const FrameworkSetting old = framework_settings(
        input, old_version, predict(input, old_version, {}, [](double) {}), {FrameworkUse{}})[0];
    CHECK(with(FrameworkVersion{2, 3, 1}).best.step == old.best.step);
    CHECK(with(FrameworkVersion{2, 15, 0}).best == with({}).best);
    CHECK(with(FrameworkVersion{1, 13, 1}).typed_elsewhere.find("PyTorch 2.4") ==
          std::string::npos);
}

TEST_CASE("defaults are the frameworks' own") {
    const auto limit = [](Framework framework, std::int64_t ranks) {
        return default_limit({.framework = framework}, ranks);
    };
    CHECK(limit(Framework::megatron_lm, 8) == Bytes{40'000'000});
    CHECK(limit(Framework::megatron_lm, 64) == Bytes{64'000'000});  // 1 M a rank
    CHECK(limit(Framework::deepspeed_zero1, 8) == Bytes{500'000'000});
    CHECK(limit(Framework::horovod, 8) == Bytes{134'217'728});
}

TEST_CASE("the roundest number of a range has the fewest digits") {
    CHECK(roundest_number(1, 1) == 1);
    CHECK(roundest_number(1'234'567, 1'299'999) == 1'240'000);
    CHECK(roundest_number(999, 1001) == 1000);
    CHECK(roundest_number(7, 12) == 10);
    CHECK(roundest_number(1'234'567, 1'234'569) == 1'234'567);
}

TEST_CASE("what frameworks hold for buckets is by their own rules") {
    // Four gradients of 250,000 elements.
    const StepInput input = four_gradients();
    const auto held = [&](const StepInput& of, const SyncRequest& request, const FrameworkUse& use,
                          std::optional<Bytes> limit) {
        const FrameworkStep step(of, request, use);
        return step.buffers(step.plan(limit).plan, limit).count;
    };
    SyncRequest request;
    CHECK(held(input, request, {}, std::nullopt) == 4'000'000);
    request.comm_hook = CommHook::fp16;  // half of it besides
    CHECK(held(input, request, {}, std::nullopt) == 6'000'000);
    request.views = true;
    CHECK(held(input, request, {}, std::nullopt) == 2'000'000);
    StepInput narrow = input;
    for (Gradient& gradient : narrow.workload.gradients) {
        gradient.dtype = DType::bfloat16;
    }
    const FrameworkUse megatron{.framework = Framework::megatron_lm};
    CHECK(held(narrow, {}, megatron, Bytes{300'000}) == 4'000'000);
    FrameworkUse deepspeed{.framework = Framework::deepspeed_zero2};
    // Two of 300,000 elements, and one.
    CHECK(held(input, {}, deepspeed, Bytes{300'000}) == 2'400'000);
    CHECK(held(narrow, {}, deepspeed, Bytes{300'000}) == 1'200'000);
    deepspeed.overlaps = false;
    CHECK(held(input, {}, deepspeed, Bytes{300'000}) == 1'200'000);
    deepspeed.contiguous_gradients = false;
    CHECK(held(input, {}, deepspeed, Bytes{300'000}) == 0);
    CHECK(held(input, {}, {.framework = Framework::horovod}, std::nullopt) == 128 << 20);
}

TEST_CASE("torch.compile is PyTorch's: caps of 1 MiB and more, and no other framework's") {
    const StepInput input = four_gradients();
    SyncRequest request;
    const auto settings = [&] {
        return framework_settings(input, request, predict(input, request, {}, [](double) {}));
    };
    const std::vector<FrameworkSetting> eager = settings();
    request.compiled = true;
    const std::vector<FrameworkSetting> compiled = settings();
    REQUIRE(compiled.size() == eager.size());
    for (std::size_t i = 0; i < compiled.size(); ++i) {
        CAPTURE(compiled[i].use.framework);
        const bool is_pytorch = compiled[i].use.framework == Framework::pytorch_ddp;
        CHECK((compiled[i].best == eager[i].best) == !is_pytorch);
    }
    const FrameworkSetting& pytorch = compiled.front();
    // Pieces of 2, 2 MB, the first as it reaches 1 MiB, ready at 3 and 5 ms; every cap sends both:
    // 3 + 2, and 5 + 2 ms.
    CHECK(pytorch.best.value.value_or(1) >= 1);
    CHECK(pytorch.best.step == milliseconds{7});
    CHECK(pytorch.ideal == pytorch.best.step);
    CHECK_FALSE(pytorch.ideal_is_optimum);
}

TEST_CASE("a step that BatchNorm, hooks and stragglers are in can be set for every framework") {
    StepInput input = four_gradients();
    input.copy_bandwidth = BytesPerSecond{100'000'000'000};
    input.classes = {{1, 1.5}, {1, 1.0}};
    input.link.interference = constant_interference({1'100'000, 1'200'000});
    SyncRequest request;
    request.views = true;
    request.comm_hook = CommHook::fp16;
    const std::vector<FrameworkSetting> settings =
        framework_settings(input, request, predict(input, request, {}, [](double) {}));
    for (const FrameworkSetting& setting : settings) {
        CAPTURE(setting.use.framework);
        CHECK_FALSE(setting.ideal_is_optimum);
        CHECK(setting.ideal > Duration{0});
        CHECK(setting.best.step <= setting.framework_default.step);
        // Forward 1.5 ms and backward 6 ms on the slower rank.
        CHECK(setting.best.step > microseconds{7500});
    }
}

}  // namespace
}  // namespace bucketwise
