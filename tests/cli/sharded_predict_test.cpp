// bucketwise predict of scenarios that shard, as its users meet it.
#include <algorithm>
#include <sstream>
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
    CHECK_THAT(refused("predict " + llama() + " --plan best"),
               Catch::Contains("--plan: expected optimal, got best"));
    CHECK_THAT(
        refused("predict " + llama() + " --plan optimal --set /sync='{\"strategy\":\"zero3\"}'"),
        Catch::Contains("--plan: expected a strategy with groups, got zero3"));
    CHECK_THAT(refused("predict " + llama() + " --compare-strategies ddp,x"),
               Catch::Contains("--compare-strategies: expected one of ddp, fsdp, hsdp, zero3"));
    CHECK_THAT(refused("sweep " + llama() + " --vary /cluster/ranks=64 --bucket-cap 25MiB"),
               Catch::Contains("--bucket-cap: expected a strategy with a bucket cap, got fsdp"));
}

nlohmann::json json_of(const std::string& arguments) {
    const testing::ShellOutcome outcome = run_sharded(arguments);
    REQUIRE(outcome.exit_code == 0);
    return nlohmann::json::parse(outcome.output);
}

const std::string two_layers = " --set /workload/model/layers=2 ";

TEST_CASE("a sharded prediction says how sure it is, and what its presets leave open",
          "[sharding]") {
    const nlohmann::json json = json_of("predict " + llama() + two_layers + "--json -");
    CHECK(json["format"] == 2);
    CHECK(json["best"]["expected_regret"] <= json["best"]["expected_regret_95"]);
    CHECK(json["configured"].contains("expected_regret"));
    const std::string advice = json["verdict"]["advice"];
    CHECK((advice == "set_sharding" || advice == "keep_sharding"));
    for (const char* preset : {"link_preset", "device_preset"}) {
        const nlohmann::json& ends = json[preset]["ends"];
        REQUIRE(ends.size() == 2);
        CHECK(ends[0]["end"] == "slow");
        CHECK(ends[0]["advised_step_ms"] >= json["best"]["step_ms"]);
        CHECK(ends[1]["advised_step_ms"] <= json["best"]["step_ms"]);
        for (const nlohmann::json& end : ends) {
            CHECK(end["best"]["step_ms"] <= end["advised_step_ms"]);
            CHECK(end["best"]["memory"]["fits"] == true);
        }
    }
    const std::string text = run_sharded("predict " + llama() + two_layers).output;
    CHECK_THAT(text, Catch::Contains("By the model's declared error this choice costs") &&
                         Catch::Contains("ib-ndr-400 is a preset, not a measurement:") &&
                         Catch::Contains("H100 is a preset, not a measurement:") &&
                         Catch::Contains("at its slow end: "));
}

TEST_CASE("percentiles of a sharded step share their draws", "[sharding]") {
    const std::string arguments =
        "predict " + llama() + two_layers +
        "--set /variation='{\"seed\":1,\"compute_spread\":0.05}' --percentiles --draws 50";
    const nlohmann::json json = json_of(arguments + " --json -");
    const nlohmann::json& rows = json["percentiles"]["shardings"];
    REQUIRE(rows.size() >= 2);
    for (const nlohmann::json& row : rows) {
        CHECK(row["p50_ms"] <= row["p90_ms"]);
        CHECK(row["p90_ms"] < row["p99_ms"]);
        CHECK(row.contains("sharding"));
    }
    CHECK(json["best"].contains("step_interval_ms"));
    CHECK_THAT(run_sharded(arguments).output,
               Catch::Contains("the same for every setting") && Catch::Contains("p99 (ms)"));
}

