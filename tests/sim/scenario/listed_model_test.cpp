#include <string>

#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/scenario/memory_need.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

Json pass_json(const Work& work, const EagerPass& eager) {
    return {{"flops", work.flops},
            {"elements", work.elements},
            {"kernels", eager.kernels},
            {"further_elements", eager.elements}};
}

Json operation_json(const Model& model, const Operation& operation) {
    Json json{
        {"name", operation.name},
        {"kind", name_of(operation.kind)},
        {"forward", pass_json(operation.forward, operation.eager.forward)},
        {"input_gradient", pass_json(operation.input_gradient, operation.eager.input_gradient)},
        {"weight_gradient", pass_json(operation.weight_gradient, operation.eager.weight_gradient)},
        {"operand_elements", operation.operand_elements},
        {"kernel_area", operation.kernel_area},
        {"batch_norm_channels", operation.batch_norm_channels},
        {"kept_elements", operation.kept_elements},
        {"upcasts", operation.upcasts},
        {"kept_bytes", operation.kept_bytes}};
    if (operation.product) {
        json["product"] = {{"m", operation.product->m},
                           {"n", operation.product->n},
                           {"k", operation.product->k},
                           {"count", operation.product->count}};
    }
    for (const std::int32_t parameter : operation.parameters) {
        json["parameters"].push_back(model.parameters[static_cast<std::size_t>(parameter)].name);
    }
    return json;
}

Json listed_json(const Model& model, const ModelInput& input) {
    Json json{{"batch", input.batch}};
    if (input.sequence_length > 0) {
        json["sequence_length"] = input.sequence_length;
    }
    for (const Parameter& parameter : model.parameters) {
        json["parameters"].push_back({{"name", parameter.name}, {"shape", parameter.shape}});
    }
    for (const Operation& operation : model.operations) {
        json["operations"].push_back(operation_json(model, operation));
    }
    for (const Buffer& buffer : model.buffers) {
        json["buffers"].push_back({{"name", buffer.name},
                                   {"numel", buffer.numel},
                                   {"element_bytes", buffer.element.count}});
    }
    return json;
}

Scenario scenario_of(const Json& model, std::int64_t batch) {
    const Json link{{"name", "slow"},
                    {"algorithm", "ring"},
                    {"segments", {{{"latency_us", 50.0}, {"bandwidth_gb_per_s", 1.0}}}}};
    const Json document{{"name", "listed"},
                        {"workload", {{"model", model}, {"batch", batch}, {"device", "A100"}}},
                        {"cluster", {{"ranks", 2}, {"link", link}}},
                        {"sync", {{"strategy", "ddp"}}}};
    return parse_scenario(document, "s.json", [](const std::string&) { return std::string(); });
}

// Two operations: "a", a linear layer, and a pass over memory.
Json two_operations() {
    return Json::parse(R"({"batch": 2,
        "parameters": [{"name": "a", "shape": [8, 8]}, {"name": "b", "shape": [8]}],
        "operations": [
            {"name": "a", "kind": "linear", "forward": {"flops": 2048, "elements": 320},
             "weight_gradient": {"flops": 2048, "elements": 328}, "parameters": ["b", "a"],
             "product": {"m": 16, "n": 8, "k": 8}},
            {"name": "c", "forward": {"elements": 256}, "input_gradient": {"elements": 256}}]})");
}

std::string refusal_of(const std::string& pointer, const Json& value, std::int64_t batch = 2) {
    Json model = two_operations();
    model[Json::json_pointer(pointer)] = value;
    try {
        static_cast<void>(scenario_of(model, batch));
    } catch (const InputError& error) {
        return error.what();
    }
    return "nothing was refused";
}

}  // namespace

// Independent of what is listed: the same model by its name.
TEST_CASE("a model that lists the operations of one that ships takes the same times and memory") {
    for (const auto& [name, input] :
         {std::pair("gpt2", ModelInput{.batch = 2, .sequence_length = 64}),
          std::pair("bert-base", ModelInput{.batch = 2, .sequence_length = 64}),
          std::pair("resnet50", ModelInput{.batch = 2, .image_size = 64}),
          std::pair("vit_b_16", ModelInput{.batch = 2})}) {
        CAPTURE(name);
        const Model model = make_model(name, input);
        Scenario listed = scenario_of(listed_json(model, input), input.batch);
        Scenario named = listed;
        std::get<ModelWorkload>(named.workload).model = std::string(name);
        std::get<ModelWorkload>(named.workload).input = input;
        CHECK(step_input(listed).workload == step_input(named).workload);
        CHECK(memory_need(listed) == memory_need(named));
    }
}

TEST_CASE("parameters that no operation uses are ready before all others") {
    Json model = two_operations();
    model["parameters"].push_back({{"name", "unused"}, {"shape", {4}}});
    const Workload workload = step_input(scenario_of(model, 2)).workload;
    CHECK(workload.readiness == std::vector<std::int32_t>{2, 1, 0});
    CHECK(workload.backward.front().source->operation == 1);
}

TEST_CASE("frozen parameters take memory and have no gradients") {
    Json model = two_operations();
    const MemoryNeed need = memory_need(scenario_of(model, 2));
    model["frozen_elements"] = 1000;
    const MemoryNeed frozen = memory_need(scenario_of(model, 2));
    CHECK(frozen.parameters == need.parameters + Bytes{4000});
    CHECK(frozen.gradients == need.gradients);
}

TEST_CASE("a listed model that contradicts itself is refused where it stands") {
    const auto says = [](const std::string& message, const std::string& part) {
        CAPTURE(message);
        CHECK(message.find(part) != std::string::npos);
    };
    says(refusal_of("/parameters/1/name", "a"),
         "/workload/model/parameters/1: expected a name that no other parameter has, got a");
    says(refusal_of("/operations/0/parameters/0", "d"),
         "/workload/model/operations/0/parameters/0: expected the name of a parameter, got d");
    says(refusal_of("/operations/1/kind", "scores"),
         "/workload/model/operations/1: expected the key product beside kind scores, got none");
    says(refusal_of("/parameters/0/shape", {1 << 30, 1 << 30}), "/workload/model/parameters/0");
    says(refusal_of("/operations/0/product", {{"m", 1 << 30}, {"n", 1 << 30}, {"k", 8}}),
         "/workload/model/operations/0/product: expected operands of at most");
    says(refusal_of("/batch", 3),
         "/workload/batch: expected 3, of which the model's operations are");
    says(refusal_of("/operations/0/surprise", 3), "/workload/model/operations/0/surprise");
}

}  // namespace bucketwise
