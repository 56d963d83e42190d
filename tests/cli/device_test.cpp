// bucketwise device list and show, and what predict says of a preset's range.
#include <string>

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/cli/process.h"

namespace bucketwise {
namespace {

struct Answer {
    int exit_code = -1;
    std::string output;
    std::string errors;
};

Answer answer_to(const Words& arguments) {
    Process process(Words{BUCKETWISE_BINARY} + arguments);
    const int exit_code = process.wait();
    return {exit_code, process.output(), process.errors()};
}

nlohmann::json json_answer_to(const Words& arguments) {
    const Answer answer = answer_to(arguments);
    INFO(answer.errors);
    REQUIRE(answer.exit_code == 0);
    return nlohmann::json::parse(answer.output);
}

TEST_CASE("device list prints every preset with its peaks and their source") {
    const nlohmann::json rows = json_answer_to({"device", "list", "--format", "json"}).at("rows");
    CHECK(rows.size() == 18);
    for (const nlohmann::json& row : rows) {
        INFO(row.dump());
        CHECK(row["float16_tflop_per_s"] >= row["float32_tflop_per_s"]);
        CHECK(row["memory_gb_per_s"] > 0);
        CHECK_FALSE(row["source"].get<std::string>().empty());
    }
    CHECK(answer_to({"device", "list"}).output.find("RTX PRO 6000") != std::string::npos);
    CHECK(answer_to({"device", "list", "all"}).exit_code == 2);
}

TEST_CASE("device show prints each factor with its range, and where it is from") {
    const nlohmann::json shown = json_answer_to({"device", "show", "H100", "--format", "json"});
    CHECK(shown["device"] == "H100");
    CHECK(shown["rows"].size() == 9);
    const Answer text = answer_to({"device", "show", "H100"});
    CHECK(text.output.find("NVIDIA H100") != std::string::npos);
    CHECK(text.output.find("us for an operation forward") != std::string::npos);
    const Answer unknown = answer_to({"device", "show", "H1000"});
    CHECK(unknown.exit_code == 2);
    CHECK(unknown.errors.find("expected one of A100, A100 40GB, A10G") != std::string::npos);
}

TEST_CASE("predict shows the step at both ends of a device's range, where nothing was measured") {
    const std::string scenario = std::string(BUCKETWISE_SCENARIO_DIR) + "/gpt2_h200.json";
    const nlohmann::json json = json_answer_to({"predict", scenario, "--json", "-"});
    CHECK(json["device_preset"]["name"] == "H200");
    REQUIRE(json["device_preset"]["ends"].size() == 2);
    CHECK(json["device_preset"]["ends"][0]["best"]["step_ms"] > json["best"]["step_ms"]);
    CHECK(json["device_preset"]["ends"][1]["best"]["step_ms"] < json["best"]["step_ms"]);
    CHECK(answer_to({"predict", scenario}).output.find("H200 is a preset, not a measurement") !=
          std::string::npos);
    CHECK(answer_to({"predict", scenario, "--set",
                     R"(/workload/device={"preset": "H200", "name": "mine"})"})
              .output.find("mine is made of a preset, not a measurement") != std::string::npos);
    CHECK_FALSE(json_answer_to({"predict", scenario, "--set", "/workload/forward_ms=10", "--set",
                                "/workload/backward_ms=20", "--json", "-"})
                    .contains("device_preset"));
}

TEST_CASE("a batch of one on a slow host is bound by launching, and the report says so") {
    const std::string scenario = std::string(BUCKETWISE_SCENARIO_DIR) + "/gpt2_h200.json";
    const nlohmann::json json =
        json_answer_to({"predict", scenario, "--set", "/workload/batch=1", "--set",
                        "/workload/sequence_length=64", "--json", "-"});
    const nlohmann::json& binding = json["binding"];
    CHECK(binding["launch_ms"] > binding["compute_ms"]);
}

TEST_CASE("a step that free launches would shorten by a tenth is called launch-bound") {
    const std::string scenario = std::string(BUCKETWISE_SCENARIO_DIR) + "/gpt2_h200.json";
    const auto report = [&](const char* batch) {
        return answer_to({"predict", scenario, "--set", std::string("/workload/batch=") + batch,
                          "--set", "/workload/sequence_length=512"});
    };
    CHECK(report("4").output.find("The step is launch-bound") != std::string::npos);
    CHECK(report("64").output.find("The step is launch-bound") == std::string::npos);
}

}  // namespace
}  // namespace bucketwise
