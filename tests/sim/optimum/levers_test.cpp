#include "sim/optimum/levers.h"

#include <algorithm>
#include <map>
#include <string>

#include <fmt/format.h>

#include "sim/base/json_input.h"
#include "sim/report/lever_text.h"
#include "sim/report/verdict.h"
#include "sim/scenario/memory_need.h"
#include "sim/sharding/sharded_step.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

Scenario parsed(const Json& document) {
    return parse_scenario(
        document, "s.json", [](const std::string&) { return std::string(); }, StrategyKinds::all);
}

struct Advised {
    Scenario scenario;
    Prediction prediction;
};

Advised advised(const Json& document) {
    Advised result{parsed(document), {}};
    const Scenario& scenario = result.scenario;
    const auto quietly = [](double) {};
    if (scenario.sharding) {
        const ShardedInput input = sharded_input(scenario);
        result.prediction = predict_sharded(scenario, input, quietly);
        result.prediction.levers = levers_of(scenario, input.step, result.prediction);
    } else {
        const StepInput input = step_input(scenario);
        result.prediction = predict(input, scenario.sync, {}, quietly);
        result.prediction.levers = levers_of(scenario, input, result.prediction);
    }
    return result;
}

// Two gradients of 4 MiB, ready after 4 and 8 of 8 ms, over 1 GB/s between two ranks: an all-reduce
// of one takes 4.194304 ms.
Json two_gradients() {
    return Json::parse(R"({ "name": "two",
      "workload": { "forward_ms": 4, "backward_ms": 8, "gradients": [
        {"name": "a", "numel": 1048576, "dtype": "float32", "ready_ms": 8},
        {"name": "b", "numel": 1048576, "dtype": "float32", "ready_ms": 4} ] },
      "cluster": { "ranks": 2, "link": { "name": "slow", "algorithm": "ring", "interference": "none",
        "segments": [ {"latency_us": 0, "bandwidth_gb_per_s": 1} ] } },
      "sync": { "strategy": "ddp", "views": true } })");
}

// A step that shards, whose backward of each of eight micro-steps reduces 124 M gradients over
// 1 GB/s: 0.25 s and more each time.
Json accumulating_fsdp() {
    return Json::parse(R"({ "name": "sharded",
      "workload": { "model": "gpt2", "batch": 1, "sequence_length": 128, "dtype": "float32",
        "arithmetic": "bfloat16", "forward_ms": 20, "backward_ms": 40 },
      "cluster": { "ranks": 2, "link": { "name": "slow", "algorithm": "ring", "interference": "none",
        "segments": [ {"latency_us": 10, "bandwidth_gb_per_s": 1} ] } },
      "sync": { "strategy": "fsdp", "sharding": { "layers_per_group": 0,
        "parameter_dtype": "bfloat16", "reduce_dtype": "float32" } },
      "step": { "accumulation": 8 } })");
}

TEST_CASE("over a slow link a 16-bit hook is named, with its time and its cost") {
    const auto [scenario, prediction] = advised(two_gradients());
    // As they are: from 4 to 8.194304, and to 12.388608 ms of backward. Halved, the first is hidden
    // and the last ends 2.097152 ms after backward: 4 + 8 + 2.097152 ms.
    CHECK(prediction.advised().step() == duration_from_us(16388.608));
    REQUIRE(prediction.levers.alone.size() == 1);
    const Lever& hook = prediction.levers.alone.front();
    CHECK(hook.changes == std::vector<LeverChange>{{LeverKind::comm_hook, "bf16"}});
    CHECK(hook.step == duration_from_us(14097.152));
    CHECK(hook.saved.low == Approx(1 - 14.097152 / 16.388608));
    CHECK(hook.saved.high == hook.saved.low);
    CHECK(hook.memory == 2LL * (2 << 20));  // both cast buckets
    CHECK_FALSE(prediction.levers.together.has_value());
    // Three micro-steps of 12 ms and the step above, for four.
    REQUIRE(prediction.levers.others.size() == 1);
    CHECK(prediction.levers.others.front().step == duration_from_us((3 * 12000 + 16388.608) / 4));
    CHECK(levers_sentence(scenario, prediction.levers) ==
          " More is saved by a 16-bit hook (14 % less time, sums of 16 bits) or by accumulating "
          "over 4 "
          "micro-steps (20 % less time, a global batch 4 times as large).");
    CHECK(levers_table(scenario, prediction.levers) == R"(
  other knobs                      step (ms)  less time
  a 16-bit hook                         14.1       14 %
  accumulating over 4 micro-steps       13.1       20 %
  to type:
    register_comm_hook(None, default_hooks.bf16_compress_hook)
    no_sync() in all micro-steps but the last
)");
    CHECK(verdict_of(scenario, prediction).text.find(" More is saved by a 16-bit hook") !=
          std::string::npos);
}