TEST_CASE("a sweep of a sharded scenario has the steps that predict has", "[sharding]") {
    const testing::ShellOutcome swept = run_sharded(
        "sweep " + llama() + two_layers + "--vary /cluster/ranks=8..64:x2 --format jsonl");
    REQUIRE(swept.exit_code == 0);
    std::istringstream lines(swept.output);
    int rows = 0;
    for (std::string line; std::getline(lines, line); ++rows) {
        const nlohmann::json row = nlohmann::json::parse(line);
        const nlohmann::json one =
            json_of("predict " + llama() + two_layers + "--json - --ranks " +
                    std::to_string(row["/cluster/ranks"].get<int>()))["configured"];
        for (const char* key : {"step_ms", "forward_ms", "exposed_communication_ms", "groups"}) {
            CHECK(row[key] == one[key]);
        }
        CHECK(row["memory_bytes"] == one["memory"]["most_bytes"]);
        CHECK(row["sharding"] == "each layer");
    }
    CHECK(rows == 4);
}

// Each point of a sweep has the step of a sweep that has no other.
void check_points(const std::string& scenario, const std::string& pointer,
                  const std::string& values) {
    const testing::ShellOutcome swept =
        run_sharded("sweep " + scenario + " --vary " + pointer + "=" + values);
    REQUIRE(swept.exit_code == 0);
    std::istringstream lines(swept.output);
    for (std::string line; std::getline(lines, line);) {
        const nlohmann::json row = nlohmann::json::parse(line);
        const nlohmann::json alone =
            json_of("sweep " + scenario + " --vary " + pointer + "=" + row[pointer].dump());
        CHECK(row["step_ms"] == alone["step_ms"]);
    }
}

TEST_CASE("points of a link are priced as if built for them, also between replicas", "[sharding]") {
    const std::string link =
        " --set /cluster/link='{\"name\":\"l\",\"algorithm\":\"ring\",\"segments\":"
        "[{\"latency_us\":5,\"bandwidth_gb_per_s\":20}]}'";
    for (const char* sync :
         {"{\"strategy\":\"fsdp\",\"sharding\":{\"reshard_ranks\":4}}",
          "{\"strategy\":\"hsdp\",\"sharding\":{\"shard_ranks\":4}}", "{\"strategy\":\"zero3\"}"}) {
        check_points(llama() + two_layers + link + " --ranks 16 --set /sync='" + sync + "'",
                     "/cluster/link/segments/0/bandwidth_gb_per_s", "20,10,40");
    }
}

TEST_CASE("points of ranks have the parts of a sharded optimizer", "[sharding]") {
    check_points(
        "resnet50 --ranks 8 --link ib-ndr-400 --set /step='{\"optimizer\":\"adam\"}' --set "
        "/sync='{\"strategy\":\"ddp\",\"sharded_optimizer\":\"broadcast\"}'",
        "/cluster/ranks", "8,16");
}

TEST_CASE("knobs are crossed where a model does not fit, and the fastest that fits is typed",
          "[sharding]") {
    const std::string arguments = "predict llama-3-8b --ranks 8 --batch 2 --sequence 8192 ";
    const testing::ShellOutcome outcome = run_sharded(arguments);
    REQUIRE(outcome.exit_code == 0);
    CHECK(outcome.output.starts_with("Does not fit: a rank needs about 2"));
    CHECK_THAT(outcome.output, Catch::Contains("The fastest that fits: fsdp with") &&
                                   Catch::Contains("Knobs crossed, ") &&
                                   Catch::Contains("= checkpoint_wrapper(model.model.layers[i])") &&
                                   Catch::Contains("fully_shard(model)"));

    const testing::ShellOutcome printed = run_sharded(arguments + "--json -");
    REQUIRE(printed.exit_code == 0);
    const nlohmann::json knobs = nlohmann::json::parse(printed.output).at("knobs");
    const nlohmann::json& frontier = knobs.at("frontier");
    REQUIRE(frontier.size() >= 2);
    for (std::size_t i = 0; i < frontier.size(); ++i) {
        const nlohmann::json& row = frontier.at(i);
        // 95 % of 80 GiB; 2 sequences in one micro-step, or one in each of two.
        CHECK(row.at("memory").at("most_bytes").get<double>() <= 0.95 * 80 * (1LL << 30));
        CHECK(row.at("batch").get<int>() * row.at("accumulation").get<int>() == 2);
        if (i > 0) {
            CHECK(row.at("step_ms") < frontier.at(i - 1).at("step_ms"));
            CHECK(row.at("memory").at("most_bytes") >
                  frontier.at(i - 1).at("memory").at("most_bytes"));
        }
    }
    CHECK(knobs.at("fastest") == frontier.size() - 1);

    // The row is the step of a scenario with these settings.
    const nlohmann::json& fastest = frontier.back();
    const testing::ShellOutcome same = run_sharded(
        "predict llama-3-8b --ranks 8 --sequence 8192 --json - --batch " +
        fastest.at("batch").dump() + " --strategy " + fastest.at("strategy").get<std::string>() +
        " --set /step/accumulation=" + fastest.at("accumulation").dump() +
        " --set '/workload/activation_checkpointing=" +
        fastest.at("activation_checkpointing").dump() +
        "' --set '/sync/sharding=" + fastest.at("sharding").dump() + "'");
    REQUIRE(same.exit_code == 0);
    const nlohmann::json own = nlohmann::json::parse(same.output).at("configured");
    CHECK(own.at("step_ms") == fastest.at("step_ms"));
    CHECK(own.at("memory") == fastest.at("memory"));
}

