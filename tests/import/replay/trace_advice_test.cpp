#include "import/replay/trace_advice.h"

#include <algorithm>
#include <string>
#include <utility>

#include "import/replay/trace_link.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/import/replay/imported_trace.h"

namespace bucketwise {
namespace {

using testing::contains;

struct Advised {
    TraceAdvice advice;
    Replay replay;
};

Advised advised(TraceShape shape) {
    TraceImport imported = import_of(std::move(shape));
    const Scenario scenario = connect(imported, {}, no_file);
    const Replay replayed = replay(imported, scenario);
    return {advise(imported, scenario, replayed), replayed};
}

Duration saving_of(const TraceAdvice& advice, const std::string& begin) {
    const auto found = std::ranges::find_if(
        advice.savings, [&](const Saving& saving) { return saving.change.starts_with(begin); });
    return found == advice.savings.end() ? Duration{0} : found->saves;
}

TEST_CASE("a step that waits for launches is bound by them, and says what fewer would save",
          "[advice]") {
    TraceShape shape;  // 50 us of host to 10 us of device
    const Advised advice = advised(shape);
    CHECK(advice.advice.binds.starts_with("launching: of "));
    CHECK(advice.advice.savings.front().change.starts_with("launch less"));
    CHECK(advice.advice.savings.front().at_most);
    // The rest is the device's: 4 + 4 + 1 kernels of 10 us, 4 + 4 copies of 4 us, and the exposed
    // part of two all-reduces of 100 us.
    const Duration left = advice.replay.step - advice.advice.savings.front().saves;
    CHECK(to_us(left) > 9 * 10 + 8 * 4);
    CHECK(to_us(left) < 9 * 10 + 8 * 4 + 200);
}

TEST_CASE("advice is withheld where the simulated buckets are not the traced ones", "[advice]") {
    TraceImport imported = import_of({});
    const Scenario scenario = connect(imported, {}, no_file);
    Replay replayed = replay(imported, scenario);
    REQUIRE(replayed.same_buckets);
    replayed.same_buckets = false;
    replayed.step = replayed.traced.step;  // right by luck
    const TraceAdvice advice = advise(imported, scenario, replayed);
    CHECK(advice.savings.empty());
    CHECK(contains(verdict_text(advice),
                   "Do not rely on this: the simulated buckets are not the traced ones"));
    state_caveats(replayed, imported);
    CHECK(contains(imported.scenario.dump(), "the simulated buckets are not the traced ones"));
}

TEST_CASE("a step whose all-reduces stick out is bound by them, and says which bucket",
          "[advice]") {
    TraceShape shape;
    shape.host_us = 6;
    shape.wire_us = 5000;
    shape.bucket_ends = {4};  // one all-reduce, so that its time is taken for bandwidth
    const Advised advice = advised(shape);
    const StepAccount& account = advice.replay.traced.account;
    CHECK(account.communicating > account.computing);
    CHECK(advice.advice.binds.starts_with("communication: of "));
    CHECK(contains(advice.advice.communication, "are exposed: bucket"));
    // A cast halves what travels, and takes some passes over it.
    CHECK(to_us(saving_of(advice.advice, "bf16_compress_hook")) == Approx(2500).margin(50));
    CHECK(to_us(saving_of(advice.advice, "a link twice as fast")) == Approx(2500).margin(1));
}

TEST_CASE("a step that waits for its host or for others says what that costs", "[advice]") {
    TraceShape shape;
    shape.steps = 6;
    shape.host_us = 30;
    shape.kernel_us = 200;
    TraceShape reads = shape;
    reads.reads_loss = true;
    CHECK(saving_of(advised(reads).advice, "let the host run on") > Duration{0});
    CHECK(saving_of(advised(shape).advice, "let the host run on") == Duration{0});
    TraceShape stalls = shape;
    stalls.stall_us = 3000;
    const Advised advice = advised(stalls);
    CHECK(contains(advice.advice.binds, "other streams or ranks: of "));
    CHECK(to_us(saving_of(advice.advice, "no waits for other streams or ranks")) ==
          Approx(3000).epsilon(0.02));
}

TEST_CASE("what backward computes again is told by what autograd records there", "[advice]") {
    TraceShape shape;
    shape.recomputed_kernels = 3;
    const auto recomputed = [](const TraceShape& traced) {
        std::vector<double> shares;
        const TraceImport imported = import_of(traced);
        for (const Json& operation : imported.scenario["workload"]["backward_operations"]) {
            shares.push_back(operation.value("recomputed", 0.0));
        }
        return shares;
    };
    // On a device each kernel is forward's or it is not; the fourth makes the gradient ready.
    std::vector<double> shares = recomputed(shape);
    CHECK(std::ranges::count(shares, 1.0) == 12);
    CHECK(std::ranges::count(shares, 0.0) == std::ssize(shares) - 12);
    CHECK(contains(findings_of(import_of(shape)), "compute forward again"));
    // On a CPU all up to a gradient is one operation: three of four launches, and AccumulateGrad.
    shape.device = false;
    shares = recomputed(shape);
    const auto some = [](double share) { return share > 0.6 && share < 0.75; };
    CHECK(std::ranges::count_if(shares, some) == 4);
    CHECK(std::ranges::count(shares, 0.0) == std::ssize(shares) - 4);
    // Backward that is differentiated is recorded whole.
    shape.device = true;
    shape.recomputed_kernels = 0;
    shape.differentiable = true;
    CHECK(std::ranges::count(recomputed(shape), 0.0) == std::ssize(recomputed(shape)));
}

TEST_CASE("what keeping activations would save is the time of forward in backward", "[advice]") {
    TraceShape shape;
    shape.host_us = 6;
    shape.kernel_us = 300;
    TraceShape again = shape;
    again.recomputed_kernels = 3;
    const Advised advice = advised(again);
    const Duration saves = saving_of(advice.advice, "no activation checkpointing");
    CHECK(to_us(saves) == Approx(4 * 3 * 300).epsilon(0.01));
    CHECK(to_us(advice.replay.step - saves) ==
          Approx(to_us(advised(shape).replay.step)).epsilon(0.01));
    CHECK(saving_of(advised(shape).advice, "no activation checkpointing") == Duration{0});
}

TEST_CASE("what the account has of a step is all of it, traced and replayed", "[advice]") {
    for (const double host_us : {6.0, 50.0}) {
        for (const double stall_us : {0.0, 400.0}) {
            TraceShape shape;
            shape.steps = 6;
            shape.host_us = host_us;
            shape.stall_us = stall_us;
            shape.kernel_us = 40;
            shape.buffers = 2;
            const Advised advice = advised(shape);
            CHECK(advice.replay.simulated.account.step() == advice.replay.step);
            CHECK(to_us(advice.replay.traced.account.step()) ==
                  Approx(to_us(advice.replay.traced.step)).epsilon(0.01));
        }
    }
}

}  // namespace
}  // namespace bucketwise
