// The order, sizes and memory of a sharded step against what real FSDP2 did: tests/data/fsdp2,
// which tests/pytorch/record_sharded.py made.
#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "sim/base/json_input.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

constexpr std::array models{"perceptron",    "decoder",         "decoder_tied",
                            "convolutional", "encoder_decoder", "nested"};

Json recorded(const std::string& name) {
    const std::string path = std::string(BUCKETWISE_TEST_DATA_DIR) + "/fsdp2/" + name + ".json";
    std::ifstream file(path);
    REQUIRE(file);
    std::stringstream text;
    text << file.rdbuf();
    return parse_json(text.str(), path);
}

// The block of an operation of this name: up to its first number, "layers.0" of
// "layers.0.mlp.up forward".
std::string block_of(const std::string& operation) {
    const std::size_t number = operation.find_first_of("0123456789");
    return operation.substr(0, std::min(operation.find_first_of(". ", number), operation.size()));
}

// With each block's forward again in front of its backward.
Json checkpointed(Json workload) {
    const Json forward = workload.at("forward_operations");
    Json backward = Json::array();
    std::set<std::string> begun;
    for (const Json& operation : workload.at("backward_operations")) {
        const std::string block = block_of(operation.at("name"));
        if (block.find_first_of("0123456789") != std::string::npos && begun.insert(block).second) {
            for (Json again : forward) {
                if (block_of(again.at("name")) == block) {
                    again["name"] = again.at("name").get<std::string>() + " recomputed";
                    backward.push_back(again);
                }
            }
        }
        backward.push_back(operation);
    }
    workload["backward_operations"] = backward;
    return workload;
}

Scenario scenario_of(const Json& model, const Json& one) {
    const Json& workload = model.at("workload");
    const Json link{{"name", "any"},
                    {"algorithm", "ring"},
                    {"segments", {{{"latency_us", 1}, {"bandwidth_gb_per_s", 1}}}}};
    const Json document{
        {"name", one.at("name")},
        {"workload", one.contains("checkpointed") ? checkpointed(workload) : workload},
        {"cluster", {{"ranks", one.at("ranks")}, {"link", link}}},
        {"sync", {{"strategy", one.at("strategy")}, {"sharding", one.at("sharding")}}},
        {"step", {{"accumulation", one.at("accumulation")}}}};
    return parse_scenario(
        document, one.at("name"), [](const std::string&) { return std::string(); },
        StrategyKinds::all);
}

// The recording counts groups from 1, in the order of its calls, and the root as 0.
std::vector<std::int64_t> recorded_groups(const ShardPlan& plan, const Json& one) {
    std::vector<std::int64_t> numbers;
    for (const ShardGroup& group : plan.groups) {
        std::int64_t number = 0;
        for (std::size_t i = 0; i < one.at("groups").size(); ++i) {
            if (one.at("groups").at(i).get<std::vector<std::string>>() == group.modules) {
                number = static_cast<std::int64_t>(i) + 1;
            }
        }
        REQUIRE((number == 0) == group.is_root());
        numbers.push_back(number);
    }
    return numbers;
}

// "all-gather of 3, 46376 bytes among 2, forward": one line a collective.
std::string line(const std::string& kind, std::int64_t group, std::int64_t bytes,
                 std::int64_t ranks, const std::string& pass) {
    return fmt::format("{} of {}, {} bytes among {}, {}\n", kind, group, bytes, ranks, pass);
}

std::string recorded_lines(const Json& one) {
    std::string lines;
    for (const Json& row : one.at("collectives")) {
        lines += line(row.at(0), row.at(1), row.at(2), row.at(4),
                      row.at(5) == "forward" ? "forward" : "backward");
    }
    return lines;
}

std::string kind_text(CollectiveKind kind) {
    return kind == CollectiveKind::all_gather       ? "all_gather"
           : kind == CollectiveKind::reduce_scatter ? "reduce_scatter"
                                                    : "all_reduce";
}

std::string simulated_lines(const ShardedInput& input, const ShardPlan& plan, const Json& one) {
    const Program program = build_sharded_program(input, plan).program;
    const std::vector<std::int64_t> groups = recorded_groups(plan, one);
    std::string lines;
    for (const Instruction& instruction : program.instructions) {
        if (instruction.kind != InstructionKind::launch) {
            continue;
        }
        const Collective& collective =
            program.collectives[static_cast<std::size_t>(instruction.subject)];
        const bool gathers = collective.kind == CollectiveKind::all_gather;
        const bool in_backward = instruction.phase == Phase::backward;
        const std::int64_t ranks =
            collective.kind == CollectiveKind::all_reduce ? input.step.replicas.group.ranks
            : gathers && in_backward && input.request.reshard_ranks &&
                    !plan.groups[static_cast<std::size_t>(collective.shards()->group)].is_root()
                ? *input.request.reshard_ranks
                : input.step.group.ranks;
        lines += line(kind_text(collective.kind),
                      groups[static_cast<std::size_t>(collective.shards()->group)],
                      collective.bytes.count, ranks, in_backward ? "backward" : "forward");
    }
    return lines;
}

TEST_CASE("collectives of a sharded step come in FSDP2's order and sizes, six models, all settings",
          "[sharding]") {
    for (const char* name : models) {
        const Json model = recorded(name);
        REQUIRE(model.at("cases").size() >= 25);
        for (const Json& one : model.at("cases")) {
            INFO(name << ": " << one.at("name").get<std::string>());
            ShardedInput input = sharded_input(scenario_of(model, one));
            const ShardPlan plan = make_shard_plan(input);
            for (const bool host_is_device : {false, true}) {
                input.step.workload.host_is_device = host_is_device;
                CHECK(simulated_lines(input, plan, one) == recorded_lines(one));
            }
        }
    }
}

TEST_CASE("parameters and gradients take what FSDP2 allocates, to the byte", "[sharding]") {
    for (const char* name : models) {
        const Json model = recorded(name);
        for (const Json& one : model.at("cases")) {
            INFO(name << ": " << one.at("name").get<std::string>());
            const ShardedInput input = sharded_input(scenario_of(model, one));
            const ShardedMemory memory = sharded_memory(input, make_shard_plan(input));
            std::string parts;
            for (const ShardedTensor tensor : every<ShardedTensor>) {
                parts += fmt::format("{} {}, ", name_of(tensor), memory.of(tensor).count);
            }
            INFO(parts << one.at("memory").at("at_peak").dump());
            CHECK(memory.peak.count == one.at("memory").at("peak_bytes").get<std::int64_t>());
        }
    }
}

}  // namespace
}  // namespace bucketwise
