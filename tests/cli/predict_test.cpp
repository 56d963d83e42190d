// The program as its users meet it: argv in, streams and exit code out.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/cli/process.h"
#include "tests/shell_line.h"

namespace bucketwise {
namespace {

using Printed = testing::ShellOutcome;

// Runs `bucketwise ARGUMENTS` in a shell; `redirect` chooses what is captured.
Printed run_predict(const std::string& arguments, const std::string& redirect = "2>/dev/null") {
    return testing::run_in_shell(std::string(BUCKETWISE_BINARY) + " " + arguments + " " + redirect);
}

std::string scenario(const std::string& name) {
    return std::string(BUCKETWISE_SCENARIO_DIR) + "/" + name;
}

TEST_CASE("predict answers for the smallest scenario as a hand computes it") {
    const Printed outcome =
        run_predict("predict " + scenario("two_buckets.json") + " --bucket-cap 25MiB --json -");
    REQUIRE(outcome.exit_code == 0);
    const nlohmann::json json =
        nlohmann::json::parse(outcome.output);  // nothing else on standard output
    CHECK(json["best"]["forward_ms"] == 1.0);
    CHECK(json["best"]["backward_ms"] == 4.345728);
    CHECK(json["best"]["step_ms"] == 5.345728);
    // Free communication leaves 1 + 3 ms.
    CHECK(json["best"]["exposed_communication_ms"] == 1.345728);
    CHECK(json["best"]["bucket_bytes"] == nlohmann::json{2097152, 1048576});
    CHECK(json["sweep"].size() == 1);
    CHECK(json["default"]["bucket_cap_mib"] == 25.0);
}

TEST_CASE("asked caps come back in rising order, one row each") {
    const nlohmann::json json =
        nlohmann::json::parse(run_predict("predict " + scenario("compare_ddp_async.json") +
                                          " --bucket-cap 24MiB,12MiB,100MiB --json -")
                                  .output);
    REQUIRE(json["sweep"].size() == 3);
    CHECK(json["sweep"][0]["bucket_cap_mib"] == 12.0);
    CHECK(json["sweep"][0]["buckets"] == 11);
    CHECK(json["sweep"][2]["buckets"] == 1);
}

TEST_CASE("the optimal plan comes with a bound and with what can be asked for", "[optimal]") {
    const std::string two = "predict " + scenario("two_buckets.json");
    const nlohmann::json json =
        nlohmann::json::parse(run_predict(two + " --plan optimal --json -").output);
    const nlohmann::json& optimal = json["optimal"];
    // The 2 MiB are ready at 1 ms and take 2.197152, the 1 MiB at 3 ms and 1.148576 if alone, so it
    // starts at 3.197152 and ends 4.345728 ms into backward. Both together would start at 3 ms.
    CHECK(optimal["step_ms"] == 5.345728);
    CHECK(optimal["bound_ms"] == 5.345728);
    CHECK(optimal["proved"] == true);
    CHECK(optimal["bucket_bytes"] == nlohmann::json{2097152, 1048576});
    CHECK(optimal["gaps"][0]["plan"] == "default");
    CHECK(optimal["gaps"][0]["gap"] == 0.0);
    CHECK(run_predict(two + " --plan optimal").output.find("Optimal plan, proved: 5.346 ms") !=
          std::string::npos);
    // Nothing changes unless asked for.
    CHECK(!nlohmann::json::parse(run_predict(two + " --json -").output).contains("optimal"));
    for (const char* wrong :
         {"--plan best", "--plan ''", "--plan", "--plan optimal --strategy none"}) {
        const Printed outcome = run_predict(two + " " + wrong, "2>&1 >/dev/null");
        CHECK(outcome.exit_code == 2);
        CHECK(std::count(outcome.output.begin(), outcome.output.end(), '\n') == 1);
    }
}

TEST_CASE("--tune prints what each knob of a group would save") {
    const std::string resnet =
        "predict " + scenario("resnet50_8xh100.json") + " --link nvlink-h100-8";
    const std::string report = run_predict(resnet + " --tune nccl,computing").output;
    for (const char* part : {"NCCL's variables", "NCCL_MAX_CTAS=8", "CUDA_DEVICE_MAX_CONNECTIONS=1",
                             "ways to compute"}) {
        CHECK(report.find(part) != std::string::npos);
    }
    const auto json = nlohmann::json::parse(run_predict(resnet + " --tune nccl --json -").output);
    REQUIRE(json["tune_nccl"].size() > 4);
    CHECK(json["tune_nccl"][0]["saved"] >= json["tune_nccl"][1]["saved"]);
    CHECK_FALSE(json.contains("tune_computing"));
    for (const std::string& wrong :
         {resnet + " --tune nccl,clocks",
          resnet + " --set /step/one_hardware_queue=true --plan optimal",
          resnet + " --set /step/one_hardware_queue=true --set /step/cuda_graph=true"}) {
        CHECK(run_predict(wrong, "2>&1 >/dev/null").exit_code == 2);
    }
}

TEST_CASE("the list of the optimal plan, typed into the scenario, gives its step", "[optimal]") {
    const std::string gpt2 = "predict " + scenario("gpt2_h200.json") + " --json - ";
    const nlohmann::json optimal =
        nlohmann::json::parse(run_predict(gpt2 + "--plan optimal").output)["optimal"];
    REQUIRE(optimal["bucket_cap_mib_list"].is_array());
    const nlohmann::json typed =
        nlohmann::json::parse(run_predict(gpt2 + "--set '/sync/bucket_cap_mib_list=" +
                                          optimal["bucket_cap_mib_list"].dump() + "'")
                                  .output);
    CHECK(typed["best"]["step_ms"] == optimal["step_ms"]);
    CHECK(typed["best"]["bucket_bytes"] == optimal["bucket_bytes"]);
}

TEST_CASE("options change the scenario") {
    const std::string two = "predict " + scenario("two_buckets.json") + " --json - ";
    const auto step_ms = [&](const std::string& options) {
        return nlohmann::json::parse(run_predict(two + options).output)["best"]["step_ms"]
            .get<double>();
    };
    // No communication: 4 ms. Naive: 4 + two all-reduces of 2.197152 and 1.148576 ms.
    CHECK(step_ms("--strategy none") == 4.0);
    CHECK(step_ms("--strategy naive") == Approx(4 + 2.197152 + 1.148576));
    CHECK(step_ms("--strategy none --set /step/optimizer_ms=0.5") == 4.5);
    CHECK(step_ms("--strategy none --set /workload/forward_ms=2 --set /step/accumulation=2") ==
          10.0);
    const std::string link = scenario("links/gloo_compare_ddp.json");
    CHECK(nlohmann::json::parse(run_predict(two + "--link " + link).output)["link"] ==
          "gloo of the compare_ddp table");
}

TEST_CASE("a list of caps is one plan, the same in text, JSON and trace") {
    const std::string command = "predict " + scenario("compare_ddp_core.json") +
                                " --set '/sync/bucket_cap_mib_list=[1,1000]'";
    const nlohmann::json json = nlohmann::json::parse(run_predict(command + " --json -").output);
    CHECK(json["sweep"].size() == 1);
    CHECK(json["best"] == json["sweep"][0]);
    CHECK(json["default"]["step_ms"] < json["best"]["step_ms"]);
    CHECK(run_predict(command).output.find("with the caps of bucket_cap_mib_list") !=
          std::string::npos);
    const std::string trace = run_predict(command + " --trace -").output;
    CHECK(trace.find("all-reduce bucket 1 ") != std::string::npos);
    CHECK(trace.find("all-reduce bucket 2 ") == std::string::npos);
}

TEST_CASE("the default is the framework's, whatever caps the scenario sets") {
    const std::string command = "predict " + scenario("compare_ddp_core.json") + " --json - ";
    const auto default_of = [&](const std::string& options) {
        nlohmann::json row =
            nlohmann::json::parse(run_predict(command + options).output)["default"];
        row.erase("expected_regret");  // over what else there is to choose
        row.erase("expected_regret_95");
        return row;
    };
    for (const char* option : {"--set /sync/first_bucket_mib=500", "--set /sync/bucket_cap_mib=3",
                               "--set '/sync/bucket_cap_mib_list=[7]'"}) {
        CHECK(default_of(option) == default_of(""));
    }
}

TEST_CASE(
    "a first bucket alone is a setting of the scenario's own, a row of predict and of sweep") {
    const TestFolder folder;
    nlohmann::json document = nlohmann::json::parse(text_of_file(scenario("two_buckets.json")));
    document["sync"].erase("bucket_cap_mib");
    document["sync"]["first_bucket_mib"] = 3;
    write_file(folder.file("s.json"), document.dump());
    // Gradients of 1 and 2 MiB: of the default's buckets the first is full with b's 2 MiB; one of
    // 3 MiB takes both.
    const auto json = nlohmann::json::parse(
        run_predict("predict '" + folder.file("s.json") + "' --json -").output);
    CHECK(json["default"]["buckets"] == 2);
    REQUIRE(json.contains("configured"));
    CHECK(json["configured"]["buckets"] == 1);
    CHECK(json["configured"]["bucket_cap_mib"] == 25);
    CHECK(run_predict("predict '" + folder.file("s.json") + "'").output.find("yours") !=
          std::string::npos);
    const auto swept =
        nlohmann::json::parse(run_predict("sweep '" + folder.file("s.json") + "'").output);
    CHECK(swept["buckets"] == 1);
    CHECK(swept["step_ms"] == json["configured"]["step_ms"]);
}

TEST_CASE("every cap in the table gives its own row when it is typed") {
    for (const char* name : {"compare_ddp_core.json", "cs336_xl.json", "gpt2_xl_32xh100.json"}) {
        const std::string report = run_predict("predict --details " + scenario(name)).output;
        std::istringstream lines(report.substr(report.find("over fastest")));
        std::string line;
        std::getline(lines, line);
        int rows = 0;
        while (std::getline(lines, line) && !line.empty()) {
            std::istringstream cells(line);
            std::string number;
            std::string unit;
            std::size_t buckets = 0;
            std::string step_ms;
            cells >> number >> unit >> buckets >> step_ms;
            if (line.find("default") != std::string::npos) {
                continue;  // left out, not typed
            }
            const nlohmann::json row = nlohmann::json::parse(
                run_predict("predict " + scenario(name) + " --json - --bucket-cap " + number + unit)
                    .output)["best"];
            INFO(name << ": " << line);
            CHECK(row["buckets"] == buckets);
            CHECK(std::abs(row["step_ms"].get<double>() - std::stod(step_ms)) <= 0.5);
            ++rows;
        }
        CHECK(rows >= 5);
    }
}

TEST_CASE("a value in a link file can be set from the command line") {
    const std::string command =
        "predict " + scenario("gpt2_xl_32xh100.json") + " --json - --bucket-cap 25MiB ";
    const auto step_ms = [&](const std::string& options) {
        return nlohmann::json::parse(run_predict(command + options).output)["best"]["step_ms"]
            .get<double>();
    };
    CHECK(step_ms("--set /cluster/link/launch_us=5000") > step_ms(""));
    CHECK(step_ms("--set /cluster/link/inter/launch_us=9000") > step_ms(""));
    const double undisturbed = step_ms("--set '/cluster/link/interference=\"none\"'");
    CHECK(step_ms("--set '/cluster/link/interference={\"compute_slowdown\": 1.3, "
                  "\"communication_slowdown\": 1.2}'") > undisturbed);
    CHECK(step_ms("") > undisturbed);  // assumed
}

TEST_CASE("many micro-steps take no more time to predict than a few") {
    const std::string command =
        "predict " + scenario("cs336_xl.json") + " --json - --bucket-cap 25MiB";
    const nlohmann::json one = nlohmann::json::parse(run_predict(command).output)["best"];
    const nlohmann::json many = nlohmann::json::parse(
        run_predict(command + " --set /step/accumulation=10000").output)["best"];
    // The shipped totals are measured, so nothing but the last micro-step communicates or is
    // launch-bound.
    CHECK(many["forward_ms"].get<double>() == Approx(10'000 * one["forward_ms"].get<double>()));
    CHECK(many["exposed_communication_ms"] == one["exposed_communication_ms"]);
}

TEST_CASE("outputs never take the place of inputs or of each other") {
    const std::string two = scenario("two_buckets.json");
    CHECK(run_predict("predict " + two + " --json " + two).exit_code == 2);
    CHECK(run_predict("predict " + two + " --link " + two + " --trace " + two).exit_code == 2);
    CHECK(run_predict("predict " + two +
                      " --json /tmp/bucketwise_same.json --trace /tmp/../tmp/bucketwise_same.json")
              .exit_code == 2);
    CHECK(run_predict("predict " + two + " --json /dev/null --trace /dev/null").exit_code == 0);
}

TEST_CASE("the same command prints the same bytes") {
    const std::string command = "predict " + scenario("compare_ddp_core.json") + " --json -";
    CHECK(run_predict(command).output == run_predict(command).output);
}

TEST_CASE(
    "wrong use and bad input end with 2, one line on standard error and nothing on standard "
    "output") {
    const std::string two = scenario("two_buckets.json");
    for (const std::string& arguments : std::vector<std::string>{
             "", "predikt", "predict", "predict " + two + " --bucket-caps 1MiB",
             "predict " + two + " --bucket-cap 25", "predict " + two + " --bucket-cap 0MiB",
             "predict " + two + " --set /cluster/ranks=0", "predict " + two + " --set nonsense",
             "predict " + two + " --strategy fastest",
             "predict " + two + " --link /no/such/link.json", "predict /no/such/scenario.json",
             "predict " + two + " more", "predict " + two + " --strategy naive --bucket-cap 1MiB",
             "predict " + two + " --json - --trace -", "predict / --json -",
             "predict " + two + " --set /name=$(printf '\\377')",
             "predict " + two + " --set /sync/pytorch_version=2.4",
             "predict " + two +
                 " --trace - --set /step/accumulation=10000 --set /workload/gradients/x=1",
             "predict " + two + " --json"}) {
        INFO(arguments);
        const Printed errors = run_predict(arguments, "2>&1 >/dev/null");
        CHECK(errors.exit_code == 2);
        CHECK(errors.output.rfind("bucketwise: ", 0) == 0);
        CHECK(std::count(errors.output.begin(), errors.output.end(), '\n') == 1);
        CHECK(run_predict(arguments).output.empty());
    }
}

TEST_CASE("what cannot be written ends with 1 and leaves what was there") {
    const Printed outcome =
        run_predict("predict " + scenario("two_buckets.json") + " --json /no/such/folder/out.json",
                    "2>&1 >/dev/null");
    CHECK(outcome.exit_code == 1);
    CHECK(outcome.output.find("bucketwise: /no/such/folder/out.json: cannot write") == 0);
    CHECK(run_predict("predict " + scenario("two_buckets.json"), "2>/dev/null >/dev/full")
              .exit_code == 1);
}

TEST_CASE("help and version go to standard output") {
    for (const char* arguments : {"--help", "predict --help", "--version"}) {
        const Printed outcome = run_predict(arguments);
        CHECK(outcome.exit_code == 0);
        CHECK_FALSE(outcome.output.empty());
    }
}

}  // namespace
}  // namespace bucketwise
