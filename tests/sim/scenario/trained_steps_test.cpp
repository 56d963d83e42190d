// Steps as large models are trained: compiled, in float8, with clipped gradients.
#include <regex>
#include <string>
#include <vector>

#include "sim/base/json_input.h"
#include "sim/engine/step_loop.h"
#include "sim/program/framework.h"
#include "sim/program/step_programs.h"
#include "sim/scenario/memory_need.h"
#include "sim/scenario/scenario.h"
#include "sim/sharding/shard_plan.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

// 2 layers: queries and output 64 x 64, keys and values 64 x 32, three of 64 x 128, norms of 64.
constexpr std::int64_t linear_of_block = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128;
constexpr std::int64_t norms_of_block = 2LL * 64;
constexpr std::int64_t all_elements = 2 * (linear_of_block + norms_of_block) + 64 + 2LL * 100 * 64;

Json llama(const std::string& strategy) {
    Json document = Json::parse(R"({
      "name": "llama",
      "workload": { "model": {"family": "llama", "layers": 2, "hidden": 64, "feed_forward": 128,
                              "heads": 4, "key_value_heads": 2, "vocabulary": 100, "context": 16},
                    "batch": 2, "sequence_length": 16, "dtype": "float32",
                    "arithmetic": "bfloat16", "device": "H100" },
      "cluster": { "ranks": 4, "ranks_per_node": 2, "link": { "name": "slow", "algorithm": "ring",
                   "segments": [ {"latency_us": 50.0, "bandwidth_gb_per_s": 1.0} ] } } })");
    document["sync"] = {{"strategy", strategy}};
    return document;
}

Json but_with(Json document, const std::string& pointer, const Json& value) {
    document[Json::json_pointer(pointer)] = value;
    return document;
}

Scenario read_trained(const Json& document) {
    return parse_scenario(
        document, "s.json", [](const std::string&) { return std::string(); }, StrategyKinds::all);
}

std::string refused(const Json& document) {
    try {
        static_cast<void>(read_trained(document));
    } catch (const InputError& error) {
        return error.what();
    }
    return "accepted";
}

Program program_of(const Json& document) {
    const Scenario scenario = read_trained(document);
    if (scenario.sharding) {
        const ShardedInput input = sharded_input(scenario);
        return build_sharded_program(input, make_shard_plan(input)).program;
    }
    const StepInput input = step_input(scenario);
    const SyncSettings sync = settings_for(scenario.sync, input);
    return build_program(
        input, sync, make_plan(input.workload.gradients, input.workload.readiness, sync.policy));
}

// --- measured steps ---

Duration backward_of(const Json& document) {
    Duration sum{0};
    for (const TimedOperation& one : step_input(read_trained(document)).workload.backward) {
        sum += one.device;
    }
    return sum;
}

