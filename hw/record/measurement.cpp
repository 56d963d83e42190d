#include "hw/record/measurement.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/json_input.h"
#include "sim/base/json_output.h"
#include "sim/link/link.h"

namespace bucketwise {
namespace {

// --- writing ---

// What most measurements do not have is left out of their records.
void add_transport(Json& json, const Transport& transport) {
    json["backend"] = transport.backend;
    json["algorithm"] = transport.algorithm;
    json["implementation"] = transport.implementation;
    json["ranks"] = transport.ranks;
    add_if(transport.shared_gpu, json, "shared_gpu", true);
    add_optional(json, "ctas", transport.ctas);
}

Json with_kind(const char* kind) {
    return Json{{"kind", kind}};
}

Json json_of(const EnvironmentRecord& record) {
    Json json = with_kind("environment");
    add_transport(json, record.transport);
    json["bucketwise"] = record.version;
    json["date"] = record.date;
    json["command"] = record.command;
    json["cpu"] = record.machine.cpu;
    json["cores"] = record.machine.cores;
    json["kernel"] = record.machine.kernel;
    json["compiler"] = record.machine.compiler;
    json["gpu_libraries"] = record.machine.gpu_libraries;
    json["scheduling"] = record.machine.scheduling;
    add_unless_empty(json, "gpu", record.gpu);
    json["libraries"] = record.libraries;
    json["hosts"] = record.hosts;
    json["link_rate"] = record.link_rate.empty() ? Json(nullptr) : Json(record.link_rate);
    json["seed"] = record.seed;
    json["rounds"] = record.rounds;
    json["gradients"] = record.gradients;
    json["forward_operations"] = record.forward_operations;
    json["backward_operations"] = record.backward_operations;
    json["scenario"] = record.scenario.empty() ? Json(nullptr) : Json::parse(record.scenario);
    return json;
}

Json json_of(const AllReduceRecord& record) {
    Json json = with_kind("allreduce");
    add_transport(json, record.transport);
    json["bytes"] = record.size.count;
    json["dtype"] = name_of(record.dtype);
    json["round"] = record.round;
    json["samples_us"] = record.samples_us;
    json["largest_difference"] = record.largest_difference;
    json["peak_memory_bytes"] = record.peak_memory_bytes;
    add_unless_empty(json, "issue_us", record.issue_us);
    add_optional(json, "memory_before_bytes", record.memory_before_bytes);
    return json;
}

Json json_of(const ComputeRecord& record) {
    Json json = with_kind("compute");
    json["backend"] = record.backend;
    json["ranks"] = record.ranks;
    add_if(record.shared_gpu, json, "shared_gpu", true);
    json["rank"] = record.rank;
    json["round"] = record.round;
    json["samples_us"] = record.samples_us;
    json["forward_us"] = record.forward_us;
    json["backward_us"] = record.backward_us;
    json["optimizer_us"] = record.optimizer_us;
    json["copying_step_us"] = record.copying_step_us;
    json["forward_operations_us"] = record.forward_operations_us;
    json["backward_operations_us"] = record.backward_operations_us;
    json["ready_us"] = record.ready_us;
    if (!record.forward_launches_us.empty() || !record.backward_launches_us.empty()) {
        json["forward_launches_us"] = record.forward_launches_us;
        json["backward_launches_us"] = record.backward_launches_us;
    }
    add_optional(json, "copies_us", record.copies_us);
    add_optional(json, "graph_launch_us", record.graph_launch_us);
    return json;
}

Json json_of(const ContentionRecord& record) {
    Json json = with_kind("contention");
    add_transport(json, record.transport);
    json["bytes"] = record.size.count;
    json["dtype"] = name_of(record.dtype);
    json["round"] = record.round;
    json["allreduce_alone_us"] = record.allreduce_alone_us;
    json["allreduce_disturbed_us"] = record.allreduce_disturbed_us;
    json["compute_alone_us"] = record.compute_alone_us;
    json["compute_disturbed_us"] = record.compute_disturbed_us;
    if (!record.products_alone_us.empty()) {
        json["products_alone_us"] = record.products_alone_us;
        json["products_disturbed_us"] = record.products_disturbed_us;
    }
    return json;
}

Json json_of(const RankStep& step) {
    return Json{{"step_us", step.step_us},         {"forward_us", step.forward_us},
                {"backward_us", step.backward_us}, {"optimizer_us", step.optimizer_us},
                {"waiting_us", step.waiting_us},   {"peak_memory_bytes", step.peak_memory_bytes}};
}

Json json_of(const StepRecord& record) {
    Json json = with_kind("step");
    add_transport(json, record.transport);
    json["strategy"] = record.strategy;
    json["bucket_cap_mib"] = record.cap ? Json(to_mib(*record.cap)) : Json(nullptr);
    json["is_default"] = record.is_default;
    json["bucket_bytes"] = json_list(record.bucket_bytes, byte_count);
    json["round"] = record.round;
    json["samples_us"] = record.samples_us;
    json["free_communication_us"] = record.free_communication_us;
    json["exposed_communication_us"] = record.exposed_communication_us;
    json["by_rank"] = json_list(record.by_rank, [](const RankStep& step) { return json_of(step); });
    json["collective_begin_us"] = record.collective_begin_us;
    json["collective_end_us"] = record.collective_end_us;
    json["collective_last_begin_us"] = record.collective_last_begin_us;
    json["largest_difference"] = record.largest_difference;
    return json;
}

// --- reading ---

constexpr double longest_us = 8e11;  // nine days: in picoseconds ten times as much still fits
constexpr std::int64_t most = std::int64_t{1} << 50;
constexpr std::size_t longest_list = 10'000'000;

double read_us(const JsonPlace& place) {
    return read_number(place, {0, longest_us});
}

// Differences and errors: any finite number.
double read_finite(const JsonPlace& place) {
    return read_number(place, {-1e300, 1e300});
}

template <typename Read>
auto read_list(const JsonPlace& place, const Read& read) {
    std::vector<decltype(read(place))> values;
    if (place.value->is_array() && place.value->empty()) {
        return values;
    }
    for (const JsonPlace& element : read_array(place, longest_list)) {
        values.push_back(read(element));
    }
    return values;
}

std::vector<double> read_times(const JsonPlace& place) {
    return read_list(place, read_us);
}

// Names of tensors, CPUs and command lines may be longer than those of a scenario.
std::string read_text(const JsonPlace& place) {
    if (!place.value->is_string()) {
        place.fail("a string");
    }
    return place.value->get<std::string>();
}

std::vector<std::string> read_texts(const JsonPlace& place) {
    return read_list(place, read_text);
}

Transport read_transport(const JsonObject& object) {
    Transport transport{.backend = read_text(object.at("backend")),
                        .algorithm = read_text(object.at("algorithm")),
                        .implementation = read_text(object.at("implementation")),
                        .ranks = read_integer(object.at("ranks"), 1, 1'000'000)};
    object.read_optional("shared_gpu", transport.shared_gpu, read_boolean);
    object.read_optional("ctas", transport.ctas, read_integer, 1, most_thread_blocks);
    return transport;
}

// None, or as many as there are of `others`.
std::vector<double> read_times_beside(const JsonObject& object, const char* key,
                                      const std::vector<double>& others, const char* of) {
    const auto place = object.find(key);
    if (!place) {
        return {};
    }
    std::vector<double> times = read_times(*place);
    if (times.size() != others.size()) {
        place->fail(fmt::format("{} values, as {} has", others.size(), of),
                    std::to_string(times.size()));
    }
    return times;
}

// Neither, or both: `second` is required once `first` is there, and the other way round.
void check_both(const JsonObject& object, const char* first, const char* second) {
    if (object.has(first) != object.has(second)) {
        static_cast<void>(object.at(object.has(first) ? second : first));
    }
}

std::int64_t read_round(const JsonObject& object) {
    return read_integer(object.at("round"), 0, most);
}

EnvironmentRecord read_environment_record(const JsonPlace& place) {
    const JsonObject object(place, {"kind",
                                    "backend",
                                    "algorithm",
                                    "implementation",
                                    "ranks",
                                    "bucketwise",
                                    "date",
                                    "command",
                                    "cpu",
                                    "cores",
                                    "kernel",
                                    "compiler",
                                    "libraries",
                                    "gpu_libraries",
                                    "hosts",
                                    "link_rate",
                                    "seed",
                                    "rounds",
                                    "gradients",
                                    "forward_operations",
                                    "scenario",
                                    "scheduling",
                                    "backward_operations",
                                    "shared_gpu",
                                    "ctas",
                                    "gpu"});
    EnvironmentRecord record;
    record.transport = read_transport(object);
    record.version = read_text(object.at("bucketwise"));
    record.date = read_text(object.at("date"));
    record.command = read_texts(object.at("command"));
    record.machine.cpu = read_text(object.at("cpu"));
    record.machine.cores = static_cast<unsigned>(read_integer(object.at("cores"), 0, 1'000'000));
    record.machine.kernel = read_text(object.at("kernel"));
    record.machine.compiler = read_text(object.at("compiler"));
    record.machine.gpu_libraries = read_text(object.at("gpu_libraries"));
    record.machine.scheduling = read_text(object.at("scheduling"));
    object.read_optional("gpu", record.gpu, read_text);
    record.libraries = read_text(object.at("libraries"));
    record.hosts = read_integer(object.at("hosts"), 1, 1'000'000);
    const JsonPlace rate = object.at("link_rate");
    record.link_rate = rate.value->is_null() ? "" : read_text(rate);
    record.seed = static_cast<std::uint64_t>(read_integer(object.at("seed"), 0, most));
    record.rounds = read_integer(object.at("rounds"), 0, most);
    record.gradients = read_texts(object.at("gradients"));
    record.forward_operations = read_texts(object.at("forward_operations"));
    record.backward_operations = read_texts(object.at("backward_operations"));
    const JsonPlace scenario = object.at("scenario");
    record.scenario = scenario.value->is_null() ? "" : scenario.value->dump();
    return record;
}

AllReduceRecord read_all_reduce(const JsonPlace& place) {
    const JsonObject object(
        place, {"kind", "backend", "algorithm", "implementation", "ranks", "bytes", "dtype",
                "round", "samples_us", "largest_difference", "peak_memory_bytes", "shared_gpu",
                "ctas", "issue_us", "memory_before_bytes"});
    AllReduceRecord record{
        .transport = read_transport(object),
        .size = {read_integer(object.at("bytes"), 0, most)},
        .dtype = read_choice(object.at("dtype"), every<DType>),
        .round = read_round(object),
        .samples_us = read_times(object.at("samples_us")),
        .largest_difference = read_finite(object.at("largest_difference")),
        .peak_memory_bytes = read_integer(object.at("peak_memory_bytes"), 0, most)};
    record.issue_us = read_times_beside(object, "issue_us", record.samples_us, "samples_us");
    object.read_optional("memory_before_bytes", record.memory_before_bytes, read_integer, 0, most);
    return record;
}

ComputeRecord read_compute(const JsonPlace& place) {
    const JsonObject object(
        place, {"kind", "backend", "ranks", "rank", "round", "samples_us", "forward_us",
                "backward_us", "optimizer_us", "copying_step_us", "forward_operations_us",
                "backward_operations_us", "ready_us", "shared_gpu", "forward_launches_us",
                "backward_launches_us", "copies_us", "graph_launch_us"});
    ComputeRecord record{.backend = read_text(object.at("backend")),
                         .ranks = read_integer(object.at("ranks"), 1, 1'000'000),
                         .rank = read_integer(object.at("rank"), 0, 1'000'000),
                         .round = read_round(object),
                         .samples_us = read_times(object.at("samples_us")),
                         .forward_us = read_us(object.at("forward_us")),
                         .backward_us = read_us(object.at("backward_us")),
                         .optimizer_us = read_us(object.at("optimizer_us")),
                         .copying_step_us = read_us(object.at("copying_step_us")),
                         .forward_operations_us = read_times(object.at("forward_operations_us")),
                         .backward_operations_us = read_times(object.at("backward_operations_us")),
                         .ready_us = read_times(object.at("ready_us"))};
    object.read_optional("shared_gpu", record.shared_gpu, read_boolean);
    record.forward_launches_us = read_times_beside(
        object, "forward_launches_us", record.forward_operations_us, "forward_operations_us");
    record.backward_launches_us = read_times_beside(
        object, "backward_launches_us", record.backward_operations_us, "backward_operations_us");
    check_both(object, "forward_launches_us", "backward_launches_us");
    object.read_optional("copies_us", record.copies_us, read_us);
    object.read_optional("graph_launch_us", record.graph_launch_us, read_us);
    return record;
}

ContentionRecord read_contention(const JsonPlace& place) {
    const JsonObject object(
        place,
        {"kind", "backend", "algorithm", "implementation", "ranks", "bytes", "dtype", "round",
         "allreduce_alone_us", "allreduce_disturbed_us", "compute_alone_us", "compute_disturbed_us",
         "shared_gpu", "ctas", "products_alone_us", "products_disturbed_us"});
    ContentionRecord record{
        .transport = read_transport(object),
        .size = {read_integer(object.at("bytes"), 0, most)},
        .dtype = read_choice(object.at("dtype"), every<DType>),
        .round = read_round(object),
        .allreduce_alone_us = read_times(object.at("allreduce_alone_us")),
        .allreduce_disturbed_us = read_times(object.at("allreduce_disturbed_us")),
        .compute_alone_us = read_times(object.at("compute_alone_us")),
        .compute_disturbed_us = read_times(object.at("compute_disturbed_us"))};
    record.products_alone_us =
        read_times_beside(object, "products_alone_us", record.compute_alone_us, "compute_alone_us");
    record.products_disturbed_us = read_times_beside(object, "products_disturbed_us",
                                                     record.compute_alone_us, "compute_alone_us");
    check_both(object, "products_alone_us", "products_disturbed_us");
    return record;
}

RankStep read_rank_step(const JsonPlace& place) {
    const JsonObject object(place, {"step_us", "forward_us", "backward_us", "optimizer_us",
                                    "waiting_us", "peak_memory_bytes"});
    return {.step_us = read_us(object.at("step_us")),
            .forward_us = read_us(object.at("forward_us")),
            .backward_us = read_us(object.at("backward_us")),
            .optimizer_us = read_us(object.at("optimizer_us")),
            .waiting_us = read_us(object.at("waiting_us")),
            .peak_memory_bytes = read_integer(object.at("peak_memory_bytes"), 0, most)};
}

StepRecord read_step(const JsonPlace& place) {
    const JsonObject object(place, {"kind",
                                    "backend",
                                    "algorithm",
                                    "implementation",
                                    "ranks",
                                    "strategy",
                                    "bucket_cap_mib",
                                    "is_default",
                                    "bucket_bytes",
                                    "round",
                                    "samples_us",
                                    "free_communication_us",
                                    "exposed_communication_us",
                                    "by_rank",
                                    "collective_begin_us",
                                    "collective_end_us",
                                    "collective_last_begin_us",
                                    "largest_difference",
                                    "shared_gpu",
                                    "ctas"});
    StepRecord record;
    record.transport = read_transport(object);
    record.strategy = read_text(object.at("strategy"));
    const JsonPlace cap = object.at("bucket_cap_mib");
    if (!cap.value->is_null()) {
        record.cap = read_cap_mib(cap);
    }
    record.is_default = read_boolean(object.at("is_default"));
    record.bucket_bytes = read_list(object.at("bucket_bytes"), read_bytes);
    record.round = read_round(object);
    record.samples_us = read_times(object.at("samples_us"));
    record.free_communication_us = read_times(object.at("free_communication_us"));
    record.exposed_communication_us = read_finite(object.at("exposed_communication_us"));
    record.by_rank = read_list(object.at("by_rank"), read_rank_step);
    record.collective_begin_us = read_times(object.at("collective_begin_us"));
    record.collective_end_us = read_times(object.at("collective_end_us"));
    record.collective_last_begin_us = read_times(object.at("collective_last_begin_us"));
    record.largest_difference = read_finite(object.at("largest_difference"));
    return record;
}

}  // namespace

Json to_json(const Measurement& record) {
    return std::visit([](const auto& r) { return json_of(r); }, record);
}

std::string hardware_of(const EnvironmentRecord& environment) {
    if (environment.gpu.empty()) {
        return fmt::format("{}, {} cores", environment.machine.cpu, environment.machine.cores);
    }
    return environment.gpu + (environment.transport.shared_gpu ? "; shared by all ranks" : "");
}

Measurement read_measurement(const Json& document, const std::string& file, std::int64_t line) {
    const JsonPlace place{&document, fmt::format("{}:{}", file, line), ""};
    if (!document.is_object() || !document.contains("kind")) {
        place.fail("an object with the key \"kind\"");
    }
    const Json& kind = document["kind"];
    if (kind == "environment") {
        return read_environment_record(place);
    }
    if (kind == "allreduce") {
        return read_all_reduce(place);
    }
    if (kind == "compute") {
        return read_compute(place);
    }
    if (kind == "contention") {
        return read_contention(place);
    }
    if (kind == "step") {
        return read_step(place);
    }
    JsonPlace{&kind, place.file, "/kind"}.fail(
        "one of environment, allreduce, compute, contention, step");
}

}  // namespace bucketwise
