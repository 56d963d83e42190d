// Ranks that are alike, and a few that are not: classes against every rank simulated on its own.
#include <random>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_parts.h"
#include "sim/predict/prediction.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

std::string no_file(const std::string& path) {
    throw InputError(path, "", "no file", "one");
}

// Ten gradients, launches and copies that cost, on `ranks` ranks; `cluster` is more of its keys.
Scenario cluster_scenario(std::int64_t ranks, bool interferes, const std::string& cluster = "") {
    Json document = Json::parse(R"({"name": "classes",
        "workload": {"model": {"family": "mlp", "layers": [256, 512, 512, 512, 256, 10]}, "batch": 64,
                     "device": "H100"},
        "cluster": {"link": {"name": "slow", "algorithm": "double_binary_tree", "copy_gb_per_s": 50,
                             "host_issue_us": 3, "launch_us": 5,
                             "segments": [{"latency_us": 2, "bandwidth_gb_per_s": 20}]}},
        "sync": {"strategy": "ddp", "bucket_cap_mib": 1}, "step": {"optimizer": "adam", "sync_each_step": true}})");
    document["cluster"]["ranks"] = ranks;
    if (interferes) {
        document["cluster"]["link"]["interference"] = {{"compute_slowdown", 1.3},
                                                       {"communication_slowdown", 1.7}};
    }
    if (!cluster.empty()) {
        document["cluster"]["stragglers"] = Json::parse(cluster);
    }
    return parse_scenario(document, "classes.json", no_file);
}

// The whole step with the scenario's own cap.
Program whole_step(const Scenario& scenario) {
    StepInput input = step_input(scenario);
    input.classes.clear();
    return Evaluator(input, scenario.sync).program(scenario.sync.bucket_cap);
}

TEST_CASE("1,024 ranks one by one equal the one that stands for all, to the picosecond",
          "[classes]") {
    for (const bool interferes : {false, true}) {
        INFO(interferes);
        const Program program = whole_step(cluster_scenario(1024, interferes));
        const std::vector<Program> all(1024, program);
        const Simulation one = simulate({&program, 1}, Record::times_only);
        const Simulation every = simulate(all, Record::times_only);
        REQUIRE(every.progress.size() == 1024);
        for (const RankProgress& rank : every.progress) {
            REQUIRE(rank == one.progress.front());
        }
        REQUIRE(one.ranks.front().step() > Duration{0});
    }
}

TEST_CASE("64 ranks with 3 stragglers one by one equal their three classes", "[classes]") {
    // Two of one slowdown and one of another: with the 61 others three classes.
    const std::string stragglers = R"([{"rank": 7, "compute_slowdown": 1.4},
        {"rank": 0, "compute_slowdown": 1.15}, {"rank": 63, "compute_slowdown": 1.4}])";
    for (const bool interferes : {false, true}) {
        INFO(interferes);
        const Scenario scenario = cluster_scenario(64, interferes, stragglers);
        const StepInput input = step_input(scenario);
        CHECK(input.classes == std::vector<RankClass>{{2, 1.4}, {1, 1.15}, {61, 1}});

        const Program alike = whole_step(scenario);
        std::vector<Program> all(64, alike);
        all[0] = with_slower_computing(alike, 1.15);
        all[7] = all[63] = with_slower_computing(alike, 1.4);
        const Simulation every = simulate(all, Record::times_only);
        const Simulation classes =
            simulate(programs_of_classes(alike, input.classes), Record::times_only);
        for (std::size_t rank = 0; rank < all.size(); ++rank) {
            INFO(rank);
            const std::size_t of = rank == 0 ? 1 : rank == 7 || rank == 63 ? 0 : 2;
            REQUIRE(every.progress[rank] == classes.progress[of]);
        }
        // The sweep has the slowest rank's step, in parts or as a whole.
        Evaluator evaluator(input, scenario.sync);
        CHECK(evaluator.evaluate(scenario.sync.bucket_cap).times == slowest_of(every.progress));
        CHECK(slowest_of(every.progress).step() > simulate_times(alike).step());
    }
}