TEST_CASE("a measured step takes another activation checkpointing, if blocks are told apart") {
    Json by_moments = llama("ddp");
    by_moments["workload"] = Json::parse(R"({ "forward_ms": 6, "backward_ms": 12, "gradients": [
      {"name": "layers.0.w", "numel": 64, "dtype": "float32", "shape": [64], "ready_ms": 12},
      {"name": "layers.1.w", "numel": 64, "dtype": "float32", "shape": [64], "ready_ms": 4} ] })");
    Json by_operations = llama("fsdp");
    by_operations["workload"] = Json::parse(R"({
      "gradients": [ {"name": "layers.0.w", "numel": 64, "dtype": "float32", "shape": [64]},
                     {"name": "layers.1.w", "numel": 64, "dtype": "float32", "shape": [64]} ],
      "forward_operations": [ {"name": "layers.0 forward", "host_us": 0, "device_us": 4000},
                              {"name": "layers.1 forward", "host_us": 0, "device_us": 2000} ],
      "backward_operations": [
        {"name": "layers.1 backward", "host_us": 0, "device_us": 4000, "ready": ["layers.1.w"]},
        {"name": "layers.0 backward", "host_us": 0, "device_us": 8000, "ready": ["layers.0.w"]} ]
      })");
    for (const Json& measured : {by_moments, by_operations}) {
        const auto with = [&](const Json& recompute) {
            return but_with(measured, "/workload/activation_checkpointing", recompute);
        };
        CHECK(backward_of(measured) == duration_from_ms(12));
        CHECK(backward_of(with("none")) == duration_from_ms(12));
        CHECK(backward_of(with("full")) == duration_from_ms(18));
        CHECK(backward_of(with({{"every", 2}})) == duration_from_ms(14));
        const std::string key = "/workload/activation_checkpointing: expected ";
        CHECK_THAT(refused(with("operators")),
                   Catch::Contains(key + "whole blocks") && Catch::Contains("capture a step"));
        CHECK_THAT(refused(with("most")),
                   Catch::Contains(key + "a kind (none, full) or an object"));
        Json nameless = with("full");
        const std::string text = nameless.dump();
        nameless = Json::parse(std::regex_replace(text, std::regex("layers\\.([01])"), "layer$1"));
        CHECK_THAT(refused(nameless), Catch::Contains(key + "a model with repeated blocks"));
    }
}

// --- fused norms ---

TEST_CASE("fused norms are one kernel each way, and keep their input alone") {
    const Json python = but_with(llama("ddp"), "/workload/dtype", "bfloat16");
    const Json fused = but_with(python, "/workload/fused_norms", true);
    const auto norm_of = [](const std::vector<TimedOperation>& pass, const std::string& name) {
        return std::ranges::find(pass, "model.layers.1.input_layernorm" + name,
                                 &TimedOperation::name)
            ->host;
    };
    const Workload before = step_input(read_trained(python)).workload;
    const Workload after = step_input(read_trained(fused)).workload;
    // 15 us each: six kernels and a cast to float32 become one; backward 11 and a cast back.
    using std::chrono::microseconds;
    CHECK(norm_of(before.forward, "") - norm_of(after.forward, "") == microseconds{6 * 15});
    CHECK(norm_of(before.backward, " input gradient") -
              norm_of(after.backward, " input gradient") ==
          microseconds{11 * 15});
    CHECK(norm_of(before.backward, " weight gradient") -
              norm_of(after.backward, " weight gradient") ==
          microseconds{1 * 15});
    // Five norms of 2 x 16 tokens by 64: each kept two tensors, and keeps one.
    CHECK(memory_need(read_trained(python)).activations.value() -
              memory_need(read_trained(fused)).activations.value() ==
          Bytes{5LL * 2 * 16 * 64 * 2});
    CHECK(caveats(read_trained(fused)).size() == caveats(read_trained(python)).size());
}

// --- compiled blocks ---

TEST_CASE("compiled blocks change when gradients travel, not what does", "[sharding]") {
    const Json eager = but_with(llama("fsdp"), "/workload/activation_checkpointing", "full");
    const Json compiled = but_with(eager, "/workload/execution", "compiled");
    const Program before = program_of(eager);
    const Program after = program_of(compiled);
    REQUIRE(before.collectives.size() == after.collectives.size());
    for (std::size_t i = 0; i < before.collectives.size(); ++i) {
        CHECK(before.collectives[i].kind == after.collectives[i].kind);
        CHECK(before.collectives[i].bytes == after.collectives[i].bytes);
        CHECK(before.collectives[i].cargo == after.collectives[i].cargo);
    }
    CHECK(after.instructions.size() == before.instructions.size());
}

