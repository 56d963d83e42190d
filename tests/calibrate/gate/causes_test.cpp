#include "calibrate/gate/causes.h"

#include "calibrate/gate/gate.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

// Ten steps around so many ms.
std::vector<double> around(double ms) {
    std::vector<double> steps;
    for (const double off : {0.0, 0.4, -0.4, 0.2, -0.2, 0.1, -0.1, 0.3, -0.3, 0.0}) {
        steps.push_back(ms * (1 + off / 100));
    }
    return steps;
}

// Two buckets, ready at 20 and 40 ms, whose collectives take 10 and 20 ms: the last ends at 60 ms,
// 20 ms after all is computed.
GateCase job() {
    GateRun run{.file = "trace.json"};
    run.part(StepPart::step) = around(100);
    run.part(StepPart::exposed) = around(20);
    run.part(StepPart::computing) = around(70);
    run.part(StepPart::copying) = around(4);
    run.part(StepPart::launching) = around(6);
    run.buckets = {{.bytes = Bytes{1 << 20},
                    .last_gradient = "b",
                    .ready_ms = around(20),
                    .collective_ms = around(10)},
                   {.bytes = Bytes{2 << 20},
                    .last_gradient = "d",
                    .ready_ms = around(40),
                    .collective_ms = around(20)}};
    run.gradients = {{"a", 10}, {"b", 20}, {"c", 30}, {"d", 40}};
    return {.name = "job", .source = GateSource::trace, .runs = {run}};
}

CheckedCase checked(const GateCase& after) {
    return check_cases({job()}, {after}, {}).cases.front();
}

GateRun& run_of(GateCase& one) {
    return one.runs.front();
}

TEST_CASE("a slower link is told by collectives of the same sizes", "[causes]") {
    GateCase slower = job();
    run_of(slower).part(StepPart::step) = around(110);
    run_of(slower).part(StepPart::exposed) = around(30);
    run_of(slower).buckets[0].collective_ms = around(12);
    run_of(slower).buckets[1].collective_ms = around(30);
    const CheckedCase found = checked(slower);
    REQUIRE(found.causes.size() == 1);
    CHECK(found.causes[0].kind == CauseKind::slower_link);
    CHECK(found.causes[0].bucket == 1U);
    // The last ends at 40 + 30 instead of at 40 + 20.
    CHECK(found.causes[0].step_ms == Approx(10).margin(0.2));
    CHECK(found.causes[0].text ==
          "the link is slower: collectives of the same sizes take 40 % longer (30.0 to 42.0 ms), "
          "most of it bucket 2 of 2 (2.00 MiB), 10.0 ms longer");
}

TEST_CASE("waiting that collectives hold is not called a slower link alone", "[causes]") {
    GateCase slower = job();
    run_of(slower).part(StepPart::step) = around(110);
    run_of(slower).buckets[1].collective_ms = around(30);
    run_of(slower).collectives_wait = true;
    CHECK(checked(slower).causes.at(0).text.find("or other ranks come later") != std::string::npos);
}

TEST_CASE("a late gradient is told with its bucket, though no more is computed", "[causes]") {
    GateCase late = job();
    run_of(late).part(StepPart::step) = around(108);
    run_of(late).part(StepPart::exposed) = around(28);
    run_of(late).buckets[1].ready_ms = around(48);
    run_of(late).gradients[2].ready_ms = 38;
    run_of(late).gradients[3].ready_ms = 48;
    const CheckedCase found = checked(late);
    REQUIRE(found.causes.size() == 1);
    CHECK(found.causes[0].kind == CauseKind::late_gradient);
    CHECK(found.causes[0].bucket == 1U);
    CHECK(found.causes[0].gradient == "c");  // d is only as late as c is
    CHECK(found.causes[0].step_ms == Approx(8).margin(0.2));
    CHECK(found.causes[0].text ==
          "bucket 2 of 2 (2.00 MiB) is ready 8.00 ms later, as it waits for the gradient c");
}

