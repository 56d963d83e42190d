#include "import/diagnosis/diagnosis.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "import/replay/changed_step.h"
#include "import/replay/trace_link.h"
#include "sim/link/link_presets.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/import/replay/imported_trace.h"
#include "tests/import/replay/stored_trace.h"

namespace bucketwise {
namespace {

using testing::contains;

// Steps of 10 to 20 ms, bound by the device.
TraceShape sound_shape() {
    TraceShape shape;
    shape.steps = 12;
    shape.gradients = {400'000, 300'000, 500'000, 200'000};
    shape.host_us = 20;
    shape.kernel_us = 800;
    shape.wire_us = 700;
    return shape;
}

Scenario scenario_of(TraceShape shape) {
    TraceImport imported = import_of(std::move(shape));
    return connect(imported, {}, no_file);
}

Diagnosis diagnosed(TraceShape shape, const Sound& sound = {}) {
    return diagnose({traced(std::move(shape))}, {}, sound).diagnosis;
}

Sound as_sound() {
    return {.expected = scenario_of(sound_shape())};
}

std::vector<TraceCause> kinds_of(const Diagnosis& diagnosis) {
    std::vector<TraceCause> kinds;
    for (const DiagnosedCause& cause : diagnosis.causes) {
        kinds.push_back(cause.kind);
    }
    return kinds;
}

double costs_ms(const Diagnosis& diagnosis, TraceCause kind) {
    const auto found = std::ranges::find(diagnosis.causes, kind, &DiagnosedCause::kind);
    return found == diagnosis.causes.end() ? 0 : to_ms(found->costs);
}

double step_ms(TraceShape shape) {
    return to_ms(import_of(std::move(shape)).summary.step);
}

// The only cause, and what it costs, against the steps with it and without it.
void check_only(TraceCause kind, const TraceShape& shape, const TraceShape& without,
                const Sound& sound) {
    const Diagnosis diagnosis = diagnosed(shape, sound);
    CAPTURE(text_of(diagnosis), name_of(kind));
    REQUIRE(kinds_of(diagnosis) == std::vector{kind});
    const double costs = step_ms(shape) - step_ms(without);
    REQUIRE(costs > 0.5);
    CHECK(costs_ms(diagnosis, kind) == Approx(costs).epsilon(0.1));
    CHECK(std::abs(to_ms(diagnosis.unexplained())) < 0.1 * costs);
    CHECK(to_ms(diagnosis.expected) == Approx(step_ms(without)).epsilon(0.03));
    CHECK(first_line(diagnosis).starts_with("This step should take "));
    CHECK_FALSE(diagnosis.causes.front().evidence.empty());
    CHECK_FALSE(diagnosis.causes.front().change.empty());
}

}  // namespace

TEST_CASE("a step that is as it should be has no causes, with something to compare it with or not",
          "[diagnosis]") {
    for (const Sound& sound : {Sound{}, as_sound()}) {
        const Diagnosis diagnosis = diagnosed(sound_shape(), sound);
        CAPTURE(text_of(diagnosis));
        CHECK(diagnosis.causes.empty());
        CHECK(first_line(diagnosis).starts_with(
            sound.expected ? "This step takes what it should: "
                           : "Nothing that this trace shows by itself is wrong: "));
        CHECK(diagnosis.least < diagnosis.expected);
        CHECK(diagnosis.expected < diagnosis.most);
        CHECK(std::abs(diagnosis.longer()) < 0.02);
    }
}

TEST_CASE("a host that does nothing is told, with where and for how long", "[diagnosis]") {
    TraceShape shape = sound_shape();
    shape.idle_us = 9000;
    check_only(TraceCause::late_host, shape, sound_shape(), {});
    const Diagnosis idle = diagnosed(shape);
    CHECK(contains(idle.causes.front().evidence, "before cudaLaunchKernel, in forward of "));
    CHECK(contains(idle.causes.front().evidence, "its host does nothing for 9.0"));
    shape.loads_data = true;
    check_only(TraceCause::late_host, shape, sound_shape(), as_sound());
    const Diagnosis loading = diagnosed(shape);
    CHECK(loading.causes.front().text == "the host waits for data");
    CHECK(contains(loading.causes.front().evidence, "before data loading"));
    // A device that is busy meanwhile hides it.
    TraceShape hidden = sound_shape();
    hidden.forward_kernels = 20;
    hidden.kernel_us = 3000;
    hidden.idle_us = 1500;
    CHECK(diagnosed(hidden).causes.empty());
}

TEST_CASE("a host that is in a library's operation does something; a script's range says nothing",
          "[diagnosis]") {
    TraceShape shape = sound_shape();
    shape.idle_us = 9000;
    shape.idle_in = "aten::unflatten_dense_tensors";
    const Diagnosis busy = diagnosed(shape);
    CAPTURE(text_of(busy));
    CHECK(busy.causes.empty());
    shape.idle_in = "## forward ##";
    CHECK(kinds_of(diagnosed(shape)) == std::vector{TraceCause::late_host});
    // The same holds for a CPU, whose operations are all kept.
    shape.device = false;
    shape.idle_in = "aten::unflatten_dense_tensors";
    CHECK(std::ranges::all_of(traced(shape).steps,
                              [](const TracedStep& step) { return step.gaps.empty(); }));
    shape.idle_in = "## forward ##";
    CHECK(std::ranges::all_of(traced(shape).steps, [](const TracedStep& step) {
        return step.gaps.size() == 1 && step.gaps.front().counted > duration_from_us(8900);
    }));
}

TEST_CASE("a host that waits for the device, and a stream that waits for others, are told",
          "[diagnosis]") {
    TraceShape reads = sound_shape();
    reads.host_us = 120;  // which the device would hide
    reads.kernel_us = 300;
    TraceShape without = reads;
    reads.reads_loss = reads.reads_norm = true;
    const Diagnosis waiting = diagnosed(reads, {.expected = scenario_of(without)});
    CAPTURE(text_of(waiting));
    REQUIRE(kinds_of(waiting) == std::vector{TraceCause::host_waits});
    CHECK(costs_ms(waiting, TraceCause::host_waits) ==
          Approx(step_ms(reads) - step_ms(without) - 0.3).epsilon(0.1));  // but for a kernel more
    TraceShape stalls = sound_shape();
    stalls.stall_us = 4000;
    const Diagnosis stalled = diagnosed(stalls);
    CAPTURE(text_of(stalled));
    REQUIRE(kinds_of(stalled) == std::vector{TraceCause::other_streams});
    CHECK(costs_ms(stalled, TraceCause::other_streams) == Approx(4).epsilon(0.1));
}

TEST_CASE("forward that runs again in backward is a cause where it was not expected",
          "[diagnosis]") {
    TraceShape again = sound_shape();
    again.recomputed_kernels = 2;
    check_only(TraceCause::recompute, again, sound_shape(), as_sound());
    CHECK(contains(diagnosed(again, as_sound()).causes.front().evidence,
                   "6.37 ms of backward's 9.57"));
    // Expected, or with nothing to compare it with, it is none.
    CHECK(diagnosed(again, {.expected = scenario_of(again)}).causes.empty());
    CHECK(diagnosed(again).causes.empty());
    // With slower computing: both, each once.
    again.kernel_us *= 1.3;
    const Diagnosis both = diagnosed(again, as_sound());
    CAPTURE(text_of(both));
    CHECK(kinds_of(both) == std::vector{TraceCause::recompute, TraceCause::slow_computing});
    CHECK(std::abs(to_ms(both.unexplained())) < 0.5);
}

TEST_CASE("slow computing and a slow link are told apart, against what is expected",
          "[diagnosis]") {
    TraceShape computing = sound_shape();
    computing.kernel_us *= 1.3;
    check_only(TraceCause::slow_computing, computing, sound_shape(), as_sound());
    CHECK(contains(
        diagnosed(computing, as_sound()).causes.front().evidence,
        "half of the operations take 1.30 to 1.30 times as long, all by about one factor"));
    TraceShape link = sound_shape();
    link.wire_us *= 6;
    check_only(TraceCause::slow_link, link, sound_shape(), as_sound());
    // The link alone tells, too.
    const Sound of_link{.link = as_sound().expected->link};
    check_only(TraceCause::slow_link, link, sound_shape(), of_link);
    CHECK(contains(diagnosed(link, of_link).causes.front().evidence, "on the wire"));
    // Both: the larger first, and together what is lost.
    TraceShape both = link;
    both.kernel_us *= 1.3;
    const Diagnosis two = diagnosed(both, as_sound());
    CAPTURE(text_of(two));
    CHECK(kinds_of(two).size() == 2);
    CHECK(std::abs(to_ms(two.unexplained())) < 0.5);
    CHECK(two.causes.front().costs >= two.causes.back().costs);
}

TEST_CASE("a host that launches slowly is told from a slow device", "[diagnosis]") {
    TraceShape fast = sound_shape();
    fast.kernel_us = 30;
    fast.wire_us = 20;
    TraceShape slow = fast;
    slow.host_us = 60;
    const Sound sound{.expected = scenario_of(fast)};
    const Diagnosis diagnosis = diagnosed(slow, sound);
    CAPTURE(text_of(diagnosis));
    REQUIRE_FALSE(diagnosis.causes.empty());
    CHECK(diagnosis.causes.front().kind == TraceCause::slow_launching);
}

// The first all-reduce of each step lasts longer, as another rank comes later.
TracedRank waiting(TraceShape shape, double ms) {
    TracedRank rank = traced(std::move(shape), "a.json");
    for (TracedStep& step : rank.steps) {
        TracedCollective& first = step.collectives.front();
        first.end = *first.end + duration_from_ms(ms);
        step.length += duration_from_ms(ms);
    }
    return rank;
}

TEST_CASE("the rank that the others wait for is told, and where it is late", "[diagnosis]") {
    TraceShape punctual = sound_shape();
    TraceShape late = sound_shape();
    late.rank = 1;
    late.idle_us = 12'000;
    late.loads_data = true;
    const double costs = step_ms(late) - step_ms(punctual);
    // Both ranks' all-reduces end together, and the first one of the punctual rank waits.
    const std::vector<TracedRank> ranks{waiting(punctual, costs), traced(late, "b.json")};
    const Diagnosis diagnosis = diagnose(ranks, {}, {}).diagnosis;
    CAPTURE(text_of(diagnosis));
    REQUIRE_FALSE(diagnosis.causes.empty());
    CHECK(diagnosis.causes.front().kind == TraceCause::late_rank);
    CHECK(diagnosis.causes.front().text == "rank 1 is late, and the others wait for it");
    CHECK(contains(diagnosis.causes.front().evidence, "before data loading"));
    CHECK(costs_ms(diagnosis, TraceCause::late_rank) == Approx(costs).epsilon(0.1));
}

TEST_CASE("causes told by times cost no more than the step took beyond what is expected",
          "[diagnosis]") {
    TraceShape late = sound_shape();
    late.rank = 1;
    late.idle_us = 12'000;
    const double costs = step_ms(late) - step_ms(sound_shape());
    REQUIRE(costs > 2);
    const std::vector<TracedRank> ranks{waiting(sound_shape(), costs), traced(late, "b.json")};
    const auto with_expected = [&](double kernel_us) {
        TraceShape expected = sound_shape();
        expected.kernel_us = kernel_us;
        return diagnose(ranks, {}, {.expected = scenario_of(expected)}).diagnosis;
    };
    CHECK(costs_ms(with_expected(sound_shape().kernel_us), TraceCause::late_rank) ==
          Approx(costs).epsilon(0.1));
    const Diagnosis half = with_expected(1000);
    CAPTURE(text_of(half));
    REQUIRE(half.expected < half.traced);
    CHECK(half.causes.front().kind == TraceCause::late_rank);
    CHECK(half.causes.front().costs == half.traced - half.least);
    const Diagnosis none = with_expected(1500);
    CAPTURE(text_of(none));
    REQUIRE(none.expected > none.traced);
    CHECK(none.causes.empty());
    CHECK(first_line(none).starts_with("This step takes less than it should: "));
    // Settings have no such bound.
    TraceShape again = sound_shape();
    again.recomputed_kernels = 2;
    TraceShape slow = sound_shape();
    slow.kernel_us = 2000;
    REQUIRE(step_ms(slow) > step_ms(again));
    CHECK(kinds_of(diagnosed(again, {.expected = scenario_of(slow)})) ==
          std::vector{TraceCause::recompute});
}

TEST_CASE("small buckets are told by the traced link, too, where it reaches the larger ones",
          "[diagnosis]") {
    TraceShape shape = sound_shape();
    shape.wire_us = 4000;
    shape.bucket_ends = {1, 2, 3, 4};
    Sound sound{.expected = scenario_of(shape)};
    sound.expected->sync.bucket_cap = Cap(Bytes{std::int64_t{64} << 20});
    sound.expected->sync.first_bucket.reset();
    sound.expected->link = slowed(sound.expected->link, 4);
    const Diagnosis diagnosis = diagnosed(shape, sound);
    CAPTURE(text_of(diagnosis));
    CHECK(kinds_of(diagnosis) == std::vector{TraceCause::small_buckets});
}

TEST_CASE("what presets leave of the expected step is no cause", "[diagnosis]") {
    Sound sound = as_sound();
    sound.expected->link = preset_link(*find_preset("eth-10g"), PresetEnd::typical);
    TraceShape shape = sound_shape();
    const Diagnosis typical = diagnosed(shape, sound);
    CAPTURE(text_of(typical));
    CHECK(typical.causes.empty());
    CHECK(to_ms(typical.most) > 1.1 * to_ms(typical.expected));
    shape.wire_us *= 5;
    const Diagnosis within = diagnosed(shape, sound);
    CAPTURE(text_of(within));
    CHECK(within.traced > within.expected);
    CHECK(within.traced <= within.most);
    CHECK(within.causes.empty());
    shape.wire_us *= 2;
    const Diagnosis beyond = diagnosed(shape, sound);
    CAPTURE(text_of(beyond));
    CHECK(beyond.traced > beyond.most);
    CHECK(kinds_of(beyond) == std::vector{TraceCause::slow_link});
}

TEST_CASE("a host that does nothing costs no more than the rank that is then the slowest leaves",
          "[diagnosis]") {
    TraceShape idle = sound_shape();
    idle.rank = 1;
    idle.idle_us = 12'000;
    TraceShape idle_too = idle;
    idle_too.rank = 0;
    TraceShape working = sound_shape();  // nearly as long by computing alone
    working.rank = 0;
    working.kernel_us = 1100;
    const double left = step_ms(idle) - step_ms(working);
    REQUIRE(left > 1);
    REQUIRE(left < 4);
    const auto late_host_ms = [&](const TraceShape& other) {
        const std::vector<TracedRank> ranks{waiting(other, left), traced(idle, "b.json")};
        return costs_ms(diagnose(ranks, {}, as_sound()).diagnosis, TraceCause::late_host);
    };
    CHECK(late_host_ms(idle_too) == Approx(step_ms(idle) - step_ms(sound_shape())).epsilon(0.1));
    CHECK(late_host_ms(working) <= 1.1 * left);

    // A rank whose steps are not alike tells nothing, whenever it is asked.
    TracedRank odd = waiting(working, left);
    odd.rank = 2;
    odd.file = "c.json";
    TracedCollective& one = odd.steps[1].collectives.front();
    one.elements += 1;
    one.bytes += Bytes{4};
    const Diagnosis diagnosis =
        diagnose({waiting(idle_too, left), traced(idle, "b.json"), odd}, {}, as_sound()).diagnosis;
    CHECK(costs_ms(diagnosis, TraceCause::late_host) ==
          Approx(step_ms(idle) - step_ms(sound_shape())).epsilon(0.1));
}

// tests/pytorch/plant_causes.py: steps with rank 1 late took 539.2 ms, and steps without 394.8 ms.
TEST_CASE("a late rank of a real training costs what it was measured to cost", "[diagnosis]") {
    std::vector<TracedRank> ranks;
    for (const char* file : {"traces/late_rank.0", "traces/late_rank.1"}) {
        ranks.push_back(traced_rank(read_kineto_trace(stored_trace(file), file)));
    }
    std::ifstream stream(BUCKETWISE_TEST_DATA_DIR "/traces/late_rank_expected.json");
    const Sound sound{.expected = parse_scenario(Json::parse(stream), "expected", no_file)};
    for (const Sound& given : {sound, Sound{}}) {
        const Diagnosis diagnosis = diagnose(ranks, {}, given).diagnosis;
        CAPTURE(text_of(diagnosis));
        CHECK(kinds_of(diagnosis) == std::vector{TraceCause::late_rank});
        CHECK(diagnosis.causes.front().text == "rank 1 is late, and the others wait for it");
        CHECK(costs_ms(diagnosis, TraceCause::late_rank) == Approx(539.2 - 394.8).epsilon(0.1));
    }
}

TEST_CASE("copies are a cause where what is expected has none", "[diagnosis]") {
    TraceShape copies = sound_shape();
    copies.copies_back = true;
    copies.copy_us = 250;
    const Diagnosis diagnosis = diagnosed(copies);
    CAPTURE(text_of(diagnosis));
    CHECK(kinds_of(diagnosis) == std::vector{TraceCause::copies});
    CHECK(diagnosis.causes.front().change == "gradient_as_bucket_view=True");
    // They are expected where the sound step has them.
    const Sound same{.expected = scenario_of(copies)};
    CHECK(diagnosed(copies, same).causes.empty());
}

TEST_CASE("a diagnosis as JSON adds up", "[diagnosis]") {
    TraceShape shape = sound_shape();
    shape.idle_us = 9000;
    const Diagnosis diagnosis = diagnosed(shape);
    const Json json = diagnosis_json(diagnosis);
    double sum = json["expected_step_ms"].get<double>() + json["unexplained_ms"].get<double>();
    for (const Json& cause : json["causes"]) {
        sum += cause["costs_ms"].get<double>();
    }
    CHECK(sum == Approx(json["step_ms"].get<double>()));
    CHECK(json["causes"][0]["cause"] == "late_host");
    CHECK(json["expected_range_ms"][0] < json["expected_range_ms"][1]);
}

}  // namespace bucketwise