TEST_CASE("no fully_shard call lies within a compiled block", "[sharding]") {
    const Json groups = Json::parse(R"([["model.layers.0"], ["model.layers.1.mlp.up_proj"]])");
    const Json eager = but_with(llama("fsdp"), "/sync/sharding", {{"groups", groups}});
    CHECK(refused(eager) == "accepted");
    CHECK(refused(but_with(eager, "/workload/execution", "compiled")) ==
          "s.json: /sync/sharding/groups: expected none within model.layers.1, which is compiled "
          "as a whole, got model.layers.1.mlp.up_proj");
    const Json whole = Json::parse(R"([["model.layers.0", "model.layers.1"]])");
    CHECK(refused(but_with(but_with(eager, "/sync/sharding/groups", whole), "/workload/execution",
                           "compiled")) == "accepted");
}

// --- float8 ---

Json float8(const std::string& strategy) {
    return but_with(but_with(llama(strategy), "/workload/arithmetic", "float8_tensorwise"),
                    "/sync/sharding",
                    {{"parameter_dtype", "bfloat16"}, {"float8_all_gather", true}});
}

TEST_CASE("linear weights are gathered in a byte each, all else as it was", "[sharding]") {
    const ShardedInput input = sharded_input(read_trained(float8("fsdp")));
    const ShardPlan plan = make_shard_plan(input);
    REQUIRE(plan.groups.size() == 3);
    CHECK(plan.groups[0].gathered() == Bytes{2 * (64 + 2LL * 100 * 64)});  // the root
    for (std::size_t block = 1; block <= 2; ++block) {
        CHECK(plan.groups[block].gathered() == Bytes{linear_of_block + 2 * norms_of_block});
        CHECK(plan.groups[block].reduced() == Bytes{4 * (linear_of_block + norms_of_block)});
        CHECK(plan.groups[block].gradients() == Bytes{2 * (linear_of_block + norms_of_block)});
    }
}

TEST_CASE("one small all-reduce of all scales ends a step with float8 all-gathers", "[sharding]") {
    for (const std::string strategy : {"fsdp", "hsdp"}) {
        const Program program = program_of(float8(strategy));
        const Collective& last = program.collectives.back();
        CHECK(last.cargo == Cargo(NumbersOf{SharedNumbers::float8_scales}));
        CHECK(last.kind == CollectiveKind::all_reduce);
        CHECK(last.among.communicator == Among::sharing);
        CHECK(last.bytes == Bytes{4LL * 2 * 7});
        const std::size_t count = program.instructions.size();
        REQUIRE(count > 3);
        CHECK(program.instructions[count - 1].kind == InstructionKind::wait);
        CHECK(program.instructions[count - 2].kind == InstructionKind::launch);
        // The pass over the shard's linear weights, which are read, comes after the update.
        const Instruction& pass = program.instructions[count - 3];
        CHECK(pass.kind == InstructionKind::optimizer);
        const StepInput step = sharded_input(read_trained(float8(strategy))).step;
        CHECK(pass.device ==
              step.copy_fixed + transfer_time(Bytes{2 * linear_of_block * 4 / step.group.ranks / 2},
                                              *step.copy_bandwidth));
    }
    const Program without =
        program_of(but_with(float8("fsdp"), "/sync/sharding/float8_all_gather", false));
    CHECK(without.collectives.back().shards() != nullptr);
}

TEST_CASE("float8 all-gathers need less memory for gathered blocks", "[sharding]") {
    // Without a vocabulary to speak of, blocks are what is gathered at the peak: at most two, each
    // in its buffer or in place.
    Json document = but_with(float8("fsdp"), "/workload/model/vocabulary", 1);
    const MemoryNeed with = memory_need(read_trained(document));
    document = but_with(document, "/sync/sharding/float8_all_gather", false);
    const MemoryNeed without = memory_need(read_trained(document));
    CHECK(with.parameters == without.parameters);
    CHECK(with.gathered < without.gathered);
    CHECK(with.gathered >= without.gathered - Bytes{4 * linear_of_block});
    CHECK(with.activations == without.activations);
}

