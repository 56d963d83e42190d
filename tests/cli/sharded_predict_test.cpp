// bucketwise predict of scenarios that shard, as its users meet it.
#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/cli/process.h"
#include "tests/shell_line.h"

namespace bucketwise {
namespace {

testing::ShellOutcome run_sharded(const std::string& arguments,
                                  const std::string& redirect = "2>/dev/null") {
    return testing::run_in_shell(std::string(BUCKETWISE_BINARY) + " " + arguments + " " + redirect);
}

std::string llama() {
    return std::string(BUCKETWISE_SCENARIO_DIR) + "/llama7b_fsdp_64xh100.json";
}

TEST_CASE("predict of a sharded scenario says step, memory and what to type", "[sharding]") {
    const testing::ShellOutcome outcome =
        run_sharded("predict " + llama() + " --json - --compare-strategies ddp,fsdp");
    REQUIRE(outcome.exit_code == 0);
    const nlohmann::json json = nlohmann::json::parse(outcome.output);
    CHECK(json["sharded"] == true);
    CHECK(json["strategy"] == "fsdp");
    // 32 layers and the root.
    CHECK(json["configured"]["groups"] == 33);
    CHECK(json["configured"]["sharding"]["layers_per_group"] == 1);
    CHECK(json["best"]["step_ms"] <= json["configured"]["step_ms"]);
    CHECK(json["best"]["memory"]["fits"] == true);
    const std::string typed = json["settings"]["PyTorch"]["typed"];
    CHECK(typed.find("for block in model.model.layers:\n    fully_shard(block") !=
          std::string::npos);
    CHECK(typed.find("MixedPrecisionPolicy(param_dtype=torch.bfloat16, "
                     "reduce_dtype=torch.float32)") != std::string::npos);
    REQUIRE(json["strategies"].size() == 2);
    CHECK(json["strategies"][0]["fits"] == false);  // 6.7 billion float32, three times over
}

TEST_CASE("a sharded step's trace names groups and has hsdp's second stream", "[sharding]") {
    const testing::ShellOutcome outcome = run_sharded(
        "predict " + llama() +
        " --trace - --set /sync='{\"strategy\":\"hsdp\"}' --set /workload/model/layers=2");
    REQUIRE(outcome.exit_code == 0);
    const nlohmann::json trace = nlohmann::json::parse(outcome.output);
    const auto named = [&](const std::string& text) {
        return std::ranges::count_if(trace["traceEvents"], [&](const nlohmann::json& event) {
            return event["name"].get<std::string>().starts_with(text) ||
                   (event.contains("args") && event["args"].contains("name") &&
                    event["args"]["name"] == text);
        });
    };
    CHECK(named("all-gather model.layers.0") >= 1);
    CHECK(named("reduce-scatter root") == 1);
    CHECK(named("all-reduce model.layers.1") == 1);
    CHECK(named("copy out: model.layers.0") >= 1);
    CHECK(named("communication between replicas") == 1);
}

TEST_CASE("a sharded step's table has what its settings differ in, in units of its size",
          "[sharding]") {
    const auto text_of = [](const std::string& options) {
        const testing::ShellOutcome outcome =
            run_sharded("predict " + llama() + " --set /workload/model/layers=2 " + options);
        REQUIRE(outcome.exit_code == 0);
        return outcome.output;
    };
    const std::string fsdp = text_of("");
    CHECK_THAT(fsdp, Catch::Contains("memory (GiB)") && Catch::Contains(" GiB of memory at most"));
    CHECK_THAT(fsdp, !Catch::Contains("replicas"));
    CHECK_THAT(text_of("--set /workload/model/hidden=32 --set /workload/batch=1"
                       " --set /workload/sequence_length=64 --set /workload/model/vocabulary=64"),
               Catch::Contains("memory (MiB)") && Catch::Contains(" MiB of memory at most"));
    const std::string zero3 = text_of("--set /sync='{\"strategy\":\"zero3\"}'");
    CHECK_THAT(zero3, Catch::Contains("reuse distance") && Catch::Contains(" 1000000000 "));
    // A rank of a node of eight shares with the other seven, or with none beyond.
    CHECK_THAT(text_of("--set /sync='{\"strategy\":\"hsdp\"}'"),
               Catch::Contains("init_device_mesh(\"cuda\", (8, 8)") &&
                   !Catch::Contains("there are no replicas"));
    CHECK_THAT(text_of("--set /sync='{\"strategy\":\"hsdp\"}' --ranks 8"),
               Catch::Contains("there are no replicas, and hsdp is fsdp") &&
                   !Catch::Contains("init_device_mesh"));
}

TEST_CASE("options about caps are refused beside a strategy without", "[sharding]") {
    const auto refused = [](const std::string& arguments) {
        const testing::ShellOutcome outcome = run_sharded(arguments, "2>&1 >/dev/null");
        CHECK(outcome.exit_code == 2);
        return outcome.output;
    };
    CHECK_THAT(refused("predict " + llama() + " --bucket-cap 25MiB"),
               Catch::Contains("--bucket-cap: expected a strategy with buckets, got fsdp"));
    CHECK_THAT(refused("predict " + llama() + " --percentiles"),
               Catch::Contains("--percentiles: expected a strategy with buckets, got fsdp"));
    CHECK_THAT(refused("predict " + llama() + " --plan best"),
               Catch::Contains("--plan: expected optimal, got best"));
    CHECK_THAT(
        refused("predict " + llama() + " --plan optimal --set /sync='{\"strategy\":\"zero3\"}'"),
        Catch::Contains("--plan: expected a strategy with groups, got zero3"));
    CHECK_THAT(refused("predict " + llama() + " --compare-strategies ddp,x"),
               Catch::Contains("--compare-strategies: expected one of ddp, fsdp, hsdp, zero3"));
    // A command that does not take it says so.
    CHECK_THAT(refused("sweep " + llama() + " --vary /cluster/ranks=64"),
               Catch::Contains("/sync/strategy: expected a strategy that keeps all parameters"));
}

}  // namespace
}  // namespace bucketwise
