#include "hw/record/measurement.h"

#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/base/json.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

Transport transport() {
    return {.backend = "gloo", .algorithm = "ring", .implementation = "library", .ranks = 2};
}

CollectiveRecord of_kind(CollectiveKind kind, CollectiveRecord record) {
    record.kind = kind;
    return record;
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
    CollectiveRecord all_reduce;
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
    return {environment,
            all_reduce,
            compute,
            contention,
            step,
            of_kind(CollectiveKind::all_gather, all_reduce),
            of_kind(CollectiveKind::reduce_scatter, all_reduce)};
}

// The same as a GPU's ranks write them, with every key that may be left out.
std::vector<Measurement> one_of_each_with_all_keys() {
    std::vector<Measurement> records = one_of_each();
    const Transport shared{.backend = "nccl",
                           .algorithm = "ring",
                           .implementation = "library",
                           .ranks = 2,
                           .shared_gpu = true,
                           .ctas = 4};
    auto& environment = std::get<EnvironmentRecord>(records[0]);
    environment.transport = shared;
    environment.gpu = "one, 80 GiB, 132 multiprocessors, driver 1";
    auto& all_reduce = std::get<CollectiveRecord>(records[1]);
    all_reduce.transport = shared;
    all_reduce.issue_us = {4.5, 0.0};
    all_reduce.memory_before_bytes = 4096;
    auto& compute = std::get<ComputeRecord>(records[2]);
    compute.shared_gpu = true;
    compute.forward_operations_us = {7.0};
    compute.backward_operations_us = {8.0, 9.0};
    compute.forward_launches_us = {1.0};
    compute.backward_launches_us = {2.0, 3.0};
    compute.copies_us = 0.0;
    compute.graph_launch_us = 11.5;
    auto& contention = std::get<ContentionRecord>(records[3]);
    contention.transport = shared;
    contention.collective = CollectiveKind::reduce_scatter;
    contention.products_alone_us = {3.0, 4.0};
    contention.products_disturbed_us = {3.5, 4.5};
    std::get<StepRecord>(records[4]).transport = shared;
    return records;
}

TEST_CASE("what was not measured leaves no key in its record, so older files stay as they are") {
    for (const Measurement& record : one_of_each()) {
        const Json json = to_json(record);
        for (const char* key : {"shared_gpu", "ctas", "gpu", "issue_us", "forward_launches_us",
                                "backward_launches_us", "copies_us", "graph_launch_us",
                                "products_alone_us", "products_disturbed_us", "collective"}) {
            CHECK_FALSE(json.contains(key));
        }
    }
}

TEST_CASE("all-gathers and reduce-scatters are written as all-reduces are, but for the kind") {
    const std::vector<Measurement> records = one_of_each();
    Json all_reduce = to_json(records[1]);
    CHECK(all_reduce["kind"] == "allreduce");
    all_reduce["kind"] = "allgather";
    CHECK(to_json(records[5]) == all_reduce);
    all_reduce["kind"] = "reducescatter";
    CHECK(to_json(records[6]) == all_reduce);
    CHECK(to_json(one_of_each_with_all_keys()[3])["collective"] == "reducescatter");
}

TEST_CASE("every record reads back as it was written") {
    std::vector<Measurement> records = one_of_each();
    for (Measurement& record : one_of_each_with_all_keys()) {
        records.push_back(std::move(record));
    }
    for (const Measurement& record : records) {
        const Json json = Json::parse(to_json(record).dump());
        INFO(json.dump());
        CHECK(read_measurement(json, "m.jsonl", 1) == record);
    }
}

TEST_CASE("a strategy without a cap has none in its record") {
    StepRecord step = std::get<StepRecord>(one_of_each()[4]);
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
          "m.jsonl:12: /kind: expected one of environment, allreduce, allgather, reducescatter, "
          "compute, contention, step, "
          "got \"guess\"");
    CHECK(error_of(Json::array()).find("m.jsonl:12: expected an object") == 0);
}

TEST_CASE("keys that may be left out are checked where they are there") {
    const auto refused = [](std::size_t record, const char* key, const Json& value,
                            const std::string& expected) {
        Json json = to_json(one_of_each_with_all_keys()[record]);
        json[key] = value;
        INFO(error_of(json));
        CHECK(error_of(json).find(expected) == 0);
    };
    refused(0, "ctas", 0, "m.jsonl:12: /ctas: expected an integer from 1 to 1024");
    refused(0, "ctas", 1025, "m.jsonl:12: /ctas: expected an integer from 1 to 1024");
    refused(0, "shared_gpu", 1, "m.jsonl:12: /shared_gpu: expected");
    refused(0, "gpu", 1, "m.jsonl:12: /gpu: expected a string");
    refused(1, "issue_us", {1.0}, "m.jsonl:12: /issue_us: expected 2 values, as samples_us has");
    refused(2, "forward_launches_us", Json::array(),
            "m.jsonl:12: /forward_launches_us: expected 1 values");
    refused(2, "backward_launches_us", {1.0, -1.0},
            "m.jsonl:12: /backward_launches_us/1: expected a number");
    refused(2, "copies_us", -0.5, "m.jsonl:12: /copies_us: expected a number");
    refused(2, "graph_launch_us", "soon", "m.jsonl:12: /graph_launch_us: expected a number");
    refused(3, "products_disturbed_us", {1.0},
            "m.jsonl:12: /products_disturbed_us: expected 2 values, as compute_alone_us has");
    Json json = to_json(one_of_each_with_all_keys()[2]);
    json.erase("backward_launches_us");
    CHECK(error_of(json).find("m.jsonl:12: expected the key backward_launches_us") == 0);
    json = to_json(one_of_each_with_all_keys()[3]);
    json.erase("products_alone_us");
    CHECK(error_of(json).find("m.jsonl:12: expected the key products_alone_us") == 0);
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

TEST_CASE("a step that is sharded has a setting in place of a cap") {
    StepRecord step = std::get<StepRecord>(one_of_each()[4]);
    step.cap.reset();
    step.is_default = false;
    step.strategy = "fsdp";
    ShardingRequest& sharding = step.sharding.emplace();
    sharding.layers_per_group = 4;
    sharding.reshard_after_forward = false;
    sharding.reduce_dtype = DType::float32;
    sharding.gradient_sync = MicroSteps::last;
    nlohmann::json json = to_json(step);
    CHECK_FALSE(json.contains("bucket_cap_mib"));
    CHECK(json["sharding"]["layers_per_group"] == 4);
    CHECK(json["sharding"]["gradient_sync"] == "last_micro_step");
    CHECK(std::get<StepRecord>(read_measurement(json, "file", 1)) == step);
    json["bucket_cap_mib"] = 25;
    CHECK_THROWS_AS(read_measurement(json, "file", 1), InputError);
    json.erase("bucket_cap_mib");
    json["strategy"] = "ddp";
    CHECK_THROWS_AS(read_measurement(json, "file", 1), InputError);
    json["strategy"] = "hsdp";
    json["sharding"] = {{"groups", {{"layers.0"}, {"layers.1", "head"}}}, {"shard_ranks", 4}};
    const auto read = std::get<StepRecord>(read_measurement(json, "file", 1));
    CHECK(read.sharding->groups.size() == 2);
    CHECK(std::get<StepRecord>(read_measurement(to_json(read), "file", 1)) == read);
}

}  // namespace
}  // namespace bucketwise
