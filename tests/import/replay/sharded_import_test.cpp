#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "import/kineto/kineto_trace.h"
#include "import/replay/replay.h"
#include "import/replay/trace_import.h"
#include "import/replay/trace_link.h"
#include "sim/predict/sharded_prediction.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/import/replay/written_sharded_trace.h"
#include "tests/import/source/text_source.h"

namespace bucketwise {
namespace {

std::string no_file(const std::string& /*file*/) {
    return {};
}

// Four blocks of three kernels a pass, and a head; ring over eight ranks.
Json sharded_document_of(const Json& sharding) {
    Json gradients = Json::array();
    Json forward = Json::array();
    Json backward = Json::array();
    const auto operation = [](const std::string& name, double device_us) {
        return Json{{"name", name}, {"host_us", 8}, {"device_us", device_us}};
    };
    gradients.push_back({{"name", "head.weight"}, {"numel", 4'000'000}, {"dtype", "float32"},
                         {"shape", {4000, 1000}}});
    for (int layer = 0; layer < 4; ++layer) {
        const std::string block = "layers." + std::to_string(layer);
        for (int k = 0; k < 3; ++k) {
            const std::string weight = block + ".weight" + std::to_string(k);
            gradients.push_back({{"name", weight}, {"numel", 2'000'000 + 1000 * k},
                                 {"dtype", "float32"}, {"shape", {2000 + k, 1000}}});
            forward.push_back(operation(block + " forward", 150 + 10 * k));
        }
    }
    forward.push_back(operation("head forward", 100));
    backward.push_back(operation("head backward", 200));
    backward.back()["ready"] = {"head.weight"};
    for (int layer = 3; layer >= 0; --layer) {
        const std::string block = "layers." + std::to_string(layer);
        for (int k = 2; k >= 0; --k) {
            backward.push_back(operation(block + " backward", 300 + 20 * k));
            backward.back()["ready"] = {block + ".weight" + std::to_string(k)};
        }
    }
    return {{"name", "four blocks"},
            {"workload",
             {{"gradients", gradients},
              {"forward_operations", forward},
              {"backward_operations", backward},
              {"collective_issue_us", 20},
              {"copy_gb_per_s", 1000},
              {"copy_launch_us", 6}}},
            {"cluster",
             {{"ranks", 8},
              {"link",
               {{"name", "wire"},
                {"algorithm", "ring"},
                {"interference", "none"},
                {"segments", {{{"latency_us", 4}, {"bandwidth_gb_per_s", 200}}}}}}}},
            {"sync", {{"strategy", "fsdp"}, {"sharding", sharding}}},
            {"step",
             {{"optimizer_ms", 0.5}, {"optimizer_launch_ms", 0.1}, {"sync_each_step", true}}}};
}

ShardedInput input_of(const Json& document) {
    return sharded_input(parse_scenario(document, "test", no_file, StrategyKinds::all));
}

struct RoundTrip {
    TraceImport imported;
    Scenario scenario;
    Replay replayed;
};

RoundTrip import_document(const Json& document) {
    const TracedRank rank = traced_rank(
        read_kineto_trace(text_source(document.dump()), "trace.json"));
    RoundTrip trip{import_trace({rank}, {}), {}, {}};
    trip.scenario = connect(trip.imported, {}, no_file);
    trip.replayed = replay(trip.imported, trip.scenario);
    return trip;
}

TEST_CASE("a simulated step of fully_shard that is written as a trace is imported as it was", "[kineto]") {
    const Json sharding{{"layers_per_group", 1}};
    const ShardedInput input = input_of(sharded_document_of(sharding));
    WrittenShardedTrace written(input);
    const Json document = written.document();
    const RoundTrip trip = import_document(document);
    INFO(text_of(trip.imported.findings) << text_of(trip.replayed));
    CHECK(trip.imported.scenario["sync"]["sharding"]["layers_per_group"] == 1);
    CHECK(trip.replayed.same_buckets);
    CHECK(std::abs(trip.replayed.error()) < 0.005);
    CHECK(to_us(trip.replayed.traced_step) == Approx(to_us(written.step())).epsilon(1e-4));
    CHECK(to_us(trip.replayed.step) == Approx(to_us(written.step())).epsilon(1e-4));
}

}  // namespace
}  // namespace bucketwise
namespace bucketwise {
TEST_CASE("dump", "[.dump]") {
    const Json sharding{{"layers_per_group", 1}};
    const Json doc = sharded_document_of(sharding);
    const ShardedInput input = input_of(doc);
    std::ofstream("/tmp/kt/w.json") << WrittenShardedTrace(input).document().dump();
    std::ofstream("/tmp/kt/w_doc.json") << doc.dump();
}
}
