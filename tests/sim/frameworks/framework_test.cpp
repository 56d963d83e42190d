// Frameworks' bucket rules against buckets and steps worked out by hand, and against naive
// simulations that share no code with them.
#include "sim/frameworks/framework.h"

#include <algorithm>
#include <functional>
#include <map>
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
    FrameworkStep step(input, {}, Framework::megatron_lm);
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
    FrameworkStep step(input, {}, Framework::megatron_lm);
    const FusedPlan fused = step.plan(Bytes{500'000});
    CHECK(groups_of(fused.plan) == Groups{{3, 2}, {1, 0}});
    // {b, a} 3 to 5 ms, {d, c} 5 to 7; in bucket order it would be 4 to 6 and 6 to 8.
    CHECK(step.step(fused) == milliseconds{7});
}

TEST_CASE("DeepSpeed sends a bucket with the gradient that no longer fits") {
    const StepInput input = four_gradients();
    FrameworkStep step(input, {}, Framework::deepspeed);
    const FusedPlan fused = step.plan(Bytes{500'000});
    CHECK(groups_of(fused.plan) == Groups{{3, 2}, {1, 0}});
    // {d, c} waits for b, at 1 + 3 = 4 ms, and takes 2; {b, a} goes at the end, at 5, and begins at
    // 6: 8 ms, where Megatron-LM's same buckets take 7.
    CHECK(step.step(fused) == milliseconds{8});
    // One element less and every gradient is alone, each waiting for the next: d 3, c 4, b 5, a 6.
    CHECK(groups_of(step.plan(Bytes{499'999}).plan) == Groups{{3}, {2}, {1}, {0}});
    CHECK(step.step(step.plan(Bytes{499'999})) == milliseconds{7});
}

TEST_CASE("with DeepSpeed a gradient larger than the bucket is alone") {
    const StepInput input = input_of({{100'000, milliseconds{4}},
                                      {100'000, milliseconds{3}},
                                      {400'000, milliseconds{2}},
                                      {250'000, milliseconds{1}}},
                                     Duration{0}, milliseconds{4});
    const FrameworkStep step(input, {}, Framework::deepspeed);
    CHECK(groups_of(step.plan(Bytes{300'000}).plan) == Groups{{3}, {2}, {1, 0}});
}

TEST_CASE("limits in elements count alike for every dtype, each with buckets of its own") {
    // 100 elements: two float16 gradients of 50 each, and two float32 of 60 each.
    const StepInput input = input_of({{60, milliseconds{4}},
                                      {50, milliseconds{3}, DType::float16},
                                      {60, milliseconds{2}},
                                      {50, milliseconds{1}, DType::float16}},
                                     Duration{0}, milliseconds{4});
    const FrameworkStep megatron(input, {}, Framework::megatron_lm);
    CHECK(groups_of(megatron.plan(Bytes{100}).plan) == Groups{{3, 1}, {2, 0}});
    CHECK(groups_of(megatron.plan(Bytes{60}).plan) == Groups{{2}, {3, 1}, {0}});
    const FrameworkStep deepspeed(input, {}, Framework::deepspeed);
    CHECK(groups_of(deepspeed.plan(Bytes{100}).plan) == Groups{{2}, {0}, {3, 1}});
}

TEST_CASE("Horovod fuses what became ready between two cycles") {
    const StepInput input = four_gradients();  // ready 2, 3, 4 and 5 ms into the step
    FrameworkStep step(input, {}, Framework::horovod);
    // Every millisecond one: 2 to 3, 3 to 4, 4 to 5, 5 to 6.
    const FusedPlan each = step.plan(std::nullopt, milliseconds{1});
    CHECK(groups_of(each.plan) == Groups{{3}, {2}, {1}, {0}});
    CHECK(step.step(each) == milliseconds{6});
    // At 2 ms d, at 4 ms c and b, at 6 ms a: 2 to 3, 4 to 6, 6 to 7.
    const FusedPlan two = step.plan(std::nullopt, milliseconds{2});
    CHECK(groups_of(two.plan) == Groups{{3}, {2, 1}, {0}});
    CHECK(two.times == std::vector<Duration>{milliseconds{2}, milliseconds{4}, milliseconds{6}});
    CHECK(step.step(two) == milliseconds{7});
    // 2,000,000 bytes are as many as fit; one less and they go one by one, at the same time.
    CHECK(two.plan.same_plan.lowest == Bytes{2'000'000});
    CHECK(groups_of(step.plan(Bytes{1'999'999}, milliseconds{2}).plan) ==
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
        return groups_of(
            fuse_in_cycles(gradients, {0, 1, 2, 3}, at_once, {threshold}, default_cycle).plan);
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

TEST_CASE("Horovod's thread waits for a response's gradients before it looks again") {
    // All handed over at once, as a host does that runs ahead; there at 1, 2, 3 and 10 ms.
    std::vector<GradientMoments> moments;
    for (const int ms : {1, 2, 3, 10}) {
        moments.push_back({Duration{0}, milliseconds{ms}});
    }
    const std::vector<Gradient> gradients(4, Gradient{"g", 100, DType::float32});
    // Two fit; the first response goes at 2 ms, the second at 10.
    const FusedPlan fused =
        fuse_in_cycles(gradients, {0, 1, 2, 3}, moments, {800}, milliseconds{1});
    CHECK(groups_of(fused.plan) == Groups{{0, 1}, {2, 3}});
    CHECK(fused.times == std::vector<Duration>{milliseconds{2}, milliseconds{10}});
}

TEST_CASE("copies into and out of Horovod's buffer are part of its all-reduces") {
    StepInput input = four_gradients();
    input.copy_bandwidth = BytesPerSecond{10'000'000'000};  // 0.1 ms a megabyte
    FrameworkStep step(input, {}, Framework::horovod);
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

Duration naive_deepspeed(const RandomStep& step, std::int64_t limit) {
    Sent sent;
    std::int64_t open = 0;
    for (const std::size_t i : by_readiness(step)) {
        const TestGradient& gradient = step.gradients[i];
        if (open > 0 && open + gradient.numel > limit) {
            sent.emplace_back(step.forward + gradient.ready, 4 * open);
            open = 0;
        }
        open += gradient.numel;
    }
    sent.emplace_back(step.forward + step.backward, 4 * open);
    return step_of(step, sent);
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
        const Duration cycle = settings[3].cycle.value();
        const std::map<Framework, std::function<Duration(std::int64_t)>> naive{
            {Framework::megatron_lm, [&](std::int64_t n) { return naive_megatron(drawn, n); }},
            {Framework::deepspeed, [&](std::int64_t n) { return naive_deepspeed(drawn, n); }},
            {Framework::horovod, [&](std::int64_t n) { return naive_horovod(drawn, n, cycle); }}};
        for (std::size_t f = 1; f < settings.size(); ++f) {
            const Framework framework = every<Framework>[f];
            FrameworkStep step(input, {}, framework);
            Duration least = longest_duration;
            // 8 gradients of 12 elements are at most 96 elements and 384 bytes.
            for (std::int64_t limit = 1; limit <= 385; ++limit) {
                const FusedPlan fused = step.plan(Bytes{limit}, cycle);
                const Duration duration = step.step(fused);
                CAPTURE(i, f, limit);
                REQUIRE(duration == naive.at(framework)(limit));
                REQUIRE(step.at_least(fused) <= duration);
                least = std::min(least, duration);
            }
            CAPTURE(i, f);
            CHECK(settings[f].best.step == least);
            CHECK(naive.at(framework)(static_cast<std::int64_t>(*settings[f].best.value)) == least);
            CHECK(settings[f].ideal_is_optimum);
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
            CAPTURE(i, setting.framework);
            // Megatron-LM's order of parameters may beat that of readiness.
            CHECK(setting.ideal == std::min(least, setting.best.step));
        }
    }
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
    REQUIRE(settings.size() == 4);
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
    CHECK(settings[2].typed.find("\"overlap_comm\": true, \"reduce_bucket_size\": ") == 0);
    CHECK(settings[3].typed.find("HOROVOD_FUSION_THRESHOLD=") == 0);
    for (const FrameworkSetting& setting : settings) {
        CAPTURE(setting.framework);
        CHECK(setting.ideal_is_optimum);
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

TEST_CASE("defaults are the frameworks' own") {
    CHECK(default_limit(Framework::megatron_lm, 8) == Bytes{40'000'000});
    CHECK(default_limit(Framework::megatron_lm, 64) == Bytes{64'000'000});  // 1 M a rank
    CHECK(default_limit(Framework::deepspeed, 8) == Bytes{500'000'000});
    CHECK(default_limit(Framework::horovod, 8) == Bytes{134'217'728});
}

TEST_CASE("the roundest number of a range has the fewest digits") {
    CHECK(roundest_number(1, 1) == 1);
    CHECK(roundest_number(1'234'567, 1'299'999) == 1'240'000);
    CHECK(roundest_number(999, 1001) == 1000);
    CHECK(roundest_number(7, 12) == 10);
    CHECK(roundest_number(1'234'567, 1'234'569) == 1'234'567);
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
        CAPTURE(setting.framework);
        CHECK_FALSE(setting.ideal_is_optimum);
        CHECK(setting.ideal > Duration{0});
        CHECK(setting.best.step <= setting.framework_default.step);
        // Forward 1.5 ms and backward 6 ms on the slower rank.
        CHECK(setting.best.step > microseconds{7500});
    }
}

}  // namespace
}  // namespace bucketwise
