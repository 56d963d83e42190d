#include "sim/predict/what_if.h"

#include <random>
#include <string>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/document_edit.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

constexpr const char* fast_link = R"({"name": "fast", "algorithm": "direct", "launch_us": 2,
    "segments": [{"latency_us": 1, "bandwidth_gb_per_s": 50}]})";

std::string read_fast_link(const std::string& path) {
    if (path != "links/fast.json") {
        throw InputError(path, "", "links/fast.json", "another file");
    }
    return fast_link;
}

// A perceptron or ResNet-18 over a hierarchical link written out.
Json base_document() {
    return Json::parse(R"({"name": "what if",
        "workload": {"model": "resnet18", "batch": 8, "image_size": 32, "device": "H100"},
        "cluster": {"ranks": 16, "ranks_per_node": 4, "stragglers": [{"rank": 3, "compute_slowdown": 1}],
                    "link": {"name": "both", "algorithm": "hierarchical", "launch_us": 3,
                             "intra": {"name": "in", "algorithm": "ring", "segments": [
                                 {"up_to_bytes": 65536, "latency_us": 1, "bandwidth_gb_per_s": 20},
                                 {"latency_us": 2, "bandwidth_gb_per_s": 100}]},
                             "inter": {"name": "out", "algorithm": "double_binary_tree", "segments": [
                                 {"latency_us": 5, "bandwidth_gb_per_s": 10}]}}},
        "sync": {"strategy": "ddp", "bucket_cap_mib": 4}, "step": {"optimizer": "sgd"}})");
}

VariedKey key(const char* pointer, const char* values) {
    const Json list = Json::parse(values);
    return {pointer, {list.begin(), list.end()}};
}

// Keys that change the costs of collectives, the cluster, the workload, how gradients are
// synchronised, and the rest of the step.
Grid wide_grid() {
    return Grid(
        {key("/workload/batch", "[8, 16]"), key("/sync/strategy", R"(["ddp", "overlap", "flat"])"),
         key("/sync/batch_norm", R"(["local", "fused"])"), key("/sync/views", "[true, false]"),
         key("/sync/bucket_cap_mib", "[1, 4, 64]"), key("/step/accumulation", "[1, 3]"),
         key("/cluster/ranks", "[16, 32, 64]"), key("/cluster/ranks_per_node", "[4, 8]"),
         key("/cluster/stragglers/0/compute_slowdown", "[1, 1.25, 3]"),
         key("/cluster/link/host_issue_us", "[0, 20]"),
         key("/cluster/link/interference/compute_slowdown", "[1, 1.2]"),
         key("/cluster/link/interference/communication_slowdown", "[1, 1.5]"),
         key("/cluster/link/copy_gb_per_s", "[100, 400]"),
         key("/cluster/link/inter/segments/0/latency_us", "[5, 50]"),
         key("/cluster/link/intra/segments/1/bandwidth_gb_per_s", "[100, 7.5]"),
         key("/cluster/link/launch_us", "[3, 30]")});
}

Json document_at(const Grid& grid, std::int64_t point) {
    Json document = base_document();
    std::vector<std::size_t> position;
    grid.locate(point, position);
    for (std::size_t i = 0; i < position.size(); ++i) {
        set_at(document, grid.keys()[i].pointer, grid.keys()[i].values[position[i]], "--set");
    }
    return document;
}

void check_same(const WhatIf& row, const Evaluation& expected) {
    CHECK(row.cap == expected.cap);
    CHECK(row.buckets == std::ssize(expected.bucket_bytes));
    CHECK(row.times == expected.times);
    CHECK(row.exposed == expected.exposed);
}

