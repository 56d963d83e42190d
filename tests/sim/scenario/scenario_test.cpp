#include "sim/scenario/scenario.h"
#include "sim/link/assumed_interference.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>

#include "sim/base/json_input.h"
#include "sim/engine/engine.h"
#include "sim/link/link_input.h"
#include "sim/link/link_topology.h"
#include "sim/program/step_programs.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

constexpr const char* contract = R"({
  "name": "two gradients",
  "workload": { "forward_ms": 1.0, "backward_ms": 3.0,
                "gradients": [ {"name": "a", "numel": 262144, "dtype": "float32", "ready_ms": 3.0},
                               {"name": "b", "numel": 524288, "dtype": "float32", "ready_ms": 1.0} ] },
  "cluster":  { "ranks": 2, "link": { "name": "slow", "algorithm": "ring",
                "segments": [ {"up_to_bytes": 65536, "latency_us": 20.0, "bandwidth_gb_per_s": 0.5},
                              {"latency_us": 50.0, "bandwidth_gb_per_s": 1.0} ] } },
  "sync":     { "strategy": "ddp", "bucket_cap_mib": 25, "first_bucket_mib": 1, "views": true } })";

Json changed(const std::string& pointer, const Json& value) {
    Json document = Json::parse(contract);
    document[Json::json_pointer(pointer)] = value;
    return document;
}

const std::map<std::string, std::string> files{
    {"dir/link.json",
     R"({"name": "l", "algorithm": "direct", "segments": [{"latency_us": 1, "bandwidth_gb_per_s": 1}]})"},
    {"dir/tiers.json",
     R"({"name": "h", "algorithm": "hierarchical", "intra": "link.json", "inter": "sub/other.json"})"},
    {"dir/sub/other.json",
     R"({"name": "o", "algorithm": "ring", "host_issue_us": 7, "copy_gb_per_s": 5,
         "interference": {"compute_slowdown": 1.25, "communication_slowdown": 1.5},
         "segments": [{"latency_us": 2, "bandwidth_gb_per_s": 2}]})"},
    {"dir/cycle.json",
     R"({"name": "c", "algorithm": "hierarchical", "intra": "cycle.json", "inter": "link.json"})"},
    {"dir/torn.json", R"({"name": "t")"}};

std::string read_test_file(const std::string& path) {
    const auto found = files.find(path);
    if (found == files.end()) {
        throw InputError(path, "", "a file that can be read", "No such file or directory");
    }
    return found->second;
}

Scenario parse(const Json& document) {
    return parse_scenario(document, "dir/s.json", read_test_file);
}

std::string refusal(const Json& document) {
    try {
        static_cast<void>(parse(document));
    } catch (const InputError& error) {
        return error.what();
    }
    return "accepted";
}

TEST_CASE("the smallest scenario is read as written, and takes what a hand computes") {
    const Scenario scenario = parse(Json::parse(contract));
    CHECK(scenario.group == RankGroup{2, 2});
    CHECK(scenario.link.segments.size() == 2);
    CHECK(scenario.sync.bucket_cap == Bytes{25 << 20});
    const StepInput input = step_input(scenario);
    const SyncSettings sync = settings_for(scenario.sync);
    const Program program = build_program(
        input, sync, make_plan(input.workload.gradients, input.workload.readiness, sync.policy));
    // b (2 MiB) is ready at 1 ms: 2 steps x 50 us + 2,097,152 us/1000 = 2.197152 ms, until 3.197152
    // ms. a (1 MiB) is ready at 3 ms, waits, and takes 0.1 + 1.048576 ms: 4.345728 ms of backward.
    const StepTimes times = simulate_times(program);
    CHECK(times.forward == duration_from_ms(1));
    CHECK(times.backward == duration_from_ms(4.345728));
}