TEST_CASE("computing that takes longer is no late gradient", "[causes]") {
    GateCase slower = job();
    run_of(slower).part(StepPart::step) = around(108);
    run_of(slower).part(StepPart::computing) = around(78);
    run_of(slower).buckets[1].ready_ms = around(48);
    const CheckedCase found = checked(slower);
    REQUIRE(found.causes.size() == 1);
    CHECK(found.causes[0].kind == CauseKind::more_computing);
}

TEST_CASE("copies, launches and other waiting are told apart", "[causes]") {
    for (const auto& [part, kind] : {std::pair{StepPart::copying, CauseKind::more_copies},
                                     {StepPart::launching, CauseKind::launch_bound},
                                     {StepPart::computing, CauseKind::more_computing}}) {
        GateCase slower = job();
        run_of(slower).part(StepPart::step) = around(109);
        for (double& ms : run_of(slower).part(part)) {
            ms += 9;
        }
        const CheckedCase found = checked(slower);
        REQUIRE(found.causes.size() == 1);
        CHECK(found.causes[0].kind == kind);
        CHECK(found.causes[0].step_ms == Approx(9).margin(0.2));
    }
}

TEST_CASE("other buckets are named, and what nothing explains is not explained", "[causes]") {
    GateCase other = job();
    run_of(other).part(StepPart::step) = around(109);
    CHECK(checked(other).causes.empty());
    run_of(other).buckets.pop_back();
    CHECK(checked(other).causes.at(0).text ==
          "gradients are bucketed otherwise: 1 bucket instead of 2");
}

TEST_CASE("limits are compared with medians, and regressions only with their baseline", "[gate]") {
    // 20 of 100 ms are exposed.
    const GateLimits tight{.max_exposed = 0.19, .max_step_ms = 99};
    CHECK(check_cases({}, {job()}, tight).cases[0].broken ==
          std::vector<std::string>{
              "a step takes 100 ms, more than the 99.0 ms allowed",
              "20 % of the step (20.0 ms) waits for communication, more than the 19 % allowed"});
    CHECK(check_cases({}, {job()}, {.max_exposed = 0.21, .max_step_ms = 101}).is_held());
    GateCase slower = job();
    run_of(slower).part(StepPart::step) = around(103);
    CHECK(!check_cases({job()}, {slower}, {}).is_held());
    CHECK(check_cases({job()}, {slower}, {.max_regression = 0.04}).is_held());
    CHECK(check_cases({slower}, {job()}, {}).cases[0].change->is_faster);
    // Another source is another case.
    slower.source = GateSource::measurement;
    const GateVerdict other = check_cases({job()}, {slower}, {});
    CHECK(other.is_held());
    CHECK(!other.cases[0].change);
    CHECK(other.notes.size() == 1);
}

TEST_CASE("of predictions every difference counts", "[gate]") {
    GateCase before = job();
    before.source = GateSource::prediction;
    before.runs[0].part(StepPart::step) = {100};
    GateCase after = before;
    after.runs[0].part(StepPart::step) = {102.1};
    CHECK(!check_cases({before}, {after}, {}).is_held());
    after.runs[0].part(StepPart::step) = {101.9};
    CHECK(check_cases({before}, {after}, {}).is_held());
}

TEST_CASE("the rate of false alarms is shared out among the cases", "[gate]") {
    // Five and five that are apart are chance in 1 of 252 cases: enough for one case at 1 %, too
    // few for three.
    GateCase before = job();
    before.runs[0].part(StepPart::step) = {100, 103, 101, 104, 102};
    GateCase after = before;
    after.runs[0].part(StepPart::step) = {200, 203, 201, 204, 202};
    CHECK(!check_cases({before}, {after}, {}).is_held());
    std::vector<GateCase> many_before;
    std::vector<GateCase> many_after;
    for (const char* name : {"a", "b", "c"}) {
        before.name = after.name = name;
        many_before.push_back(before);
        many_after.push_back(after);
    }
    const GateVerdict verdict = check_cases(many_before, many_after, {});
    CHECK(verdict.is_held());
    CHECK(!verdict.cases[0].change->can_be_told);
    CHECK(verdict.cases[0].change->enough_steps == 6);  // C(12, 6) = 924 > 300
}

}  // namespace
}  // namespace bucketwise