TEST_CASE("float8 is refused where it cannot be", "[sharding]") {
    CHECK(refused(but_with(float8("fsdp"), "/workload/device", "A100")) ==
          "s.json: /workload/arithmetic: expected arithmetic that A100 has a peak for (float32, "
          "tfloat32, float16, bfloat16, float64), got float8_tensorwise");
    CHECK(refused(but_with(float8("fsdp"), "/workload/arithmetic", "float8_rowwise")) ==
          "s.json: /sync/sharding/float8_all_gather: expected false, or a workload whose "
          "arithmetic is float8_tensorwise, got float8_rowwise");
    CHECK(refused(but_with(float8("fsdp"), "/workload/arithmetic", "bfloat16"))
              .find("got bfloat16") != std::string::npos);
    CHECK(refused(but_with(but_with(llama("zero3"), "/sync/sharding/float8_all_gather", true),
                           "/workload/arithmetic", "float8_tensorwise"))
              .starts_with("s.json: /sync/sharding/float8_all_gather: expected one of the keys"));
    CHECK(refused(but_with(llama("ddp"), "/sync/sharding/float8_all_gather", true))
              .starts_with("s.json: /sync/sharding: expected a strategy that shards"));
    const Json roofline = {{"preset", "H100"}, {"launch_us", 5}};
    CHECK(refused(but_with(float8("fsdp"), "/workload/device", roofline)) ==
          "s.json: /workload/arithmetic: expected measured times, or a preset's device with its "
          "prior, for float8, got \"float8_tensorwise\" on H100");
    Json measured = but_with(float8("fsdp"), "/workload/forward_ms", 2);
    measured["workload"]["backward_ms"] = 4;
    CHECK(refused(measured) == "accepted");
    measured["workload"].erase("device");
    CHECK(refused(measured) == "accepted");
    // No parameter's name has a number.
    Json bare = llama("ddp");
    bare["workload"] = {{"model",
                         {{"batch", 2},
                          {"parameters", {{{"name", "head"}, {"shape", {8, 8}}}}},
                          {"operations", {{{"name", "head"}, {"forward", {{"elements", 64}}}}}}}},
                        {"batch", 2},
                        {"arithmetic", "float8_rowwise"},
                        {"device", "H100"}};
    CHECK(refused(bare).starts_with(
        "s.json: /workload/arithmetic: expected 16 bits or more for a model without repeated"));
}

// --- clipping ---

std::vector<InstructionKind> kinds_after_backward(const Program& program) {
    std::vector<InstructionKind> kinds;
    for (const Instruction& instruction : program.instructions) {
        if (instruction.phase == Phase::optimizer) {
            kinds.push_back(instruction.kind);
        }
    }
    return kinds;
}

Json clipped(const std::string& strategy) {
    return but_with(llama(strategy), "/step", {{"optimizer", "sgd"}, {"clip_gradients", true}});
}

TEST_CASE("clipping is two passes, with a small all-reduce where ranks hold parts") {
    using enum InstructionKind;
    CHECK(kinds_after_backward(program_of(clipped("ddp"))) ==
          std::vector{clip, clip, optimizer, optimizer});
    for (const std::string strategy : {"fsdp", "hsdp", "zero3"}) {
        INFO(strategy);
        const Program program = program_of(clipped(strategy));
        const std::vector<InstructionKind> kinds = kinds_after_backward(program);
        REQUIRE(kinds.size() >= 5);
        CHECK(std::vector(kinds.begin(), kinds.begin() + 5) ==
              std::vector{clip, launch, wait, clip, optimizer});
        const auto norm = std::ranges::find_if(program.collectives, [](const Collective& one) {
            return one.cargo == Cargo(NumbersOf{SharedNumbers::gradient_norm});
        });
        REQUIRE(norm != program.collectives.end());
        CHECK(norm->bytes == Bytes{4});
        // Replicas hold the same shards, so that hsdp asks only those that share.
        CHECK(norm->among.communicator == Among::sharing);
    }
    // DeepSpeed's ranks reduce parts of all gradients.
    const std::vector<InstructionKind> parts =
        kinds_after_backward(program_of(clipped("deepspeed_zero1")));
    REQUIRE(parts.size() >= 4);
    CHECK(std::vector(parts.begin(), parts.begin() + 4) == std::vector{clip, launch, wait, clip});
}