TEST_CASE("gradients of 16 bits, a hook in place and a single rank have no hook to gain from") {
    Json document = two_gradients();
    document["sync"]["comm_hook"] = "fp16";
    CHECK(advised(document).prediction.levers.alone.empty());
    document = two_gradients();
    for (Json& gradient : document["workload"]["gradients"]) {
        gradient["dtype"] = "bfloat16";
    }
    CHECK(advised(document).prediction.levers.alone.empty());
    document = two_gradients();
    document["cluster"]["ranks"] = 1;
    CHECK(advised(document).prediction.levers == Levers{});
}

TEST_CASE("a measured backward that computes forward again says what keeping it would save") {
    Json document = two_gradients();
    document["workload"] = Json::parse(R"({ "gradients": [
        {"name": "a", "numel": 1024, "dtype": "float32"}, {"name": "b", "numel": 1024, "dtype": "float32"} ],
      "forward_operations": [ {"name": "forward", "host_us": 0, "device_us": 4000} ],
      "backward_operations": [
        {"name": "last", "host_us": 0, "device_us": 4000, "recomputed": 0.5, "ready": ["b"]},
        {"name": "first", "host_us": 0, "device_us": 4000, "ready": ["a"]} ] })");
    const auto [scenario, prediction] = advised(document);
    REQUIRE_FALSE(prediction.levers.alone.empty());
    const Lever& kept = prediction.levers.alone.front();
    CHECK(kept.changes == std::vector<LeverChange>{{LeverKind::activation_checkpointing, "none"}});
    CHECK(prediction.advised().step() - kept.step == duration_from_us(2000));
    CHECK(levers_sentence(scenario, prediction.levers)
              .find("no recomputation (17 % less time, if memory holds all activations)") !=
          std::string::npos);
    document["workload"]["backward_operations"][0].erase("recomputed");
    CHECK(advised(document).prediction.levers.alone.empty());
    document["workload"]["backward_operations"][0]["recomputed"] = 1.5;
    CHECK_THROWS_AS(advised(document), InputError);
    document["workload"]["backward_operations"][0].erase("recomputed");
    document["workload"]["forward_operations"][0]["recomputed"] = 0.5;
    CHECK_THROWS_AS(advised(document), InputError);
}

TEST_CASE(
    "where gradients say when they are ready, what was computed again goes with the later ones") {
    Json document = two_gradients();
    for (Json& gradient : document["workload"]["gradients"]) {
        gradient["numel"] = 1024;
    }
    document["workload"]["gradients"][1]["recomputed"] = 0.5;  // b: 2 of its 4 ms
    const Prediction prediction = advised(document).prediction;
    REQUIRE_FALSE(prediction.levers.alone.empty());
    const Lever& kept = prediction.levers.alone.front();
    CHECK(kept.changes == std::vector<LeverChange>{{LeverKind::activation_checkpointing, "none"}});
    CHECK(prediction.advised().step() - kept.step == duration_from_us(2000));
}

// --- groups of knobs, tried where they are asked for ---

// [typed] of the knobs.
std::map<std::string, Lever> tuned(const Json& document, Tuned group) {
    const auto [scenario, prediction] = advised(document);
    const StepInput input = scenario.sharding ? sharded_input(scenario).step : step_input(scenario);
    std::map<std::string, Lever> knobs;
    for (const Lever& lever : tuned_knobs(scenario, input, prediction, group)) {
        std::string typed;
        for (const LeverChange& change : lever.changes) {
            typed += (typed.empty() ? "" : " and ") + lever_typed(scenario, change);
        }
        knobs.emplace(typed, lever);
    }
    return knobs;
}

