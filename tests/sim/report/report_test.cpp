#include "sim/report/report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sim/base/json_input.h"
#include "sim/frameworks/framework_advice.h"
#include "sim/report/perfetto.h"
#include "sim/report/prediction_json.h"
#include "tests/catch.h"
#include "tests/trace_rules.h"

namespace bucketwise {
namespace {

// A model large enough that the sweep has more plans than the table has rows.
Scenario resnet_scenario() {
    const Json document{
        {"name", "ResNet"},
        {"workload",
         {{"model", "resnet50"},
          {"batch", 32},
          {"device", {{"preset", "A100"}, {"launch_us", 8}}}}},
        {"cluster",
         {{"ranks", 8},
          {"link",
           {{"name", "link"},
            {"algorithm", "ring"},
            {"segments", Json::array({{{"latency_us", 20}, {"bandwidth_gb_per_s", 5}}})}}}}},
        {"sync", {{"strategy", "ddp"}}}};
    return parse_scenario(document, "s.json", [](const std::string&) { return std::string(); });
}

Prediction predict_scenario(const Scenario& scenario) {
    return predict(step_input(scenario), scenario.sync, {}, [](double) {});
}

TEST_CASE("the report names the best cap, the default, the plateau and what binds the step") {
    const Scenario scenario = resnet_scenario();
    const Prediction prediction = predict_scenario(scenario);
    const std::string text =
        text_report(scenario, prediction,
                    {framework_settings(step_input(scenario), scenario.sync, prediction), {}});
    for (const char* part : {"ResNet: ddp, 8 ranks, ring over link", "default", "are equally good",
                             "is bound by computing", "bucket_cap_mb="}) {
        INFO(part << " in:\n" << text);
        CHECK(text.find(part) != std::string::npos);
    }
    const auto longest = [&] {
        std::size_t most = 0;
        for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
            end = text.find('\n', begin);
            most = std::max(most, std::min(end, text.size()) - begin);
        }
        return most;
    }();
    CHECK(longest <= 110);
}

TEST_CASE("the table holds both ends, the best and the plateau, and about a dozen rows") {
    const Prediction prediction = predict_scenario(resnet_scenario());
    REQUIRE(prediction.sweep.size() > 20);
    const std::vector<std::size_t> rows = telling_rows(prediction);
    CHECK(rows.size() <= 12);
    CHECK(std::is_sorted(rows.begin(), rows.end()));
    for (const std::size_t needed : {std::size_t{0}, prediction.best, prediction.plateau_low,
                                     prediction.plateau_high, prediction.sweep.size() - 1}) {
        CHECK(std::find(rows.begin(), rows.end(), needed) != rows.end());
    }
}

TEST_CASE("the JSON holds the keys of the contract in every row") {
    const Scenario scenario = resnet_scenario();
    const Json json = to_json(scenario, predict_scenario(scenario));
    CHECK(json["format"] == prediction_format);
    CHECK(json["verdict"]["text"].get<std::string>().ends_with("."));
    CHECK(json["verdict"]["advice"] == "set_cap");
    CHECK(json["verdict"]["saved_95"][0] <= json["verdict"]["saved_95"][1]);
    for (const char* key : {"scenario", "best", "default", "plateau_mib", "sweep", "settings"}) {
        CHECK(json.contains(key));
    }
    std::vector<Json> rows{json["best"], json["default"]};
    rows.insert(rows.end(), json["sweep"].begin(), json["sweep"].end());
    for (const Json& row : rows) {
        for (const char* key : {"bucket_cap_mib", "buckets", "step_ms", "forward_ms", "backward_ms",
                                "exposed_communication_ms", "bucket_bytes"}) {
            CHECK(row.contains(key));
        }
        CHECK(row["buckets"] == row["bucket_bytes"].size());
        CHECK(row["step_ms"].get<double>() ==
              Approx(row["forward_ms"].get<double>() + row["backward_ms"].get<double>()));
        std::int64_t bytes = 0;
        for (const Json& size : row["bucket_bytes"]) {
            bytes += size.get<std::int64_t>();
        }
        CHECK(bytes == std::int64_t{25'557'032} * 4);
    }
    CHECK(json["plateau_mib"].size() == 2);
}

TEST_CASE("settings say what to type, how many buckets it gives, and what they lose") {
    const Scenario scenario = resnet_scenario();
    const Prediction prediction = predict_scenario(scenario);
    // They are asked for; else nothing is said.
    CHECK(to_json(scenario, prediction)["settings"].empty());
    CHECK(text_report(scenario, prediction).find("Settings to type") == std::string::npos);
    const SettingAdvice advice{framework_settings(step_input(scenario), scenario.sync, prediction),
                               {}};
    const Json settings = to_json(scenario, prediction, advice)["settings"];
    REQUIRE(settings.size() == every<Framework>.size());
    const std::string text = text_report(scenario, prediction, advice);
    for (const auto& [framework, key] : std::vector<std::pair<std::string, std::string>>{
             {"pytorch_ddp", "bucket_cap_mb"},
             {"megatron_lm", "ddp_bucket_size"},
             {"megatron_distributed_optimizer", "ddp_bucket_size"},
             {"deepspeed_zero1", "reduce_bucket_size"},
             {"deepspeed_zero2", "reduce_bucket_size"},
             {"horovod", "HOROVOD_FUSION_THRESHOLD"}}) {
        const Json& setting = settings[framework];
        INFO(setting.dump());
        CHECK(setting.contains(key));
        CHECK(setting["buckets"] == setting["bucket_bytes"].size());
        std::int64_t bytes = 0;
        for (const Json& size : setting["bucket_bytes"]) {
            bytes += size.get<std::int64_t>();
        }
        // Buckets of the distributed optimizer are padded.
        const bool padded = framework == "megatron_distributed_optimizer";
        CHECK((padded ? bytes > std::int64_t{25'557'032} * 4
                      : bytes == std::int64_t{25'557'032} * 4));
        CHECK(setting["loss"].get<double>() ==
              Approx(setting["step_ms"].get<double>() / setting["ideal_step_ms"].get<double>() - 1)
                  .margin(1e-9));
        CHECK(setting["loss"].get<double>() >= -1e-12);
        CHECK(setting["ideal"] == (padded ? "best simulated" : "optimum"));
        CHECK(setting["default"]["step_ms"] >= setting["step_ms"]);
        CHECK(text.find(setting["typed"].get<std::string>()) != std::string::npos);
    }
    CHECK(settings["horovod"]["HOROVOD_CYCLE_TIME"] > 0);
    // One bucket of all that is there, when all of it is.
    CHECK(settings["megatron_lm"]["without_overlap_step_ms"] > settings["megatron_lm"]["step_ms"]);
}

TEST_CASE("the trace obeys the rules of its viewers") {
    const Scenario scenario = resnet_scenario();
    const StepInput input = step_input(scenario);
    const Program program = Evaluator(input, scenario.sync).program(std::nullopt);
    const Json trace = Json::parse(
        perfetto_trace("step", input, program, simulate({&program, 1}, Record::timeline)));
    check_trace_rules(trace);
    std::set<int> flows;
    int all_reduces = 0;
    for (const Json& event : trace["traceEvents"]) {
        if (event["ph"] == "X") {
            all_reduces +=
                event["name"].get<std::string>().rfind("all-reduce bucket", 0) == 0 ? 1 : 0;
        } else if (event["ph"] == "s") {
            flows.insert(event["id"].get<int>());
        }
    }
    // The default cap on ResNet-50: 5 buckets, each with one flow to it.
    CHECK(all_reduces == 5);
    CHECK(flows.size() == 5);
}

TEST_CASE("a host that is steps ahead is shown with what it issues while this step runs") {
    Scenario scenario = resnet_scenario();
    scenario.step.launch_queue = 100;
    scenario.link.interference.clear();
    const StepInput input = step_input(scenario);
    const Evaluator evaluator(input, scenario.sync);
    const Program program = evaluator.program(std::nullopt);
    const Simulation settled = evaluator.simulation(program);
    const Json trace = Json::parse(perfetto_trace("step", input, program, settled));
    check_trace_rules(trace);
    const double step_us = to_us(settled.progress.front().device);
    Duration issuing{0};
    for (const Instruction& instruction : program.instructions) {
        issuing += instruction.host;
    }
    double host_us = 0;
    double end_us = 0;
    int ahead = 0;
    std::map<double, double> slices;
    for (const Json& event : trace["traceEvents"]) {
        if (event["ph"] == "X" && event["cat"] == "host") {
            slices[event["ts"]] = event["dur"];
            host_us += event["dur"].get<double>();
            ahead += event.contains("args") ? 1 : 0;
        }
    }
    for (const auto& [begin, length] : slices) {
        CHECK(begin >= end_us - 1e-3);  // slices are rounded to nanoseconds
        end_us = begin + length;
    }
    CHECK(end_us <= step_us + 1e-3);
    CHECK(std::abs(host_us - to_us(issuing)) < 1);
    // There is room for 100 launches; many have no time of their own.
    CHECK(ahead > 0);
    CHECK(ahead <= 101);
}

TEST_CASE("a measured step stands beside the simulated one, on the same clock") {
    const Scenario scenario = resnet_scenario();
    const StepInput input = step_input(scenario);
    const Program program = Evaluator(input, scenario.sync).program(std::nullopt);
    const Duration us{1'000'000};
    // The second slice begins before the first has ended, as medians may.
    const TraceProcess measured{
        "measured",
        {{"computing", {{"forward", 0 * us, 5 * us}, {"backward", 4 * us, 9 * us}}},
         {"communication", {{"bucket 1", 6 * us, 8 * us}}}}};
    const Json trace = Json::parse(perfetto_trace(
        "step", input, program, simulate({&program, 1}, Record::timeline), {measured}));
    check_trace_rules(trace);
    std::vector<Json> beside;
    for (const Json& event : trace["traceEvents"]) {
        if (event["ph"] == "X" && event["pid"] == 2) {
            beside.push_back(event);
        }
    }
    REQUIRE(beside.size() == 3);
    CHECK(beside[1]["ts"] == 5.0);
    CHECK(beside[1]["dur"] == 4.0);
    CHECK(beside[2]["ts"] == 6.0);
    CHECK(beside[2]["tid"] != beside[1]["tid"]);
}

TEST_CASE("each side stream has a track of its own") {
    const Duration us{1'000'000};
    StepInput input;
    input.workload.side_streams = {"copies", "kernels"};
    // The copy until 5; the kernel after it until 8; then computing.
    input.workload.forward = {{.name = "copy", .device = 5 * us, .order = {1}},
                              {.name = "kernel", .device = 3 * us, .order = {2, 2}},
                              {.name = "join", .device = 1 * us, .order = {0, 2 + 4}}};
    const Program program = build_program(input, {}, {});
    const Json trace = Json::parse(
        perfetto_trace("step", input, program, simulate({&program, 1}, Record::timeline), {}));
    check_trace_rules(trace);
    std::map<Json, std::string> tracks;
    for (const Json& event : trace["traceEvents"]) {
        if (event["name"] == "thread_name") {
            tracks[event["tid"]] = event["args"]["name"];
        }
    }
    std::map<std::string, std::string> at;
    std::map<std::string, double> begins;
    for (const Json& event : trace["traceEvents"]) {
        if (event["ph"] == "X") {
            at[event["name"]] = tracks[event["tid"]];
            begins[event["name"]] = event["ts"];
        }
    }
    CHECK(at == std::map<std::string, std::string>{{"copy", "stream copies"},
                                                   {"kernel", "stream kernels"},
                                                   {"join", "compute stream"}});
    CHECK(begins == std::map<std::string, double>{{"copy", 0}, {"kernel", 5}, {"join", 8}});
}

TEST_CASE("memory as JSON leaves out what is not known") {
    const MemoryNeed need{.parameters = {10},
                          .gradients = {10},
                          .buckets = {10},
                          .hook_copies = {5},
                          .optimizer_state = {},
                          .activations = Bytes{7},
                          .gradients_stay = false,
                          .device = Bytes{34}};
    // At most 10 + 10 + 10 + 5 when backward ends.
    CHECK(to_json(need) == Json{{"parameters_bytes", 10},
                                {"gradients_bytes", 10},
                                {"buckets_bytes", 10},
                                {"cast_buckets_bytes", 5},
                                {"activations_bytes", 7},
                                {"most_bytes", 35},
                                {"device_bytes", 34},
                                {"fits", false}});
}

}  // namespace
}  // namespace bucketwise