TEST_CASE("every what-if is what predict says of that scenario, wherever it came from",
          "[what_if]") {
    const Grid grid = wide_grid();
    REQUIRE(grid.points() == std::int64_t{2} * 3 * 2 * 2 * 3 * 2 * 3 * 2 * 3 * 128);
    std::mt19937_64 random(3);
    std::uniform_int_distribution<std::int64_t> any(0, grid.points() - 1);
    const CapChoice two_mib{.cap = Bytes{2 << 20}};
    WhatIfs own(base_document(), "s.json", read_fast_link, grid, {});
    WhatIfs given(base_document(), "s.json", read_fast_link, grid, two_mib);
    std::int64_t point = 0;
    for (int i = 0; i < 400; ++i) {
        // Half of them neighbours, which differ in the link only.
        point = i % 2 == 0 ? any(random) : (point + 1) % grid.points();
        INFO(grid.text_of(point));
        const Scenario scenario =
            parse_scenario(document_at(grid, point), "s.json", read_fast_link);
        const StepInput input = step_input(scenario);
        const Prediction prediction = predict(input, scenario.sync, {*two_mib.cap}, [](double) {});
        // Without a cap to vary there is one plan, which is the default's.
        check_same(own.evaluate(point),
                   prediction.configured ? *prediction.configured : prediction.default_cap);
        check_same(given.evaluate(point), prediction.sweep.front());
    }
}

TEST_CASE("neighbours along a link's costs need no new program, and are the same", "[what_if]") {
    const Grid grid({key("/cluster/link/intra/segments/0/latency_us", "[0, 1, 2.5]"),
                     key("/cluster/link/inter/segments/0/bandwidth_gb_per_s", "[1, 10, 100]"),
                     key("/cluster/link/inter/launch_us", "[0, 4]"),
                     key("/cluster/link/inter/meeting_us", "[0, 4]"),
                     key("/cluster/link/inter/message_us", "[0, 4]")});
    WhatIfs what_ifs(base_document(), "s.json", read_fast_link, grid, {});
    for (std::int64_t point = grid.points() - 1; point >= 0; --point) {
        const Scenario scenario =
            parse_scenario(document_at(grid, point), "s.json", read_fast_link);
        const StepInput input = step_input(scenario);
        Evaluator evaluator(input, scenario.sync);
        check_same(what_ifs.evaluate(point), evaluator.evaluate(scenario.sync.bucket_cap));
        CHECK(what_ifs.read(point) == scenario);
    }
}

TEST_CASE("the best cap of a what-if is predict's, beside the default's step", "[what_if]") {
    const Grid grid({key("/cluster/ranks", "[4, 64]"),
                     key("/cluster/link/inter/segments/0/latency_us", "[5, 500]")});
    WhatIfs what_ifs(base_document(), "s.json", read_fast_link, grid, {.best = true});
    for (std::int64_t point = 0; point < grid.points(); ++point) {
        const Scenario scenario =
            parse_scenario(document_at(grid, point), "s.json", read_fast_link);
        const Prediction prediction =
            predict(step_input(scenario), scenario.sync, {}, [](double) {});
        const WhatIf row = what_ifs.evaluate(point);
        check_same(row, prediction.chosen());
        CHECK(row.default_step == prediction.default_cap.times.step());
        CHECK(row.times.step() <= *row.default_step);
    }
}

TEST_CASE("a link may be a file, another one at each point", "[what_if]") {
    Json document = base_document();
    document["cluster"]["link"] = "links/fast.json";
    document["step"]["sync_each_step"] = true;  // in a settled loop launching hides these links
    document["workload"]["device"] = {{"preset", "H100"}, {"launch_us", 8}};
    const Grid grid(
        {key("/cluster/link", R"(["links/fast.json"])"), key("/cluster/link_is_no_key", "[1]")});
    WhatIfs unknown(document, "s.json", read_fast_link, grid, {});
    CHECK_THROWS_AS(unknown.evaluate(0), InputError);
    // A pointer into it puts the file's contents in its place.
    const Grid within({key("/cluster/link/segments/0/latency_us", "[1, 9]"),
                       key("/cluster/link/algorithm", R"(["direct", "ring"])")});
    WhatIfs what_ifs(document, "s.json", read_fast_link, within, {});
    // Another step for each: a ring of 16 takes 30 steps, a direct exchange 2.
    CHECK(what_ifs.evaluate(0).times.step() < what_ifs.evaluate(1).times.step());
    CHECK(what_ifs.evaluate(1).times.step() < what_ifs.evaluate(3).times.step());
    CHECK(what_ifs.evaluate(0).times.step() < what_ifs.evaluate(2).times.step());
}

