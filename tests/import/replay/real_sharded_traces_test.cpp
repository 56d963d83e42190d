// Traces of real FSDP2 steps. Those of tests/data/fsdp2/traces, which
// tests/pytorch/trace_sharded.py made, are imported as what was recorded of the same steps beside
// them.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "import/kineto/kineto_trace.h"
#include "import/replay/replay.h"
#include "import/replay/trace_import.h"
#include "import/replay/trace_link.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"
#include "tests/import/replay/imported_trace.h"
#include "tests/import/replay/stored_trace.h"

namespace bucketwise {
namespace {

TracedRank stored_rank(const std::string& file) {
    return traced_rank(read_kineto_trace(stored_trace(file), file + ".json.gz"));
}

struct RecordedCase {
    std::string model;
    std::string name;
    std::string file;  // after the model's name
};

Json recording_of(const RecordedCase& of) {
    std::ifstream file(BUCKETWISE_TEST_DATA_DIR "/fsdp2/" + of.model + ".json");
    const Json model = Json::parse(file);
    for (Json one : model.at("cases")) {
        if (one.at("name") == of.name) {
            one["workload"] = model.at("workload");
            return one;
        }
    }
    return {};
}

// Its settings, of all but groups.
ShardingRequest recorded_request(const Json& recording) {
    const Json document{
        {"name", "recorded"},
        {"workload", recording.at("workload")},
        {"cluster", {{"ranks", recording.at("ranks")}, {"link", "ib-ndr-400"}}},
        {"sync", {{"strategy", recording.at("strategy")}, {"sharding", recording.at("sharding")}}}};
    ShardingRequest request =
        sharded_input(parse_scenario(document, "recorded", no_file, StrategyKinds::all)).request;
    request.groups.clear();
    request.layers_per_group = 1;
    return request;
}

std::vector<std::string> recorded_collectives(const Json& recording) {
    std::vector<std::string> lines;
    for (const Json& row : recording.at("collectives")) {
        lines.push_back(fmt::format("{} {}", row.at(0).get<std::string>(), row.at(2).dump()));
    }
    return lines;
}

std::vector<std::string> traced_collectives(const TracedSharding& sharding) {
    std::vector<std::string> lines;
    for (const TypicalCollective& one : sharding.collectives) {
        const char* const kind = one.kind == CollectiveKind::all_gather       ? "all_gather"
                                 : one.kind == CollectiveKind::reduce_scatter ? "reduce_scatter"
                                                                              : "all_reduce";
        lines.push_back(fmt::format("{} {}", kind, one.bytes.count));
    }
    return lines;
}

// The modules of each group but the root, and sizes of gradients, in any order.
std::set<std::string> recorded_groups_of(const Json& recording) {
    std::set<std::string> groups;
    for (const Json& modules : recording.at("groups")) {
        groups.insert(fmt::format("{}", fmt::join(modules.get<std::vector<std::string>>(), ", ")));
    }
    return groups;
}

std::multiset<std::int64_t> sizes_of(const Json& workload) {
    std::multiset<std::int64_t> sizes;
    for (const Json& gradient : workload.at("gradients")) {
        sizes.insert(gradient.at("numel").get<std::int64_t>());
    }
    return sizes;
}

std::set<std::string> traced_groups_of(const TracedSharding& sharding) {
    std::set<std::string> groups;
    for (const TracedShardGroup& group : sharding.groups) {
        if (!group.modules.empty()) {
            groups.insert(group.modules);
        }
    }
    return groups;
}

}  // namespace

TEST_CASE("a trace of real FSDP2 is imported as what was recorded of its steps", "[kineto]") {
    const std::vector<RecordedCase> cases{
        {"perceptron", "one layer per group", "one_layer_per_group"},
        {"perceptron", "two layers per group", "two_layers_per_group"},
        {"perceptron", "kept after forward", "kept_after_forward"},
        {"perceptron", "the root resharded too", "the_root_resharded_too"},
        {"perceptron", "forward prefetch of 2", "forward_prefetch_of_2"},
        {"perceptron", "backward prefetch of 2", "backward_prefetch_of_2"},
        {"perceptron", "asynchronous unshard, prefetch of 1", "asynchronous_unshard_prefetch_of_1"},
        {"perceptron", "bfloat16, reduced in float32", "bfloat16_reduced_in_float32"},
        {"perceptron", "reduced in bfloat16", "reduced_in_bfloat16"},
        {"perceptron", "two reduce-scatter buffers", "two_reduce_scatter_buffers"},
        {"perceptron", "accumulated, reduced each time", "accumulated_reduced_each_time"},
        {"perceptron", "accumulated, reduced at last, gathered once",
         "accumulated_reduced_at_last_gathered_once"},
        {"perceptron", "hybrid", "hybrid"},
        {"decoder", "ends in groups of their own", "ends_in_groups_of_their_own"},
        {"nested", "one layer per group", "one_layer_per_group"}};
    for (const RecordedCase& one : cases) {
        DYNAMIC_SECTION(one.model << ", " << one.name) {
            const Json recording = recording_of(one);
            TraceImport imported =
                import_trace({stored_rank("fsdp2/traces/" + one.model + "_" + one.file)}, {});
            REQUIRE(imported.sharding);
            CHECK(imported.scenario["sync"]["strategy"] == recording.at("strategy"));
            CHECK(imported.ranks == recording.at("ranks").get<std::int64_t>());
            CHECK(imported.scenario["step"].value("accumulation", 1) ==
                  recording.at("accumulation").get<int>());
            CHECK(traced_groups_of(*imported.sharding) == recorded_groups_of(recording));
            CHECK(sizes_of(imported.scenario["workload"]) == sizes_of(recording.at("workload")));
            CHECK(traced_collectives(*imported.sharding) == recorded_collectives(recording));
            ShardingRequest request = imported.sharding->request;
            request.groups.clear();
            request.layers_per_group = 1;
            CHECK(request == recorded_request(recording));
            const Scenario scenario = connect(imported, {}, no_file);
            CHECK(replay(imported, scenario).same_buckets);
        }
    }
}

TEST_CASE("a real step of FSDP2 replays as long as it took", "[kineto]") {
    const std::string file =
        GENERATE("fsdp2/traces/wide_one_layer_per_group", "fsdp2/traces/wide_kept_after_forward");
    std::vector<TracedRank> ranks{stored_rank(file + ".0")};
    SECTION("from one rank's trace") {}
    SECTION("from both ranks'") {
        ranks.push_back(stored_rank(file + ".1"));
    }
    TraceImport imported = import_trace(std::move(ranks), {});
    const Scenario scenario = connect(imported, {}, no_file);
    const Replay replayed = replay(imported, scenario);
    CHECK(replayed.same_buckets);
    CHECK(std::abs(replayed.error()) < 0.03);
    // A block of the decoder is 371,522 elements when half of each parameter is a rank's: the root
    // has the embeddings, the last norm and the head.
    CHECK_THAT(
        findings_of(imported),
        Catch::Contains("5 of FSDP2, with their elements: root (209280); layers.0 (371522)"));
    // All that the host waits for is counted as that, though the scenario keeps in place what it
    // waits for late ranks.
    const StepAccount& account = replayed.simulated.account;
    CHECK(to_ms(account.communicating) ==
          Approx(to_ms(replayed.traced.account.communicating)).epsilon(0.15));
    CHECK(to_ms(account.step()) == Approx(to_ms(replayed.step)).epsilon(0.01));
}

// In us, in the step where that is shortest.
double shortest_stall_us(const TracedRun& run, std::size_t collective) {
    double shortest = std::numeric_limits<double>::infinity();
    for (const TracedStep* step : run.alike()) {
        double stall = 0;
        for (const std::vector<StepMark>* pass : {&step->forward, &step->backward}) {
            for (const StepMark& mark : *pass) {
                const bool is_its = step->collective_of(mark) == &step->collectives[collective];
                stall += is_its ? to_us(mark.stall) : 0;
            }
        }
        shortest = std::min(shortest, stall);
    }
    return shortest;
}

TEST_CASE("of one rank's trace the shortest time that a collective blocks the host is the wire's",
          "[kineto]") {
    const TraceImport imported =
        import_trace({stored_rank("fsdp2/traces/wide_one_layer_per_group.0")}, {});
    const std::vector<TypicalCollective>& collectives = imported.sharding->collectives;
    // All of its steps' are FSDP2's: two gathers of each layer and one of the root, five
    // reductions.
    REQUIRE(collectives.size() == 14);
    REQUIRE(imported.run->first().collectives.size() == 14);
    for (std::size_t k = 0; k < collectives.size(); ++k) {
        REQUIRE(collectives[k].wire_us.size() == 1);
        CHECK(collectives[k].wire_us[0] == Approx(shortest_stall_us(*imported.run, k)));
    }
}

// Without what the host waits for late ranks it was 29 % too short. Its steps differ by half.
TEST_CASE("gathers beside computing are waited for where they are copied out", "[kineto]") {
    TraceImport imported = import_trace(
        {stored_rank("fsdp2/traces/perceptron_asynchronous_unshard_prefetch_of_1")}, {});
    const Scenario scenario = connect(imported, {}, no_file);
    CHECK(std::abs(replay(imported, scenario).error()) < 0.2);
}

TEST_CASE("ranks of sharded runs that differ do not belong together", "[kineto]") {
    const std::vector<TracedRank> ranks{stored_rank("fsdp2/traces/wide_one_layer_per_group.0"),
                                        stored_rank("fsdp2/traces/wide_kept_after_forward.1")};
    CHECK_THROWS_WITH(import_trace(ranks, {}),
                      Catch::Contains("wide_kept_after_forward.1.json.gz: /traceEvents: expected "
                                      "the collectives of one run: of 209280, 371522, "));
}

TEST_CASE("replicas of shards are hsdp, and one replica is none", "[kineto]") {
    const TraceImport hybrid = import_trace({stored_rank("traces/hsdp_2x2")}, {});
    CHECK(hybrid.scenario["sync"]["strategy"] == "hsdp");
    CHECK(hybrid.scenario["sync"]["sharding"]["shard_ranks"] == 2);
    CHECK(hybrid.ranks == 4);
    const TraceImport alone = import_trace({stored_rank("traces/hsdp_1x2")}, {});
    CHECK(alone.scenario["sync"]["strategy"] == "fsdp");
    CHECK(alone.ranks == 2);
    CHECK_THROWS_WITH(
        import_trace({stored_rank("traces/fsdp2_no_shapes")}, {}),
        Catch::Contains("expected sizes of FSDP2's collectives, which profile(record_shapes=True"));
}

}  // namespace bucketwise
