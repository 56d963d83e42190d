#include "hw/measurement.h"

#include <nlohmann/json.hpp>

#include "sim/error.h"
#include "sim/json.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

Transport transport() {
    return {.backend = "gloo", .algorithm = "ring", .implementation = "library", .ranks = 2};
}

std::vector<Measurement> one_of_each() {
    EnvironmentRecord environment;
    environment.version = "0.1.0";
    environment.date = "2026-01-01T00:00:00Z";
    environment.command = {"bucketwise", "measure", "x.json"};
    environment.machine = {.cpu = "CPU",
                           .cores = 2,
                           .kernel = "Linux",
                           .compiler = "g++ 12",
                           .gpu_libraries = "none",
                           .scheduling = "x"};
    environment.transport = transport();
    environment.link_rate = "1gbit";
    environment.seed = 7;
    environment.rounds = 3;
    environment.gradients = {"a", "b"};
    environment.forward_operations = {"forward"};
    environment.scenario = R"({"name":"x"})";
    AllReduceRecord all_reduce;
    all_reduce.transport = transport();
    all_reduce.size = {1 << 20};
    all_reduce.samples_us = {1.5, 2.25};
    ComputeRecord compute;
    compute.backend = "gloo";
    compute.samples_us = {3.5};
    compute.copying_step_us = 3.75;
    compute.ready_us = {1.0, 2.0};
    ContentionRecord contention;
    contention.transport = transport();
    contention.dtype = DType::bfloat16;
    contention.allreduce_alone_us = {1.0};
    contention.allreduce_disturbed_us = {2.0};
    contention.compute_alone_us = {4.0, 5.0};
    contention.compute_disturbed_us = {6.0, 7.0};
    StepRecord step;
    step.transport = transport();
    step.strategy = "ddp";
    step.cap = Bytes{25 * bytes_per_mib};
    step.is_default = true;
    step.bucket_bytes = {{100}, {200}};
    step.round = 4;
    step.samples_us = {10.0};
    step.free_communication_us = {11.0};
    step.exposed_communication_us = -1.0;
    step.by_rank = {{.step_us = 10.0, .peak_memory_bytes = 1 << 30}};
    step.collective_begin_us = {1.0, 2.0};
    step.collective_end_us = {2.0, 3.0};
    step.collective_last_begin_us = {1.5, 2.0};
    return {environment, all_reduce, compute, contention, step};
}

TEST_CASE("every record reads back as it was written") {
    for (const Measurement& record : one_of_each()) {
        const Json json = Json::parse(to_json(record).dump());
        INFO(json.dump());
        CHECK(read_measurement(json, "m.jsonl", 1) == record);
    }
}

TEST_CASE("a strategy without a cap has none in its record") {
    StepRecord step = std::get<StepRecord>(one_of_each().back());
    step.cap.reset();
    step.bucket_bytes.clear();
    const Json json = to_json(step);
    CHECK(json["bucket_cap_mib"].is_null());
    CHECK(read_measurement(json, "m.jsonl", 1) == Measurement(step));
}

std::string error_of(const Json& json) {
    try {
        read_measurement(json, "m.jsonl", 12);
    } catch (const InputError& error) {
        return error.what();
    }
    return "none";
}

TEST_CASE("a damaged record is refused by line and place") {
    Json json = to_json(one_of_each()[1]);
    json["samples_us"][1] = "fast";
    CHECK(error_of(json).find("m.jsonl:12: /samples_us/1: expected a number") == 0);
    json = to_json(one_of_each()[1]);
    json["byts"] = json["bytes"];
    json.erase("bytes");
    CHECK(error_of(json).find("m.jsonl:12: /byts: ") == 0);
    CHECK(error_of(Json{{"kind", "guess"}}) ==
          "m.jsonl:12: /kind: expected one of environment, allreduce, compute, contention, step, "
          "got \"guess\"");
    CHECK(error_of(Json::array()).find("m.jsonl:12: expected an object") == 0);
}

TEST_CASE("every key of every record missing in turn is an error that names it") {
    for (const Measurement& record : one_of_each()) {
        const Json whole = to_json(record);
        for (const auto& [key, value] : whole.items()) {
            Json json = whole;
            json.erase(key);
            INFO(whole["kind"] << " without " << key);
            CHECK(error_of(json).find(key) != std::string::npos);
        }
    }
}

}  // namespace
}  // namespace bucketwise