TEST_CASE("a point that is no scenario is named, and the next one is right again", "[what_if]") {
    const Grid grid({key("/cluster/ranks", "[16, 6]"),
                     key("/cluster/link/inter/segments/0/latency_us", "[5, 50]")});
    WhatIfs what_ifs(base_document(), "s.json", read_fast_link, grid, {});
    const WhatIf first = what_ifs.evaluate(1);
    try {
        what_ifs.evaluate(3);
        FAIL("4 does not divide 6");
    } catch (const InputError& error) {
        CHECK(std::string(error.what()) ==
              "s.json: /cluster/ranks_per_node: expected a number that divides ranks (6), got 4 "
              "(point 3: /cluster/ranks=6, /cluster/link/inter/segments/0/latency_us=50)");
    }
    CHECK(what_ifs.evaluate(1) == first);
    // A link's values are read before anything is.
    CHECK_THROWS_AS(
        WhatIfs(base_document(), "s.json", read_fast_link,
                Grid({key("/cluster/link/inter/segments/0/latency_us", "[5, -1]")}), {}),
        InputError);
    const Grid absent({key("/cluster/link/inter/segments/7/latency_us", "[5]")});
    WhatIfs nowhere(base_document(), "s.json", read_fast_link, absent, {});
    CHECK_THROWS_AS(nowhere.evaluate(0), InputError);
}

TEST_CASE("the last key changes fastest", "[what_if]") {
    const Grid grid({key("/a", "[1, 2]"), key("/b", R"(["x", "y", "z"])"), key("/c", "[true]")});
    CHECK(grid.points() == 6);
    CHECK(grid.text_of(0) == R"(/a=1, /b="x", /c=true)");
    CHECK(grid.text_of(4) == R"(/a=2, /b="y", /c=true)");
    CHECK(Grid({}).points() == 1);
}

TEST_CASE("keys of a grid do not lie within one another", "[what_if]") {
    CHECK_THROWS_AS(Grid({key("/a", "[1]"), key("/a", "[2]")}), InputError);
    CHECK_THROWS_AS(Grid({key("/a/b", "[1]"), key("/a", "[2]")}), InputError);
    CHECK_THROWS_AS(Grid({key("/a", "[1]"), key("/a/b", "[2]")}), InputError);
    CHECK_THROWS_AS(Grid({key("/a", "[]")}), InputError);
    CHECK_NOTHROW(Grid({key("/a/b", "[1]"), key("/a/bc", "[2]")}));
    const VariedKey million{"/m", std::vector<Json>(1'000'000, 1)};
    const VariedKey more{"/n", std::vector<Json>(1'000'000, 1)};
    CHECK(Grid({million, more}).points() == 1'000'000'000'000);
    CHECK_THROWS_AS(Grid({million, more, {"/o", std::vector<Json>(1001, 1)}}), InputError);
}

TEST_CASE("what only collectives cost is told from what a scenario is", "[what_if]") {
    using Kind = LinkCost::Kind;
    CHECK(link_cost_at("/cluster/link/segments/12/latency_us") ==
          LinkCost{.kind = Kind::latency, .segment = 12});
    CHECK(link_cost_at("/cluster/link/inter/segments/0/bandwidth_gb_per_s") ==
          LinkCost{.kind = Kind::bandwidth, .tier = 1});
    CHECK(link_cost_at("/cluster/link/intra/launch_us") ==
          LinkCost{.kind = Kind::launch, .tier = 0});
    CHECK(link_cost_at("/cluster/link/meeting_us") == LinkCost{.kind = Kind::meeting});
    CHECK(link_cost_at("/cluster/link/message_us") == LinkCost{.kind = Kind::message});
    for (const char* other :
         {"/cluster/link", "/cluster/link/host_issue_us", "/cluster/link/segments/0",
          "/cluster/link/segments/x/latency_us", "/cluster/link/segments/0/up_to_bytes",
          "/cluster/link/segments/0/latency_us/x", "/cluster/link/intra", "/cluster/link/algorithm",
          "/cluster/link/intra/intra/launch_us", "/workload/launch_us", "/cluster/ranks", ""}) {
        INFO(other);
        CHECK_FALSE(link_cost_at(other).has_value());
    }
}

}  // namespace
}  // namespace bucketwise
