// The cost of overlap in a trace: measured by a second one or by micro-steps, or assumed.
#include "import/replay/undisturbed.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "import/replay/replay.h"
#include "import/replay/trace_link.h"
#include "sim/base/error.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/import/replay/imported_trace.h"

namespace bucketwise {
namespace {

using testing::contains;

// The device is always busy: launches take 6 us, kernels 100. Every third of twelve gradients ends
// a bucket, so nine kernels of backward come after an all-reduce was issued. Each all-reduce takes
// 250 us.
TraceShape busy_shape() {
    return {.gradients = std::vector<std::int64_t>(12, 400'000),
            .bucket_ends = {3, 6, 9, 12},
            .host_us = 6,
            .kernel_us = 100,
            .wire_us = 250};
}

TraceShape disturbed_shape() {
    TraceShape shape = busy_shape();
    shape.product_slowdown = 1.25;
    shape.slowdown = 1.5;
    return shape;
}

struct Connected {
    TraceImport imported;
    Scenario scenario;
    [[nodiscard]] Json link() const { return imported.scenario["cluster"]["link"]; }
    // The times of backward kernels.
    [[nodiscard]] std::vector<double> kernels_us() const {
        std::vector<double> times;
        for (const Json& operation : imported.scenario["workload"]["backward_operations"]) {
            if (operation["name"].get<std::string>().starts_with("backward")) {
                times.push_back(operation["device_us"].get<double>());
            }
        }
        return times;
    }
};

Connected connected(const TracedRank& rank, TraceImportRequest request = {},
                    const std::optional<std::string>& link = {}, const std::string& file = {}) {
    TraceImport imported = import_trace({rank}, std::move(request));
    Scenario scenario = connect(imported, link, [&](const std::string&) { return file; });
    return {std::move(imported), std::move(scenario)};
}

// How far the replay of the same step is off where nothing slows anything: in the written trace
// nothing is copied back before the last all-reduce is done.
double calm_error(std::int64_t micro_steps = 1) {
    const Json free{{"name", "measured"},
                    {"algorithm", "ring"},
                    {"segments", {{{"latency_us", 125}, {"bandwidth_gb_per_s", 1e6}}}}};
    TraceShape shape = busy_shape();
    shape.backwards = micro_steps;
    const Connected calm = connected(traced(shape), {}, "link.json", free.dump());
    return replay(calm.imported, calm.scenario).error();
}

void check_alone(const Connected& run) {
    const std::vector<double> times = run.kernels_us();
    REQUIRE(times.size() == 12);
    for (const double time : times) {
        CHECK(time == Approx(100).epsilon(0.002));
    }
}

void check_measured(const Connected& run, std::int64_t micro_steps = 1) {
    check_alone(run);
    const Json interference = run.link()["interference"];
    CHECK(interference["product_slowdown"].get<double>() == Approx(1.25).epsilon(0.01));
    CHECK(interference["rest_slowdown"].get<double>() == Approx(1.5).epsilon(0.01));
    CHECK(interference["communication_slowdown"] == 1);  // as traced
    // The simulator slows both kinds by their mixture, here as many of each.
    CHECK(replay(run.imported, run.scenario).error() ==
          Approx(calm_error(micro_steps)).margin(0.005));
}

TEST_CASE("kernels that were slowed beside all-reduces get the times of a trace without these",
          "[undisturbed]") {
    TraceShape alone = disturbed_shape();
    alone.no_sync = true;
    const Connected run = connected(traced(disturbed_shape()),
                                    {.undisturbed = plain_run(traced(alone, "no_sync.json"))});
    check_measured(run);
    CHECK(
        contains(findings_of(run.imported),
                 "ms of computing ran beside all-reduces, where matrix products take 1.25 times as "
                 "long"));
    CHECK(contains(findings_of(run.imported), "by no_sync.json"));
}

TEST_CASE("so they do where the micro-step before does not communicate", "[undisturbed]") {
    TraceShape shape = disturbed_shape();
    shape.backwards = 3;
    const Connected run = connected(traced(shape));
    check_measured(run, 3);
    CHECK(contains(findings_of(run.imported), "by the micro-steps without all-reduces"));
}

TEST_CASE("a clock that ran differently in the other trace slows nothing", "[undisturbed]") {
    TraceShape alone = disturbed_shape();
    alone.no_sync = true;
    alone.kernel_us = 80;
    const Connected run = connected(traced(disturbed_shape()),
                                    {.undisturbed = plain_run(traced(alone, "no_sync.json"))});
    check_measured(run);
    CHECK(contains(findings_of(run.imported), "took 1.250 times as long as in no_sync.json"));
}

TEST_CASE("one trace alone has taken out what is assumed, and it is put back", "[undisturbed]") {
    TraceShape shape = busy_shape();
    shape.blocks = 24;
    const Connected run = connected(traced(shape));
    const Json link = run.link();
    for (const Json& segment : link["interference"]) {
        CHECK(segment["communication_slowdown"] == 1);  // as traced, and so is when they begin
        CHECK_FALSE(segment.contains("start_delay_us"));
    }
    CHECK(contains(link["provenance"]["source"].get<std::string>(),
                   "what they cost computing is assumed"));
    // 24 of 108 multiprocessors are not there for what runs wholly beside an all-reduce.
    const std::vector<double> times = run.kernels_us();
    CHECK(times.front() == Approx(100));
    CHECK(std::ranges::min(times) == Approx(100.0 * (108 - 24) / 108).epsilon(0.001));
    CHECK(replay(run.imported, run.scenario).error() == Approx(calm_error()).margin(0.005));
    CHECK(contains(findings_of(run.imported), "by what is assumed of GPUs, is taken out"));
}

TEST_CASE("a link's own interference is not counted twice", "[undisturbed]") {
    const Json link{{"name", "measured"},
                    {"algorithm", "ring"},
                    {"segments", {{{"latency_us", 125}, {"bandwidth_gb_per_s", 1e6}}}},
                    {"interference", {{"compute_slowdown", 1.5}, {"communication_slowdown", 1}}}};
    TraceShape shape = busy_shape();
    shape.slowdown = 1.5;  // of all, as none is a matrix product
    const Connected run = connected(traced(shape), {}, "link.json", link.dump());
    check_alone(run);
    CHECK(replay(run.imported, run.scenario).error() == Approx(calm_error()).margin(0.003));
    CHECK(contains(findings_of(run.imported), "by the link's interference, is taken out"));
}

TEST_CASE(
    "with another link that says nothing of it, what is assumed of the traced one is taken out",
    "[undisturbed]") {
    // 4 thread blocks as traced; a preset of NVLink has 24.
    TraceShape shape = busy_shape();
    shape.blocks = 4;
    const Connected run = connected(traced(shape), {}, "nvlink-a100-8");
    CHECK(step_input(run.scenario).link.assumes_interference);
    CHECK(std::ranges::min(run.kernels_us()) == Approx(100.0 * (108 - 4) / 108).epsilon(0.001));
}

TEST_CASE("a trace to compare with is of the same program, and does not communicate",
          "[undisturbed]") {
    const auto error_of = [](const TraceShape& alone) {
        try {
            import_trace({traced(busy_shape())},
                         {.undisturbed = plain_run(traced(alone, "plain.json"))});
        } catch (const InputError& error) {
            return std::string(error.what());
        }
        return std::string("none");
    };
    CHECK(contains(error_of(busy_shape()),
                   "plain.json: /traceEvents: expected steps without all-reduces"));
    TraceShape other = busy_shape();
    other.no_sync = true;
    other.gradients.pop_back();
    CHECK(contains(error_of(other), "expected the 12 gradients of trace.json, got 11"));
    TraceShape on_host = busy_shape();
    on_host.device = false;
    on_host.no_sync = true;
    CHECK(contains(error_of(on_host), "plain.json: /traceEvents: expected kernels"));
}

TEST_CASE("where no kernel of the other trace has run beside an all-reduce, that is said",
          "[undisturbed]") {
    TraceShape shape = busy_shape();
    shape.bucket_ends = {12};  // one all-reduce, after backward
    TraceShape alone = shape;
    alone.no_sync = true;
    const Connected run =
        connected(traced(shape), {.undisturbed = plain_run(traced(alone, "plain.json"))});
    CHECK(contains(findings_of(run.imported),
                   "undisturbed: no kernel that ran mostly beside an all-reduce is also in"));
    check_alone(run);
}

}  // namespace
}  // namespace bucketwise