TEST_CASE("buffers of a listed workload are broadcast in forward, one broadcast per entry") {
    const Json buffers =
        Json::parse(R"([{"tensors": 106, "bytes": 212480}, {"tensors": 53, "bytes": 424}])");
    const StepInput input = step_input(parse(changed("/workload/buffers", buffers)));
    CHECK(input.workload.buffer_groups == std::vector<BufferGroup>{{{212'480}, 106}, {{424}, 53}});
    const SyncSettings sync = settings_for(parse(Json::parse(contract)).sync);
    const Program program = build_program(
        input, sync, make_plan(input.workload.gradients, input.workload.readiness, sync.policy));
    // Forward of 1 ms waits for both. On 2 ranks a broadcast takes half the bytes of an all-reduce,
    // and one step: 50 us + 212.48 us at 1 GB/s, 20 us + 424 B / (0.5 GB/s) = 20.848 us.
    CHECK(simulate_times(program).forward == duration_from_us(1000 + 262.48 + 20.848));
    CHECK(refusal(changed("/workload/buffers", Json::array())).find("/workload/buffers") !=
          std::string::npos);
    CHECK(refusal(changed("/workload/buffers", Json::parse(R"([{"tensors": 0, "bytes": 4}])")))
              .find("/workload/buffers/0/tensors: expected an integer from 1 to 100000, got 0") !=
          std::string::npos);
}

TEST_CASE("a listed workload's own costs of the host hold where the link has none") {
    Json document = Json::parse(contract);
    document["workload"]["collective_issue_us"] = 7;
    document["workload"]["copy_gb_per_s"] = 3;
    CHECK(step_input(parse(document)).link.host_issue == duration_from_us(7));
    CHECK(step_input(parse(document)).copy_bandwidth == BytesPerSecond{3'000'000'000});
    document["cluster"]["link"]["host_issue_us"] = 5;
    document["cluster"]["link"]["copy_gb_per_s"] = 2;
    CHECK(step_input(parse(document)).link.host_issue == duration_from_us(5));
    CHECK(step_input(parse(document)).copy_bandwidth == BytesPerSecond{2'000'000'000});
}

TEST_CASE("operations one by one take what a hand computes, on a host and a device") {
    Json document = Json::parse(contract);
    Json& workload = document["workload"];
    workload.erase("forward_ms");
    workload.erase("backward_ms");
    for (Json& gradient : workload["gradients"]) {
        gradient.erase("ready_ms");
    }
    workload["forward_operations"] = {{{"name", "f"}, {"host_us", 100}, {"device_us", 1000}}};
    workload["backward_operations"] = {
        {{"name", "b"}, {"host_us", 100}, {"device_us", 1000}, {"ready", {"b"}}},
        {{"name", "a"}, {"host_us", 5000}, {"device_us", 2000}, {"ready", {"a"}}}};
    document["sync"] = {{"strategy", "none"}};
    const StepInput input = step_input(parse(document));
    CHECK(input.workload.readiness == std::vector<std::int32_t>{1, 0});
    const SyncSettings sync = settings_for(parse(document).sync);
    const StepTimes times = simulate_times(build_program(
        input, sync, make_plan(input.workload.gradients, input.workload.readiness, sync.policy)));
    // f runs from 100 to 1,100, b until 2,100; a is launched at 5,200 and ends at 7,200.
    CHECK(times.step() == duration_from_us(7200));

    // The host waits for b until 2,100 and launches a at 7,100, which ends at 9,100; the optimizer
    // is launched at 7,400 and runs for 50.
    Json waiting = document;
    waiting["workload"]["backward_operations"][0]["host_waits"] = true;
    waiting["workload"]["optimizer_operations"] = {
        {{"name", "update"}, {"host_us", 300}, {"device_us", 50}}};
    const StepInput waits = step_input(parse(waiting));
    CHECK(simulate_times(build_program(waits, sync,
                                       make_plan(waits.workload.gradients, waits.workload.readiness,
                                                 sync.policy)))
              .step() == duration_from_us(9150));
    waiting["step"]["optimizer_ms"] = 1;
    CHECK(refusal(waiting).find("/step/optimizer_ms: expected either this or "
                                "workload/optimizer_operations, got both") != std::string::npos);
    waiting["step"] = {{"cuda_graph", true}};
    CHECK(refusal(waiting).find("/step/cuda_graph: expected no CUDA graph of operations that the "
                                "host waits for (host_waits), got true") != std::string::npos);
    waiting.erase("step");
    waiting["workload"]["host_is_device"] = true;
    CHECK(refusal(waiting).find("/workload/backward_operations/0: expected no host_waits where the "
                                "host is the device (host_is_device), got host_waits") !=
          std::string::npos);

    // On a side stream from 2,100, after b, until 7,300; the optimizer waits for it and runs
    // for 50.
    Json beside = document;
    Json& listed = beside["workload"];
    listed["backward_operations"].push_back({{"name", "copy"},
                                             {"host_us", 10},
                                             {"device_us", 5190},
                                             {"stream", "copies"},
                                             {"after", {"compute"}}});
    std::swap(listed["backward_operations"][1], listed["backward_operations"][2]);
    listed["optimizer_operations"] = {{{"name", "update"},
                                       {"host_us", 300},
                                       {"device_us", 50},
                                       {"stream", "compute"},
                                       {"after", {"copies", "compute"}}}};
    const StepInput streams = step_input(parse(beside));
    CHECK(streams.workload.side_streams == std::vector<std::string>{"copies"});
    CHECK(streams.workload.backward[1].order == StreamOrder{1, 1});
    CHECK(streams.step.optimizer_operations[0].order == StreamOrder{0, 3});
    CHECK(loop_of(streams, sync).side_streams);
    CHECK_FALSE(loop_of(waits, sync).side_streams);
    CHECK(simulate_times(build_program(streams, sync,
                                       make_plan(streams.workload.gradients,
                                                 streams.workload.readiness, sync.policy)))
              .step() == duration_from_us(7340));
    beside["step"] = {{"cuda_graph", true}};
    CHECK(refusal(beside).find("/step/cuda_graph: expected no CUDA graph of operations on other "
                               "streams (stream), got true") != std::string::npos);
    beside.erase("step");
    Json unknown = beside;
    unknown["workload"]["forward_operations"][0]["after"] = {"copy"};
    CHECK(refusal(unknown).find("/workload/forward_operations/0/after/0: expected compute, or the "
                                "stream of an operation, got") != std::string::npos);
    Json ready = beside;
    ready["workload"]["backward_operations"][0]["stream"] = "copies";
    CHECK(refusal(ready).find("/workload/backward_operations/0/ready: expected no gradient that is "
                              "ready on another stream than compute") != std::string::npos);
    Json many = beside;
    for (int i = 0; i < 7; ++i) {
        many["workload"]["forward_operations"].push_back(
            {{"name", "f"}, {"host_us", 1}, {"device_us", 1}, {"stream", std::to_string(i)}});
    }
    CHECK(refusal(many).find("/workload/backward_operations/1/stream: expected at most 7 streams "
                             "beside compute, got one more, copies") != std::string::npos);
    beside["workload"]["host_is_device"] = true;
    CHECK(refusal(beside).find("/workload/backward_operations/1: expected no stream where the host "
                               "is the device (host_is_device), got stream") != std::string::npos);

    workload["backward_operations"][1]["ready"] = {"b"};
    CHECK(refusal(document).find(
              "/workload/backward_operations/1/ready/0: expected the name of a gradient that "
              "no earlier operation makes ready") != std::string::npos);
    workload["backward_operations"][1].erase("ready");
    CHECK(
        refusal(document).find(
            "/workload/backward_operations: expected an operation that makes a ready, got none") !=
        std::string::npos);
    workload["forward_ms"] = 1;
    CHECK(refusal(document).find("/workload/forward_ms") != std::string::npos);
}

TEST_CASE("link files are found beside the file that names them, tiers too") {
    CHECK(parse(changed("/cluster/link", "link.json")).link.algorithm == Algorithm::direct);
    Json document = changed("/cluster/link", "tiers.json");
    document["cluster"]["ranks_per_node"] = 1;
    const LinkParameters link = parse(document).link;
    REQUIRE(link.tiers.size() == 2);
    CHECK(link.tiers[1].name == "o");
    // The hierarchical link takes omitted values from its tiers.
    CHECK(link.host_issue == duration_from_us(7));
    CHECK(link.interference == constant_interference({1'250'000, 1'500'000}));
    CHECK(link.copy_bandwidth == BytesPerSecond{5'000'000'000});
}

TEST_CASE("a hierarchical link's own interference holds, else the costlier of its tiers by size") {
    const Json slow = Json::parse(
        R"({"name": "s", "algorithm": "ring", "segments": [{"latency_us": 1, "bandwidth_gb_per_s": 1}],
            "interference": [{"up_to_bytes": 1000, "compute_slowdown": 2, "communication_slowdown": 1},
                             {"compute_slowdown": 1.1, "communication_slowdown": 3}]})");
    Json link{{"name", "h"}, {"algorithm", "hierarchical"}, {"intra", slow}, {"inter", slow}};
    link["inter"]["interference"] = {{"compute_slowdown", 1.5}, {"communication_slowdown", 2}};
    Json document = changed("/cluster/link", link);
    document["cluster"]["ranks_per_node"] = 1;
    const LinkParameters inherited = parse(document).link;
    CHECK(interference_for(CollectiveKind::all_reduce, inherited, {1000}) ==
          Interference{2'000'000, 2'000'000});
    CHECK(interference_for(CollectiveKind::all_reduce, inherited, {1001}) ==
          Interference{1'500'000, 3'000'000});
    document["cluster"]["link"]["interference"] = {{"compute_slowdown", 1},
                                                   {"communication_slowdown", 1.2}};
    CHECK(parse(document).link.interference == constant_interference({1'000'000, 1'200'000}));
}

TEST_CASE(
    "a tier without interference tells nothing of another one between GPUs that says nothing") {
    const Json tier = Json::parse(
        R"({"name": "s", "algorithm": "ring", "segments": [{"latency_us": 1, "bandwidth_gb_per_s": 1}],
            "provenance": {"backend": "nccl"}})");
    Json document =
        changed("/cluster/link",
                {{"name", "h"}, {"algorithm", "hierarchical"}, {"intra", tier}, {"inter", tier}});
    document["cluster"]["ranks_per_node"] = 1;
    CHECK(lacks_interference(parse(document).link));  // as its tiers' provenance says
    document["cluster"]["link"]["intra"]["interference"] = "none";
    CHECK(lacks_interference(parse(document).link));
    document["cluster"]["link"]["inter"]["interference"] = "none";
    CHECK_FALSE(lacks_interference(parse(document).link));
    // One measured tier counts.
    document["cluster"]["link"]["inter"].erase("interference");
    document["cluster"]["link"]["intra"]["interference"] = {{"compute_slowdown", 1.5},
                                                            {"communication_slowdown", 2}};
    CHECK(parse(document).link.interference == constant_interference({1'500'000, 2'000'000}));
}

// 4 CTAs: 1.0 and 1.2 up to 1 kB, 1.1 and 1.2 beyond; 8 CTAs: 1.2 and 1.4.
Json by_ctas() {
    return Json::parse(
        R"([{"ctas": 8, "compute_slowdown": 1.2, "communication_slowdown": 1.4},
            {"ctas": 4, "up_to_bytes": 1000, "compute_slowdown": 1, "communication_slowdown": 1.2},
            {"ctas": 4, "compute_slowdown": 1.1, "communication_slowdown": 1.2}])");
}

Json with_ctas(std::int64_t ctas) {
    Json document = changed("/cluster/link/interference", by_ctas());
    document["cluster"]["link"]["ctas"] = ctas;
    return document;
}

TEST_CASE("interference is linear in thread blocks between those measured, constant beyond") {
    const auto at = [](std::int64_t ctas, std::int64_t bytes) {
        return interference_for(CollectiveKind::all_reduce, parse(with_ctas(ctas)).link, {bytes});
    };
    CHECK(at(4, 1000) == Interference{1'000'000, 1'200'000});
    CHECK(at(4, 1001) == Interference{1'100'000, 1'200'000});
    CHECK(at(8, 1000) == Interference{1'200'000, 1'400'000});
    // Half way from 4 to 8; a quarter: 1 + 0.2 / 4 and 1.2 + 0.2 / 4.
    CHECK(at(6, 1000) == Interference{1'100'000, 1'300'000});
    CHECK(at(6, 1001) == Interference{1'150'000, 1'300'000});
    CHECK(at(5, 1000) == Interference{1'050'000, 1'250'000});
    CHECK(at(1, 1001) == at(4, 1001));
    CHECK(at(1024, 1) == at(8, 1));
    CHECK(caveats(parse(with_ctas(6))).empty());
    CHECK(caveats(parse(with_ctas(16))) ==
          std::vector<std::string>{"link slow: interference was measured with 4 to 8 CTAs; with 16 "
                                   "it is taken as with 8"});
    Json without = Json::parse(contract);
    without["cluster"]["link"]["ctas"] = 4;
    CHECK(caveats(parse(without)).front().find("link slow: ctas has no effect") == 0);
}

TEST_CASE("interference by thread blocks that says too little or too much is refused") {
    const auto refused = [](const std::string& pointer, const Json& value) {
        Json document = with_ctas(6);
        document[Json::json_pointer("/cluster/link" + pointer)] = value;
        return refusal(document);
    };
    CHECK(refused("/ctas", 6) == "accepted");
    Json document = with_ctas(6);
    document["cluster"]["link"].erase("ctas");
    CHECK(refusal(document).find("/cluster/link: expected the key ctas") != std::string::npos);
    document = with_ctas(6);
    document["cluster"]["link"]["interference"][2].erase("ctas");
    CHECK(refusal(document) ==
          "dir/s.json: /cluster/link/interference/2: expected ctas in every entry of interference "
          "or in none, got one without them");
    document = with_ctas(6);
    document["cluster"]["link"]["interference"][0].erase("ctas");
    CHECK(refusal(document).find("got one with them after one without") != std::string::npos);
    // Twice the same list; sizes that do not rise; a last size that ends.
    CHECK(
        refused("/interference/0/ctas", 4).find("/interference/0: expected the key up_to_bytes") !=
        std::string::npos);
    CHECK(refused("/interference/2/up_to_bytes", 1000)
              .find("/interference/2/up_to_bytes: expected no limit on the last segment") !=
          std::string::npos);
    document = with_ctas(6);
    Json& entries = document["cluster"]["link"]["interference"];
    entries.insert(entries.begin() + 1, entries[1]);
    CHECK(refusal(document).find(
              "/interference/2/up_to_bytes: expected more than the segment before (1000)") !=
          std::string::npos);
    for (const std::int64_t ctas : {0, -1, 1025}) {
        CHECK(refused("/interference/0/ctas", ctas).find("expected an integer from 1 to 1024") !=
              std::string::npos);
        CHECK(refused("/ctas", ctas).find("expected an integer from 1 to 1024") !=
              std::string::npos);
    }
}

TEST_CASE("a hierarchical link takes its tiers' interference with their own thread blocks") {
    Json tier = with_ctas(6)["cluster"]["link"];
    Json link{{"name", "h"}, {"algorithm", "hierarchical"}, {"intra", tier}, {"inter", tier}};
    link["inter"].erase("interference");
    link["inter"].erase("ctas");
    Json document = changed("/cluster/link", link);
    document["cluster"]["ranks_per_node"] = 1;
    const LinkParameters inherited = parse(document).link;
    CHECK_FALSE(has_cta_groups(inherited.interference));
    CHECK(interference_for(CollectiveKind::all_reduce, inherited, {1000}) ==
          Interference{1'100'000, 1'300'000});
    CHECK(interference_for(CollectiveKind::all_reduce, inherited, {1001}) ==
          Interference{1'150'000, 1'300'000});
}

Json apart() {
    return {{"compute_slowdown", 1.3},
            {"product_slowdown", 1.2},
            {"rest_slowdown", 2},
            {"communication_slowdown", 1}};
}

std::int64_t compute_slowdown_ppm(const Json& document) {
    return interference_for(CollectiveKind::all_reduce, step_input(parse(document)).link, {1})
        .compute_slowdown_ppm;
}

TEST_CASE("slowdowns of matrix products and the rest mix as the workload does") {
    Json document = changed("/cluster/link/interference", apart());
    const Json listed = document["workload"];
    // Gradients by readiness do not tell, so the mixture that was measured holds.
    CHECK(compute_slowdown_ppm(document) == 1'300'000);
    document["workload"] = {{"model", "resnet18"}, {"batch", 1}, {"device", "A100"}};
    const double share = step_input(parse(document)).workload.mix.product_share.value();
    CHECK(share > 0.8);  // most of ResNet is convolutions
    CHECK(share < 1);
    CHECK(compute_slowdown_ppm(document) == std::llround(1e6 * (1.2 * share + 2 * (1 - share))));
    // The scenario keeps what it read.
    CHECK(parse(document).link.interference.front().slowdown.compute_slowdown_ppm == 1'300'000);

    // The one with a product's name takes 3 of 4 ms: 0.75 x 1.2 + 0.25 x 2.
    const auto with_names = [&](const char* first, const char* second) {
        Json workload = listed;
        for (const char* key : {"forward_ms", "backward_ms"}) {
            workload.erase(key);
        }
        for (Json& gradient : workload["gradients"]) {
            gradient.erase("ready_ms");
        }
        workload["forward_operations"] = {{{"name", "f"}, {"host_us", 1}, {"device_us", 1}}};
        workload["backward_operations"] = {
            {{"name", first}, {"host_us", 1}, {"device_us", 3000}, {"ready", {"b"}}},
            {{"name", second}, {"host_us", 1}, {"device_us", 1000}, {"ready", {"a"}}}};
        document["workload"] = workload;
        return compute_slowdown_ppm(document);
    };
    CHECK(with_names("aten::mm", "aten::add") == 1'400'000);
    CHECK(with_names("AddmmBackward0", "aten::upsample_bilinear2d_backward") == 1'400'000);
    CHECK(with_names("aten::conv2d", "triton_poi_fused_convert_element_type_0") == 1'400'000);
    CHECK(with_names("ConvolutionBackward0", "symmetric_quantize") == 1'400'000);
    CHECK(with_names("ScaledDotProductEfficientAttentionBackward0", "all_comm") == 1'400'000);
    CHECK(with_names("ampere_sgemm_128x64_nn", "GeluBackward0") == 1'400'000);
    CHECK(with_names("first", "second") == 1'300'000);  // which do not tell
}

TEST_CASE("one slowdown of matrix products and the rest without the other is refused") {
    const auto refused = [](const char* key, const Json& value) {
        Json document = changed("/cluster/link/interference", apart());
        document["cluster"]["link"]["interference"][key] = value;
        if (value.is_null()) {
            document["cluster"]["link"]["interference"].erase(key);
        }
        return refusal(document);
    };
    CHECK(refused("rest_slowdown", nullptr)
              .find("/cluster/link/interference: expected the key rest_slowdown") !=
          std::string::npos);
    CHECK(refused("product_slowdown", nullptr)
              .find("/cluster/link/interference: expected the key product_slowdown") !=
          std::string::npos);
    for (const double wrong : {0.9, 100.1}) {
        CHECK(refused("product_slowdown", wrong)
                  .find("/cluster/link/interference/product_slowdown: expected a number") !=
              std::string::npos);
    }
}

TEST_CASE("a hierarchical link takes the costlier of its tiers' slowdowns apart, too") {
    Json tier = changed("/cluster/link/interference", apart())["cluster"]["link"];
    Json link{{"name", "h"}, {"algorithm", "hierarchical"}, {"intra", tier}, {"inter", tier}};
    link["inter"]["interference"] = {{"compute_slowdown", 1.5}, {"communication_slowdown", 1}};
    Json document = changed("/cluster/link", link);
    document["cluster"]["ranks_per_node"] = 1;
    // Products 1.2 and 1.5, the rest 2 and 1.5, the measured mixtures 1.3 and 1.5.
    const InterferenceSegment segment = parse(document).link.interference.front();
    CHECK(segment.computing == SlowdownsOfComputing{1'500'000, 2'000'000});
    CHECK(segment.slowdown.compute_slowdown_ppm == 1'500'000);
}

TEST_CASE("an optimizer moves what its kernels read and write, and launches each of them") {
    Json document = Json::parse(contract);
    document["workload"] = {{"model", "resnet18"}, {"batch", 1}, {"device", "A100"}};
    const auto step = [&](const char* kernels) {
        document["step"] = {{"optimizer", "adam"}, {"optimizer_kernels", kernels}};
        return step_input(parse(document)).step;
    };
    // 62 parameters, 11,689,512 elements of 4 bytes, at 0.87 of 2,039 GB/s. Fused, 7 elements each
    // in two kernels of 3 us; else 20 in 8 operations of two kernels each, or of 62.
    const double element_us = 11'689'512 * 4 / (0.87 * 2'039'000);
    CHECK(to_us(step("fused").optimizer) == Approx(7 * element_us + 2 * 3));
    CHECK(to_us(step("foreach").optimizer) == Approx(20 * element_us + 16 * 3));
    CHECK(to_us(step("for_loop").optimizer) == Approx(20 * element_us + 8 * 62 * 3));
    // 15 us of the host for each kernel, and 1 us to list each tensor.
    CHECK(step("fused").optimizer_launch == duration_from_us(2 * 15 + 62));
    CHECK(step("foreach").optimizer_launch == duration_from_us(16 * 15 + 8 * 62));
    CHECK(step("for_loop").optimizer_launch == duration_from_us(8 * 62 * 15));
    // Where computing was measured it is fused, at a roofline's 0.85, unless its kernels are named.
    document["workload"]["forward_ms"] = document["workload"]["backward_ms"] = 1;
    document["step"] = {{"optimizer", "adam"}};
    CHECK(to_us(step_input(parse(document)).step.optimizer) ==
          Approx(7 * element_us * 0.87 / 0.85 + 8));
    CHECK(to_us(step("foreach").optimizer) == Approx(20 * element_us + 16 * 3));
    document["step"] = {{"optimizer_ms", 1}, {"optimizer_kernels", "fused"}};
    CHECK_THROWS_AS(parse(document), InputError);
}

TEST_CASE("factors of a prior are given to a preset that has one") {
    Json document = Json::parse(contract);
    document["workload"] = {{"model", "resnet18"}, {"batch", 1}};
    const auto device = [&](const Json& given) {
        document["workload"]["device"] = given;
        return *device_of(parse(document));
    };
    const Device given = device({{"preset", "A100"}, {"host_scale", 2}});
    REQUIRE(given.prior);
    CHECK((*given.prior)[GpuFactor::host_scale] == 2);
    CHECK((*given.prior)[GpuFactor::kernel_us] == range_of(GpuFactor::kernel_us).range[1]);
    CHECK_FALSE(device({{"preset", "A100"}, {"launch_us", 8}}).prior);
    CHECK_FALSE(device({{"preset", "A100"}, {"memory_efficiency", 0.8}}).prior);
    CHECK_THROWS_AS(device({{"preset", "A100"}, {"launch_us", 8}, {"host_scale", 2}}), InputError);
    // A host and kernels may cost nothing; no share is much above 1.
    CHECK(device({{"preset", "A100"}, {"host_scale", 0}, {"kernel_us", 0}}).prior);
    CHECK(device({{"preset", "A100"}, {"vector_efficiency", 1.5}}).prior);
    CHECK_THROWS_AS(device({{"preset", "A100"}, {"tensor_efficiency", 2}}), InputError);
    CHECK_THROWS_AS(device({{"preset", "A100"}, {"pass_efficiency", 0}}), InputError);
}

TEST_CASE("a CUDA graph costs the device's launch of one, and only where host and device differ") {
    const Json workload{{"model", "resnet18"}, {"batch", 1}, {"device", {{"preset", "A100"}}}};
    const auto document = [&](const Json& device) {
        Json result = Json::parse(contract);
        result["workload"] = workload;
        result["workload"]["device"] = device;
        result["step"] = {{"cuda_graph", true}, {"optimizer", "sgd"}};
        return result;
    };
    const StepSettings graph = step_input(parse(document("A100"))).step;
    CHECK(graph.graph_launch == duration_from_us(10));
    // Without a prior the optimizer, which is in the graph too, costs a launch outside of one.
    const Json roofline{{"preset", "A100"}, {"launch_us", 8}};
    Json eager = document(roofline);
    eager["step"]["cuda_graph"] = false;
    CHECK_FALSE(step_input(parse(eager)).step.graph_launch);
    CHECK(step_input(parse(eager)).step.optimizer -
              step_input(parse(document(roofline))).step.optimizer ==
          duration_from_us(8));
    CHECK(step_input(parse(document({{"preset", "A100"}, {"graph_launch_us", 25}})))
              .step.graph_launch == duration_from_us(25));
    CHECK(refusal(document({{"preset", "A100"}, {"host_is_device", true}})) ==
          "dir/s.json: /step/cuda_graph: expected no CUDA graph with a device that is its own host "
          "(host_is_device), got true");
    // Without a device launching costs nothing, one way or the other.
    CHECK(step_input(parse(changed("/step/cuda_graph", true))).step.graph_launch == Duration{0});
}

TEST_CASE("the times of operations are taken as they are given") {
    Json document = changed(
        "/workload",
        Json::parse(
            R"({"model": {"family": "gpt2", "layers": 1, "hidden": 8, "feed_forward": 32, "heads": 2,
            "vocabulary": 100, "context": 16}, "batch": 1, "sequence_length": 16, "device": "A100"})"));
    const Workload untimed = step_input(parse(document)).workload;
    std::vector<double> forward(untimed.forward.size());
    std::iota(forward.begin(), forward.end(), 1.0);
    document["workload"]["forward_operations_us"] = forward;
    document["workload"]["backward_operations_us"] =
        std::vector<double>(untimed.backward.size(), 2.5);
    const Workload timed = step_input(parse(document)).workload;
    for (std::size_t i = 0; i < forward.size(); ++i) {
        CHECK(timed.forward[i].device == duration_from_us(forward[i]));
        CHECK(timed.forward[i].host == duration_from_us(8));  // an A100's, as they are the device's
        CHECK(timed.forward[i].name == untimed.forward[i].name);
    }
    CHECK(timed.backward.back().device == duration_from_us(2.5));
    CHECK(timed.readiness == untimed.readiness);
    // Where the host is the device they contain what launching cost; without a device nothing
    // says what it costs.
    Json other = document;
    other["workload"]["device"] = {{"preset", "A100"}, {"host_is_device", true}};
    CHECK(step_input(parse(other)).workload.forward.front().host == Duration{0});
    other["workload"].erase("device");
    CHECK(step_input(parse(other)).workload.forward.front().host == Duration{0});
    document["workload"]["forward_operations_us"].push_back(1);
    CHECK(refusal(document).find("/workload/forward_operations_us: expected " +
                                 std::to_string(forward.size()) + " times") != std::string::npos);
    document["workload"].erase("forward_operations_us");
    CHECK(refusal(document).find("expected the key forward_operations_us") != std::string::npos);
}

TEST_CASE("links that cannot be read are refused where they are named") {
    CHECK(refusal(changed("/cluster/link", "nowhere.json")) ==
          "dir/s.json: /cluster/link: expected a link file that can be read (dir/nowhere.json), "
          "got No such file "
          "or directory");
    CHECK(refusal(changed("/cluster/link", "cycle.json")) ==
          "dir/cycle.json: /intra: expected link files that end somewhere, got a cycle: "
          "dir/cycle.json -> "
          "dir/cycle.json");
    CHECK(
        refusal(changed("/cluster/link", "torn.json")).find("dir/torn.json: expected valid JSON") ==
        0);
    CHECK(refusal(changed("/cluster/link", "tiers.json"))
              .find("/cluster: expected the key ranks_per_node") != std::string::npos);
    CHECK(refusal(changed("/cluster/link/segments/0/up_to_bytes", 0))
              .find("/cluster/link/segments/0/up_to_bytes") != std::string::npos);
    CHECK(refusal(changed("/cluster/link/segments/1/up_to_bytes", 99999))
              .find("expected no limit on the last segment") != std::string::npos);
    CHECK(refusal(changed("/cluster/link/intra", "link.json"))
              .find("tiers only with the algorithm hierarchical") != std::string::npos);
}

TEST_CASE("what does not fit together is refused") {
    CHECK(
        refusal(changed("/workload/gradients/0/ready_ms", 3.5)) ==
        "dir/s.json: /workload/gradients/0/ready_ms: expected at most backward_ms (3 ms), got 3.5");
    CHECK(refusal(changed("/workload/gradients/1/name", "a")) ==
          "dir/s.json: /workload/gradients/1: expected a name that no other gradient has, got a");
    CHECK(refusal(changed("/workload/model", "resnet50")) ==
          "dir/s.json: /workload: expected either a model or gradients, got both");
    CHECK(refusal(changed("/cluster/ranks_per_node", 3)).find("an integer from 1 to 2") !=
          std::string::npos);
    CHECK(refusal(changed("/sync/bucket_cap_mib_list", {1, 25}))
              .find("at most one of the keys bucket_cap_mib and bucket_cap_mib_list") !=
          std::string::npos);
    CHECK(refusal(changed("/step/optimizer", "adam"))
              .find("a workload with a device, or optimizer_ms") != std::string::npos);
    CHECK(refusal(changed("/sync/pytorch_version", 2.4)).find("as a string") != std::string::npos);
    for (const char* version : {"two", "2", "2.", "2.-4", "2.4x", "-2.4", "0.4", ".4"}) {
        INFO(version);
        CHECK(
            refusal(changed("/sync/pytorch_version", version)).find("a PyTorch version such as") !=
            std::string::npos);
    }
}

Json model_workload(const Json& workload) {
    Json document = Json::parse(contract);
    document["workload"] = workload;
    return document;
}

TEST_CASE("model workloads need a time source, the right shape and supported arithmetic") {
    CHECK(refusal(model_workload({{"model", "resnet50"}, {"batch", 8}, {"device", "H100"}})) ==
          "accepted");
    CHECK(refusal(model_workload(
              {{"model", "resnet50"}, {"batch", 8}, {"forward_ms", 1}, {"backward_ms", 2}})) ==
          "accepted");
    CHECK(refusal(model_workload({{"model", "resnet50"}, {"batch", 8}})) ==
          "dir/s.json: /workload: expected measured totals (forward_ms and backward_ms) or a "
          "device, got neither");
    CHECK(refusal(model_workload({{"model", "resnet50"}, {"batch", 8}, {"forward_ms", 1}}))
              .find("/workload: expected the key backward_ms") != std::string::npos);
    CHECK(refusal(model_workload({{"model", "gpt2"}, {"batch", 8}, {"device", "H100"}}))
              .find("expected the key sequence_length") != std::string::npos);
    CHECK(refusal(
              model_workload(
                  {{"model", "gpt2"}, {"batch", 8}, {"sequence_length", 2048}, {"device", "H100"}}))
              .find("at most the model's context of 1024") != std::string::npos);
    CHECK(
        refusal(
            model_workload(
                {{"model", "resnet50"}, {"batch", 8}, {"sequence_length", 1}, {"device", "H100"}}))
            .find("/workload/sequence_length: expected no sequence_length for a vision model") !=
        std::string::npos);
    const auto images = [](std::int64_t size) {
        return refusal(model_workload(
            {{"model", "vit_b_16"}, {"batch", 8}, {"image_size", size}, {"device", "H100"}}));
    };
    CHECK(images(384) == "accepted");
    const auto patches = [](std::int64_t size, std::int64_t patch, std::int64_t batch) {
        return refusal(model_workload({{"model",
                                        {{"family", "vit"},
                                         {"layers", 2},
                                         {"hidden", 8},
                                         {"feed_forward", 32},
                                         {"heads", 2},
                                         {"patch", patch}}},
                                       {"batch", batch},
                                       {"image_size", size},
                                       {"device", "H100"}}));
    };
    CHECK(patches(384, 32, 8) == "accepted");
    CHECK(patches(384, 20, 8).find("a multiple of the model's patch (20)") != std::string::npos);
    CHECK(patches(4096, 2, 8).find("/workload/image_size: expected at most 1048575 patches") !=
          std::string::npos);
    CHECK(patches(1024, 1, 64).find("/workload/") != std::string::npos);
    CHECK(patches(512, 1, 512).find("/workload/batch: expected an integer from 1 to 255") !=
          std::string::npos);
    CHECK(
        images(200) ==
        "dir/s.json: /workload/image_size: expected a multiple of the model's patch (16), got 200");
    CHECK(refusal(model_workload({{"model", "vit_b_16"}, {"batch", 8}, {"device", "H100"}})) ==
          "accepted");
    CHECK(refusal(model_workload({{"model", "gpt2"},
                                  {"batch", 1},
                                  {"sequence_length", 8},
                                  {"dtype", "bfloat16"},
                                  {"device", "V100"}}))
              .find("/workload/dtype: expected arithmetic that V100 has a peak for") !=
          std::string::npos);
    CHECK(refusal(model_workload({{"model",
                                   {{"family", "llama"},
                                    {"layers", 1'000'000},
                                    {"hidden", 64},
                                    {"feed_forward", 64},
                                    {"heads", 4},
                                    {"vocabulary", 64},
                                    {"context", 64}}},
                                  {"batch", 1},
                                  {"sequence_length", 8},
                                  {"device", "H100"}}))
              .find("/workload/model/layers: expected an integer from 1 to 4096, got 1000000") !=
          std::string::npos);
}

TEST_CASE("only gpt2's layers may lack biases") {
    const auto shape = [](const char* family, const char* key) {
        return refusal(model_workload({{"model",
                                        {{"family", family},
                                         {"layers", 1},
                                         {"hidden", 64},
                                         {"feed_forward", 64},
                                         {"heads", 4},
                                         {"vocabulary", 64},
                                         {"context", 64},
                                         {key, false}}},
                                       {"batch", 1},
                                       {"sequence_length", 8},
                                       {"device", "H100"}}));
    };
    for (const char* key : {"linear_bias", "norm_bias"}) {
        CHECK(shape("gpt2", key) == "accepted");
        for (const char* family : {"bert", "llama", "cs336"}) {
            CHECK(shape(family, key)
                      .find(std::string("/workload/model/") + key + ": expected no " + key +
                            " but for gpt2, got false") != std::string::npos);
        }
    }
}

TEST_CASE("a million gradients are refused by number") {
    Json document = Json::parse(contract);
    document["workload"]["gradients"] = Json::array_t(1'000'000, Json(0));
    CHECK(refusal(document) ==
          "dir/s.json: /workload/gradients: expected an array of 1 to 100000 elements, got an "
          "array of 1000000");
}

TEST_CASE("the largest model that is accepted overflows nothing") {
    for (const char* family : {"gpt2", "bert", "llama", "cs336"}) {
        const Json document = model_workload({{"model",
                                               {{"family", family},
                                                {"layers", 2},
                                                {"hidden", 1 << 15},
                                                {"feed_forward", 1 << 18},
                                                {"heads", 1 << 10},
                                                {"vocabulary", 1 << 20},
                                                {"context", 1 << 20}}},
                                              {"batch", 64},
                                              {"sequence_length", 1 << 20},
                                              {"device", "H100"}});
        const StepInput input = step_input(parse(document));
        for (const TimedOperation& operation : input.workload.backward) {
            CHECK(operation.device >= Duration{0});
        }
    }
}

TEST_CASE("the version of PyTorch decides what an explicit cap does to the first bucket") {
    const auto first_of = [](const char* version) {
        Json document = changed("/sync", {{"strategy", "ddp"}, {"bucket_cap_mib", 25}});
        if (version != nullptr) {
            document["sync"]["pytorch_version"] = version;
        }
        return settings_for(parse(document).sync).policy.limits.first;
    };
    CHECK(first_of("1.13") == default_first_bucket);
    CHECK(first_of("2.3.1") == default_first_bucket);
    CHECK_FALSE(first_of("2.4"));
    CHECK_FALSE(first_of("2.11.0"));
    CHECK_FALSE(first_of(nullptr));
}

TEST_CASE("keys that the strategy does not look at and links measured on other ranks are named") {
    Json measured = Json::parse(contract);
    measured["cluster"]["link"]["provenance"] = {{"ranks", 4}};
    CHECK(caveats(parse(measured)) ==
          std::vector<std::string>{"link slow was measured on 4 ranks; its cost on 2 is "
                                   "an extrapolation"});
    CHECK(caveats(parse(Json::parse(contract))).empty());
    CHECK(caveats(parse(changed("/sync/strategy", "naive"))) ==
          std::vector<std::string>{"/sync/bucket_cap_mib has no effect with the strategy naive",
                                   "/sync/first_bucket_mib has no effect with the strategy naive",
                                   "/sync/views has no effect with the strategy naive"});
}

TEST_CASE("what a scenario and its link state to be weak comes first, a link's behind its name") {
    Json document = changed(
        "/caveats", {"unknown ranks", {{"text", "replays 30 % off"}, {"withholds_advice", true}}});
    document["cluster"]["link"]["caveats"] = {
        Json{{"text", "a placeholder"}, {"withholds_advice", true}}, "few sizes",
        Json{{"text", "one node"}, {"withholds_advice", false}}};
    document["cluster"]["link"]["provenance"] = {{"ranks", 4}};
    const Scenario scenario = parse(document);
    CHECK(scenario.caveats == std::vector<Caveat>{{.text = "unknown ranks"},
                                                  {.text = "replays 30 % off", .withholds = true}});
    CHECK(caveats(scenario) ==
          std::vector<std::string>{"unknown ranks", "replays 30 % off", "link slow: a placeholder",
                                   "link slow: few sizes", "link slow: one node",
                                   "link slow was measured on 4 ranks; its cost on 2 is an "
                                   "extrapolation"});
    CHECK(reasons_to_withhold(scenario) ==
          std::vector<std::string>{"replays 30 % off", "link slow: a placeholder"});
    CHECK(reasons_to_withhold(parse(Json::parse(contract))).empty());
    // A link is written as it was read.
    document["cluster"]["link"] = link_json(scenario.link);
    CHECK(parse(document).link == scenario.link);
}

constexpr const char* own_numbers_text = R"(
    {"launch_us": 4, "segments": [{"up_to_bytes": 1000, "latency_us": 1, "bandwidth_gb_per_s": 2,
                                   "standard_errors": {"latency_us": 0.1, "bandwidth_gb_per_s": 0.2,
                                                       "correlation": -0.5}},
                                  {"latency_us": 3, "bandwidth_gb_per_s": 4}],
     "interference": {"compute_slowdown": 1.3, "communication_slowdown": 1.1}})";

TEST_CASE("what all-gathers and reduce-scatters cost of their own is read, and written again") {
    Json document = Json::parse(contract);
    Json& link = document["cluster"]["link"];
    link["all_gather"] = Json::parse(own_numbers_text);
    link["reduce_scatter"]["segments"] = link["all_gather"]["segments"];
    const LinkParameters read = parse(document).link;
    CHECK(read.all_gather.launch == duration_from_us(4));
    REQUIRE(read.all_gather.segments.size() == 2);
    CHECK(read.all_gather.segments[0].errors == SegmentErrors{0.1, 0.2, -0.5});
    CHECK(read.all_gather.segments[1].bandwidth == BytesPerSecond{4'000'000'000});
    CHECK(read.all_gather.interference == constant_interference({1'300'000, 1'100'000}));
    CHECK(read.reduce_scatter == OwnNumbers{.segments = read.all_gather.segments,
                                            .launch = Duration{0},
                                            .interference = {}});
    link = link_json(read);
    CHECK(parse(document).link == read);
}

TEST_CASE("own numbers that would do nothing, or say nothing, are refused where they stand") {
    const auto refused = [](const char* pointer, const Json& value, Json document) {
        document[Json::json_pointer(pointer)] = value;
        return refusal(document);
    };
    const Json own = Json::parse(own_numbers_text);
    const Json flat = Json::parse(contract);
    CHECK(refused("/cluster/link/all_gather", own, flat) == "accepted");
    CHECK(refused("/cluster/link/all_gather", Json::object(), flat)
              .find("/cluster/link/all_gather: expected the key segments") != std::string::npos);
    CHECK(refused("/cluster/link/reduce_scatter/segments", Json::array(), flat)
              .find("/cluster/link/reduce_scatter/segments: expected") != std::string::npos);
    CHECK(refused("/cluster/link/all_gather/meeting_us", 1, flat)
              .find("/cluster/link/all_gather/meeting_us: expected one of the keys launch_us, "
                    "segments, interference") != std::string::npos);
    Json tiers = changed("/cluster/link", "tiers.json");
    tiers["cluster"]["ranks_per_node"] = 1;
    tiers["cluster"]["link"] = {{"name", "h"},
                                {"algorithm", "hierarchical"},
                                {"intra", flat["cluster"]["link"]},
                                {"inter", "link.json"}};
    CHECK(refused("/cluster/link/all_gather", own, tiers)
              .find("/cluster/link/all_gather/segments: expected segments only in a link of "
                    "segments, or in a tier of them, got some beside tiers") != std::string::npos);
    CHECK(refused("/cluster/link/intra/all_gather", own, tiers) == "accepted");
    CHECK(refused("/cluster/link/all_gather/interference", own["interference"], tiers) ==
          "accepted");
    const Json topology = changed(
        "/cluster/link", {{"name", "t"},
                          {"algorithm", "ring"},
                          {"topology", {{"node", {{"gpus", 2}, {"bandwidth_gb_per_s", 20}}}}}});
    CHECK(refused("/cluster/link/reduce_scatter", own, topology)
              .find("/cluster/link/reduce_scatter/segments: expected segments only in a link of "
                    "segments, or in a tier of them, got some beside a topology") !=
          std::string::npos);
    CHECK(refused("/cluster/link/reduce_scatter/launch_us", 3, topology)
              .find("/cluster/link/reduce_scatter/launch_us: expected launch_us only in") !=
          std::string::npos);
    CHECK(refused("/cluster/link/reduce_scatter", Json::object(), topology)
              .find("/cluster/link/reduce_scatter: expected the key interference") !=
          std::string::npos);
    Json by_blocks = flat;
    by_blocks["cluster"]["link"]["all_gather"] = {{"segments", own["segments"]},
                                                  {"interference", by_ctas()}};
    CHECK(refusal(by_blocks).find("/cluster/link: expected the key ctas") != std::string::npos);
}

TEST_CASE("a hierarchical link has of its tiers the costlier interference of each kind") {
    const Json slow = Json::parse(
        R"({"name": "s", "algorithm": "ring", "segments": [{"latency_us": 1, "bandwidth_gb_per_s": 1}],
            "interference": {"compute_slowdown": 2, "communication_slowdown": 1}})");
    Json link{{"name", "h"}, {"algorithm", "hierarchical"}, {"intra", slow}, {"inter", slow}};
    link["inter"]["all_gather"] = {
        {"segments", slow["segments"]},
        {"interference", {{"compute_slowdown", 1.5}, {"communication_slowdown", 3}}}};
    Json document = changed("/cluster/link", link);
    document["cluster"]["ranks_per_node"] = 1;
    // The nodes' own of all-gathers beside what the tier within them has of all collectives.
    const LinkParameters inherited = parse(document).link;
    CHECK(interference_for(CollectiveKind::all_gather, inherited, {1}) ==
          Interference{2'000'000, 3'000'000});
    CHECK(interference_for(CollectiveKind::reduce_scatter, inherited, {1}) ==
          Interference{2'000'000, 1'000'000});
    // The link's own values replace all values of its tiers.
    document["cluster"]["link"]["interference"] = "none";
    CHECK_FALSE(interferes(parse(document).link));
}

// Each kind has the link's values for all collectives.
void measure_alike(LinkParameters& link) {
    for (OwnNumbers* own : {&link.all_gather, &link.reduce_scatter}) {
        *own = {.segments = link.segments,
                .launch = link.segments.empty() ? Duration{0} : link.launch,
                .interference = link.interference};
    }
    for (LinkParameters& tier : link.tiers) {
        measure_alike(tier);
    }
}

TEST_CASE("own numbers that are the link's own change nothing on any link that ships") {
    std::size_t links = 0;
    for (const auto& file : std::filesystem::directory_iterator(BUCKETWISE_SCENARIO_DIR "/links")) {
        const Json name = file.path().string();
        LinkParameters link = read_link({&name, "", ""}, [](const std::string& path) {
            std::ifstream stream(path);
            return std::string(std::istreambuf_iterator<char>(stream), {});
        });
        const RankGroup group{8, link.tiers.empty() ? 1 : 4};
        if (link.topology && prepare_topology(link, group.ranks)) {
            continue;
        }
        ++links;
        LinkParameters measured = link;
        measure_alike(measured);
        for (const CollectiveKind kind : every<CollectiveKind>) {
            for (std::int64_t bytes = 1; bytes < std::int64_t{1} << 34; bytes = 3 * bytes + 1) {
                CHECK(collective_time(kind, {bytes}, group, measured) ==
                      collective_time(kind, {bytes}, group, link));
                CHECK(interference_for(kind, measured, {bytes}) ==
                      interference_for(kind, link, {bytes}));
            }
        }
    }
    CHECK(links >= 10);
}

TEST_CASE("caveats of both tiers of a link are told") {
    Json document = Json::parse(contract);
    const Json slow = document["cluster"]["link"];
    Json intra = slow;
    intra["name"] = "inside";
    intra["caveats"] = Json::array({"few sizes"});
    document["cluster"]["ranks_per_node"] = 2;
    document["cluster"]["link"] = {
        {"name", "both"}, {"algorithm", "hierarchical"}, {"intra", intra}, {"inter", slow}};
    CHECK(caveats(parse(document)) == std::vector<std::string>{"link inside: few sizes"});
}

TEST_CASE("a caveat of no text, too long a one or an unknown key is refused where it stands") {
    const auto refused = [](const Json& caveats) { return refusal(changed("/caveats", caveats)); };
    CHECK(refused("weak").find("/caveats: expected an array of 1 to 64 elements") !=
          std::string::npos);
    const std::string bounds = "expected 1 to 500 bytes of text without control characters";
    CHECK(refused(Json::array({""})).find("/caveats/0: " + bounds) != std::string::npos);
    CHECK(refused({"fine", std::string(501, 'n')}).find("/caveats/1: " + bounds) !=
          std::string::npos);
    CHECK(refused(Json::array({"two\nlines"})).find("/caveats/0: " + bounds) != std::string::npos);
    CHECK(refused(Json::array({std::string(500, 'n')})) == "accepted");
    CHECK(refused(Json::array({Json{{"withholds_advice", true}}})).find("the key text") !=
          std::string::npos);
    CHECK(refused(Json::array({Json{{"text", "weak"}, {"advice", 1}}})).find("/caveats/0/advice") !=
          std::string::npos);
    CHECK(refused(Json::array({7})).find("/caveats/0: expected a text, or an object") !=
          std::string::npos);
}

TEST_CASE("a caveat is written as it is read, cut where it is too long") {
    Json document = Json::object();
    add_caveat(document, {.text = "weak"});
    add_caveat(document, {.text = std::string(600, 'n') + "\n", .withholds = true});
    // 500 bytes with three dots.
    CHECK(document["caveats"] ==
          Json{"weak", {{"text", std::string(497, 'n') + "..."}, {"withholds_advice", true}}});
    for (int i = 0; i < 100; ++i) {
        add_caveat(document, {.text = "more"});
    }
    CHECK(read_caveats({&document["caveats"], "test", "/caveats"}).size() == 64);
}

TEST_CASE("caveats are read anew as a section of their own") {
    Json document = changed("/caveats", Json::array({"weak"}));
    Scenario scenario = parse(document);
    document.erase("caveats");
    reread_scenario(document, "test", {}, {ScenarioSection::caveats}, scenario);
    CHECK(scenario.caveats.empty());
}

TEST_CASE("keys of how a framework runs a model are named where they do nothing") {
    Json document = Json::parse(contract);
    const auto notes = [&](const Json& workload) {
        document["workload"] = workload;
        document["workload"]["batch"] = 1;
        return caveats(parse(document));
    };
    const Json gpt2{{"model", "gpt2"}, {"sequence_length", 8},    {"arithmetic", "float16"},
                    {"device", "T4"},  {"execution", "compiled"}, {"attention", "fused"}};
    CHECK(notes(gpt2).empty());
    Json other = gpt2;
    other["attention"] = "flash";
    other["channels_last"] = other["fused_norms"] = true;
    CHECK(
        notes(other) ==
        std::vector<std::string>{
            "/workload/channels_last has no effect on a model without convolutions on tensor cores",
            "/workload/fused_norms has no effect on a model without RMS norms",
            "/workload/attention is flash, which PyTorch has for 16 bits only, from Ampere on"});
    CHECK(
        notes({{"model", "resnet18"}, {"device", "A100"}, {"attention", "eager"}}) ==
        std::vector<std::string>{"/workload/attention has no effect on a model without attention"});
    other = gpt2;
    other["forward_ms"] = other["backward_ms"] = 1;
    const std::vector<std::string> measured{
        "/workload/execution has no effect where computing is measured or a roofline",
        "/workload/attention has no effect where computing is measured or a roofline"};
    CHECK(notes(other) == measured);
    other = gpt2;
    other["device"] = {{"preset", "T4"}, {"launch_us", 8}};
    document["step"] = {{"optimizer", "adam"}, {"optimizer_kernels", "fused"}};
    CHECK(notes(other) ==
          std::vector<std::string>{"/step/optimizer_kernels has no effect on T4, a roofline",
                                   measured[0], measured[1]});
}

TEST_CASE("an optimizer takes as long as its memory traffic") {
    Json document = model_workload({{"model", "resnet18"},
                                    {"batch", 1},
                                    {"device",
                                     {{"preset", "A100"},
                                      {"memory_bandwidth_gb_per_s", 1000},
                                      {"memory_efficiency", 1.0},
                                      {"launch_us", 0}}}});
    document["step"] = {{"optimizer", "adam"}};
    // 11,689,512 parameters x 4 B x 7 (reads p, g, m, v, writes p, m, v) at 1 TB/s = 327.306 us.
    CHECK(to_us(step_input(parse(document)).step.optimizer) == Approx(327.306336));
}

}  // namespace
}  // namespace bucketwise