TEST_CASE("knobs need a model on a device, and leave alone what is as fast as any", "[sharding]") {
    const testing::ShellOutcome listed = run_sharded(
        "predict " BUCKETWISE_TEST_DATA_DIR "/../scenarios/documents/minimal.json --knobs", "2>&1");
    CHECK(listed.exit_code == 2);
    CHECK_THAT(listed.output, Catch::Contains("--knobs: expected a model on a device"));
    // Listed operations are of one batch, so that it stays.
    const testing::ShellOutcome described =
        run_sharded("predict " BUCKETWISE_TEST_DATA_DIR
                    "/../scenarios/documents/listed_model.json --knobs "
                    "--json -");
    REQUIRE(described.exit_code == 0);
    const nlohmann::json knobs = nlohmann::json::parse(described.output).at("knobs");
    for (const nlohmann::json& row : knobs.at("frontier")) {
        CHECK(row.at("batch") == 2);
    }
    const testing::ShellOutcome fits =
        run_sharded("predict " BUCKETWISE_SCENARIO_DIR "/compare_ddp_core.json --knobs");
    CHECK(fits.exit_code == 0);
    CHECK_THAT(fits.output, Catch::Contains("as fast as any that fits, your own: ddp"));
}

TEST_CASE("check holds a sharded scenario against its baseline", "[sharding]") {
    const TestFolder folder;
    const std::string arguments =
        "check " + llama() + two_layers + "--baseline '" + folder.file("baseline.json") + "'";
    REQUIRE(run_sharded(arguments + " --update-baseline").exit_code == 0);
    const testing::ShellOutcome held = run_sharded(arguments);
    CHECK(held.exit_code == 0);
    CHECK_THAT(held.output, Catch::Contains("as before"));
    const testing::ShellOutcome slower = run_sharded(arguments + " --link roce-100g");
    CHECK(slower.exit_code == 3);
    CHECK_THAT(slower.output, Catch::Contains("Not held") &&
                                  Catch::Contains("Collectives are waited for longer: "));
    CHECK(run_sharded("check " + llama() + two_layers + "--max-exposed 0%").exit_code == 3);
}

TEST_CASE("check takes a trace of FSDP2 and its baseline", "[sharding]") {
    const TestFolder folder;
    const std::string arguments =
        "check " BUCKETWISE_TEST_DATA_DIR
        "/fsdp2/traces/perceptron_kept_after_forward.json.gz --baseline '" +
        folder.file("baseline.json") + "'";
    REQUIRE(run_sharded(arguments + " --update-baseline").exit_code == 0);
    CHECK(run_sharded(arguments).exit_code == 0);
    CHECK(run_sharded(arguments + " --max-exposed 0%").exit_code == 3);
}

}  // namespace
}  // namespace bucketwise