TEST_CASE("clipping reads a rank's gradients once, then reads and writes them") {
    // A roofline of 1 GB/s without launches: one pass of all gradients, then two.
    const Json device = {{"name", "slow"},
                         {"peak_tflop_per_s", {{"bfloat16", 1}}},
                         {"memory_bandwidth_gb_per_s", 1}};
    const auto clipping = [&](const std::string& strategy) {
        return *step_input(read_trained(but_with(clipped(strategy), "/workload/device", device)))
                    .step.clipping;
    };
    const auto ns = [](std::int64_t count) { return Duration{1000 * count}; };
    CHECK(clipping("ddp").norm == ns(4 * all_elements));
    CHECK(clipping("ddp").multiplication == ns(2LL * 4 * all_elements));
    CHECK(clipping("fsdp").norm == ns(all_elements));      // of four ranks
    CHECK(clipping("hsdp").norm == ns(2 * all_elements));  // of two
    // On a preset, with every factor 1: 21 tensors are one kernel, and three small ones follow.
    Json preset = {{"preset", "H100"}};
    for (const std::string_view factor : names_of<GpuFactor>) {
        preset[std::string(factor)] = 1;
    }
    const Clipping priced =
        *step_input(read_trained(but_with(clipped("ddp"), "/workload/device", preset)))
             .step.clipping;
    const double pass_us = 4.0 * static_cast<double>(all_elements) / 3350e3;
    CHECK(to_us(priced.norm) == Approx(pass_us + 4));
    CHECK(to_us(priced.multiplication) == Approx(2 * pass_us + 1));
    CHECK(to_us(priced.norm_launch) == Approx(4 * 15));
    CHECK(to_us(priced.multiplication_launch) == Approx(15));
}

TEST_CASE("a host that reads the norm waits for it, and for nothing else") {
    Json document = clipped("fsdp");
    const auto waits = [](const Program& program) {
        std::vector<InstructionKind> found;
        for (const Instruction& instruction : program.instructions) {
            if (instruction.host_waits) {
                found.push_back(instruction.kind);
            }
        }
        return found;
    };
    CHECK(waits(program_of(document)).empty());
    document = but_with(document, "/step/clip_gradients", {{"host_wait", true}});
    CHECK(waits(program_of(document)) == std::vector{InstructionKind::wait});
    document["sync"] = {{"strategy", "ddp"}};
    CHECK(waits(program_of(document)) == std::vector{InstructionKind::clip});
    const StepInput input = step_input(read_trained(document));
    CHECK(loop_of(input, {}).host_waits);
    CHECK(read_trained(but_with(document, "/step/clip_gradients", false)).step.clip_gradients ==
          std::nullopt);
}

TEST_CASE("clipping is refused where nothing says what it costs, or it is there already") {
    Json measured = but_with(clipped("ddp"), "/workload/forward_ms", 2);
    measured["workload"]["backward_ms"] = 4;
    measured["step"].erase("optimizer");
    CHECK(refused(measured) == "accepted");
    measured["workload"].erase("device");
    CHECK(refused(measured) ==
          "s.json: /step/clip_gradients: expected a workload with a device, got a workload "
          "without one");
    CHECK(refused(but_with(clipped("ddp"), "/step/clip_gradients", 1)) ==
          "s.json: /step/clip_gradients: expected true, false or an object with host_wait, got 1");
    Json graph = but_with(clipped("ddp"), "/step/clip_gradients", {{"host_wait", true}});
    graph["step"]["cuda_graph"] = true;
    CHECK(refused(graph) ==
          "s.json: /step/clip_gradients/host_wait: expected false with a CUDA graph "
          "(cuda_graph), got true");
}

}  // namespace
}  // namespace bucketwise