TEST_CASE("NCCL's variables are tried one by one, whatever they cost", "[tune]") {
    Json document = two_gradients();
    for (Json& gradient : document["workload"]["gradients"]) {
        gradient["numel"] = 100'000'000;
    }
    document["cluster"] = {{"ranks", 8}, {"link", "nvlink-h100-8"}};
    const auto knobs = tuned(document, Tuned::nccl);
    // One block moves the 400 MB of a bucket at no more than 38.7 GB/s: 18 ms each.
    REQUIRE(knobs.contains("NCCL_MAX_CTAS=1"));
    CHECK(knobs.at("NCCL_MAX_CTAS=1").step > duration_from_us(36'000));
    CHECK(knobs.at("NCCL_MAX_CTAS=1").typical < -1);
    CHECK(knobs.at("NCCL_MAX_CTAS=16").typical > knobs.at("NCCL_MAX_CTAS=2").typical);
    CHECK(knobs.contains("NCCL_NVLS_ENABLE=0"));
    CHECK(knobs.at("CUDA_DEVICE_MAX_CONNECTIONS=1").typical <= 0);
    // A variable that is set is compared with its absence.
    document["step"] = {{"one_hardware_queue", true}};
    CHECK(tuned(document, Tuned::nccl).contains("unset CUDA_DEVICE_MAX_CONNECTIONS"));
    // On other links only the device's queue has an effect.
    CHECK(tuned(two_gradients(), Tuned::nccl).size() == 1);
}

TEST_CASE("ways to compute are tried where nobody measured computing", "[tune]") {
    Json document = Json::parse(R"({ "name": "decoder",
      "workload": { "model": "gpt2", "batch": 8, "sequence_length": 1024, "dtype": "float32",
        "arithmetic": "bfloat16", "device": "H100" },
      "cluster": { "ranks": 8, "link": "nvlink-h100-8" }, "sync": { "strategy": "ddp" } })");
    const auto knobs = tuned(document, Tuned::computing);
    CHECK(knobs.size() == 5);
    const auto typical = [&](const std::string& typed) { return knobs.at(typed).typical; };
    const std::string compiled = "torch.compile on each block (execution: compiled)";
    CHECK(typical(compiled) > 0.05);
    for (const std::string recipe : {"tensorwise", "rowwise"}) {
        const std::string float8 = fmt::format(
            "torchao's convert_to_float8_training with the recipe {} (arithmetic: float8_{})",
            recipe, recipe);
        CHECK(typical(compiled + " and " + float8) > std::max(typical(compiled), typical(float8)));
    }
    document["workload"]["device"] = "A100-SXM4-80GB";
    CHECK(tuned(document, Tuned::computing).size() == 1);  // without float8
    CHECK(tuned(two_gradients(), Tuned::computing).empty());
}

TEST_CASE("a hook is spelled as the framework has it") {
    Json document = two_gradients();
    const auto text_with = [&](const char* framework) {
        document["sync"]["framework"] = framework;
        const auto [scenario, prediction] = advised(document);
        return levers_table(scenario, prediction.levers);
    };
    CHECK(text_with("horovod").find("compression=hvd.Compression.fp16") != std::string::npos);
    CHECK(text_with("deepspeed_zero2").find("communication_data_type") != std::string::npos);
    CHECK(text_with("megatron_lm").find("--grad-reduce-in-bf16") != std::string::npos);
    CHECK(text_with("lightning").find("bf16_compress_hook") != std::string::npos);
}

TEST_CASE("an accumulating step that shards is told to reduce in its last micro-step") {
    const Json document = accumulating_fsdp();
    const auto [scenario, prediction] = advised(document);
    const Levers& levers = prediction.levers;
    REQUIRE_FALSE(levers.alone.empty());
    const auto sync = std::ranges::find_if(levers.alone, [](const Lever& lever) {
        return lever.changes.front().kind == LeverKind::gradient_sync;
    });
    const std::string text = levers_table(scenario, levers);
    CAPTURE(text);
    REQUIRE(sync != levers.alone.end());
    // The same, as a scenario of its own: no slower than with its own groups, and not faster than
    // with the best of all.
    Json changed = document;
    changed["sync"]["sharding"]["gradient_sync"] = "last_micro_step";
    const Prediction asked = advised(changed).prediction;
    CHECK(sync->step <= asked.default_cap.step());
    CHECK(sync->step >= asked.fastest().step());
    CHECK(sync->saved.low > 0.2);
    // Whole float32 gradients stay from micro-step to micro-step, not this rank's half.
    CHECK(sync->memory > 100 << 20);
    CHECK(text.find("gradient_sync: last_micro_step") != std::string::npos);
    CHECK(levers_sentence(scenario, levers).find("more memory") != std::string::npos);
}

TEST_CASE(
    "replicas that reduce in every micro-step are told to reduce in the last, and pairs add up") {
    Json document = accumulating_fsdp();
    document["cluster"]["ranks"] = 4;
    document["sync"]["strategy"] = "hsdp";
    document["sync"]["sharding"]["shard_ranks"] = 2;
    const Levers levers = advised(document).prediction.levers;
    REQUIRE(levers.alone.size() == 2);
    REQUIRE(levers.together.has_value());
    CHECK(levers.together->changes.size() == 2);
    for (const Lever& lever : levers.alone) {
        CHECK(levers.together->step < lever.step);
    }
    // Asked for as a scenario of its own it takes as long.
    Json changed = document;
    changed["sync"]["sharding"]["all_reduce"] = "last_micro_step";
    const Prediction asked = advised(changed).prediction;
    const Prediction now = advised(document).prediction;
    CHECK(asked.default_cap.step() < now.default_cap.step());
}

TEST_CASE("a lever that does not fit the device is not named") {
    Json document = accumulating_fsdp();
    document["workload"]["device"] = "A100";
    document["workload"]["model"] = {{"family", "llama"},     {"layers", 24}, {"hidden", 4096},
                                     {"feed_forward", 16384}, {"heads", 32},  {"vocabulary", 50304},
                                     {"context", 2048}};
    document["step"]["optimizer"] = "adam";
    document["cluster"]["ranks"] = 8;
    // 6.9 billion parameters: 16 bytes each are beyond 80 GiB, so that only sharding fits.
    const auto [scenario, prediction] = advised(document);
    for (const Lever& lever : prediction.levers.others) {
        CHECK(lever.changes.front().kind != LeverKind::without_sharding);
    }
    REQUIRE(prediction.best_fits);
}

TEST_CASE("a step that recomputes for nothing is told what less of it saves and costs") {
    Json document = accumulating_fsdp();
    document["workload"]["device"] = "A100";
    for (const char* measured : {"forward_ms", "backward_ms"}) {
        document["workload"].erase(measured);
    }
    document["workload"]["batch"] = 64;
    document["cluster"]["link"]["segments"][0]["bandwidth_gb_per_s"] = 100;
    document["workload"]["activation_checkpointing"] = "full";
    const auto lever_of = [](const Json& of) {
        const Levers levers = advised(of).prediction.levers;
        const auto found = std::ranges::find_if(levers.alone, [](const Lever& lever) {
            return lever.changes.front().kind == LeverKind::activation_checkpointing;
        });
        REQUIRE(found != levers.alone.end());
        return *found;
    };
    const Lever operators = lever_of(document);
    CHECK(operators.changes.front().value == "operators");
    CHECK(operators.typical > 0.02);
    CHECK(operators.memory > 0);
    document["workload"]["activation_checkpointing"] = "operators";
    CHECK(lever_of(document).changes.front().value == "none");
}

TEST_CASE("ends of presets give what a lever saves a range") {
    Json document = two_gradients();
    document["workload"]["gradients"][0]["numel"] = 50'000'000;
    document["cluster"] = {{"ranks", 8}, {"link", "pcie-gen3"}};
    const Levers levers = advised(document).prediction.levers;
    REQUIRE_FALSE(levers.alone.empty());
    const Lever& hook = levers.alone.front();
    CHECK(hook.changes.front().kind == LeverKind::comm_hook);
    // 200 MB take from 30 ms (12 GB/s) to 290 ms (1.2 GB/s) beside 12 ms of computing.
    CHECK(hook.saved.low < 0.42);
    CHECK(hook.saved.high > 0.45);
}

}  // namespace
}  // namespace bucketwise