TEST_CASE("accumulated micro-steps with stragglers are the same in parts and as a whole",
          "[classes]") {
    for (const bool interferes : {false, true}) {
        Scenario scenario =
            cluster_scenario(16, interferes, R"([{"rank": 1, "compute_slowdown": 1.5}])");
        scenario.step.accumulation = 4;
        const StepInput input = step_input(scenario);
        const Program alike = whole_step(scenario);
        std::vector<RankProgress> progress(2);
        run_programs(programs_of_classes(alike, input.classes), progress);
        CHECK(Evaluator(input, scenario.sync).evaluate(scenario.sync.bucket_cap).times ==
              slowest_of(progress));
    }
}

TEST_CASE("a straggler of slowdown 1 changes nothing", "[classes]") {
    const StepInput none = step_input(cluster_scenario(8, true));
    const StepInput one =
        step_input(cluster_scenario(8, true, R"([{"rank": 3, "compute_slowdown": 1}])"));
    CHECK(one == none);
    CHECK(none.classes.empty());
}

TEST_CASE("without interference a step with stragglers is the slowest one's", "[classes]") {
    const Scenario scenario = cluster_scenario(
        8, false, R"([{"rank": 3, "compute_slowdown": 1.25}, {"rank": 2, "compute_slowdown": 2}])");
    const Program slowest = with_slower_computing(whole_step(scenario), 2);
    const StepInput input = step_input(scenario);
    Evaluator evaluator(input, scenario.sync);
    CHECK(evaluator.evaluate(scenario.sync.bucket_cap).times == simulate_times(slowest));
    CHECK(evaluator.program(scenario.sync.bucket_cap) == slowest);
}

TEST_CASE("a straggler of two ranks, by hand", "[classes]") {
    // 10 us, an all-reduce of 4 us, then 6 us. The straggler computes twice as long: it launches at
    // 20 us, both wait until 24, and it ends at 24 + 12 = 36; the other at 30.
    Program program;
    program.instructions = {
        {.kind = InstructionKind::backward, .device = std::chrono::microseconds{10}},
        {.kind = InstructionKind::launch},
        {.kind = InstructionKind::wait},
        {.kind = InstructionKind::optimizer, .device = std::chrono::microseconds{6}}};
    program.collectives = {
        {CollectiveKind::all_reduce, GradientsOf{}, {1}, std::chrono::microseconds{4}}};
    std::vector<RankProgress> progress(2);
    run_programs(programs_of_classes(program, {{1, 2}, {1, 1}}), progress);
    CHECK(progress[0].device == std::chrono::microseconds{36});
    CHECK(progress[1].device == std::chrono::microseconds{30});
    CHECK(slowest_of(progress).step() == std::chrono::microseconds{36});
}

TEST_CASE("stragglers are ranks of the cluster, each listed once", "[classes]") {
    for (const char* wrong :
         {R"([{"rank": 8, "compute_slowdown": 1.2}])", R"([{"rank": -1, "compute_slowdown": 1.2}])",
          R"([{"rank": 1.5, "compute_slowdown": 1.2}])",
          R"([{"rank": 1, "compute_slowdown": 0.5}])", R"([{"rank": 1, "compute_slowdown": 101}])",
          R"([{"rank": 1}])", "[]", "3",
          R"([{"rank": 1, "compute_slowdown": 2}, {"rank": 1, "compute_slowdown": 3}])"}) {
        INFO(wrong);
        CHECK_THROWS_AS(cluster_scenario(8, false, wrong), InputError);
    }
    try {
        cluster_scenario(8, false, R"([{"rank": 8, "compute_slowdown": 1.2}])");
    } catch (const InputError& error) {
        CHECK(std::string(error.what()) ==
              "classes.json: /cluster/stragglers/0/rank: expected a rank below the number of ranks "
              "(8), got 8");
    }
}

}  // namespace
}  // namespace bucketwise
