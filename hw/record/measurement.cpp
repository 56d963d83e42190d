#include "hw/record/measurement.h"

#include <array>
#include <concepts>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/invariant.h"
#include "sim/base/json_input.h"
#include "sim/base/json_output.h"
#include "sim/link/link.h"
#include "sim/scenario/sharding_input.h"
#include "sim/text/foreign_text.h"

namespace bucketwise {
namespace {

// --- values ---

constexpr double longest_us = 8e11;  // nine days: in picoseconds ten times as much still fits
constexpr std::int64_t most = std::int64_t{1} << 50;
constexpr std::int64_t most_ranks = 1'000'000;
constexpr std::size_t longest_list = 10'000'000;

double read_us(const JsonPlace& place) {
    return read_number(place, {0, longest_us});
}

// Differences and errors: any finite number.
double read_finite(const JsonPlace& place) {
    return read_number(place, {-1e300, 1e300});
}

auto integer_from(std::int64_t lowest, std::int64_t highest) {
    return [=](const JsonPlace& place) { return read_integer(place, lowest, highest); };
}

Bytes read_size(const JsonPlace& place) {
    return {read_integer(place, 0, most)};
}

DType read_dtype(const JsonPlace& place) {
    return read_choice(place, every<DType>);
}

CollectiveKind read_collective(const JsonPlace& place) {
    for (const CollectiveKind kind :
         {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
        if (*place.value == record_name(kind)) {
            return kind;
        }
    }
    place.fail("one of allreduce, allgather, reducescatter");
}

// Names of tensors, CPUs and command lines may be longer than those of a scenario.
std::string read_text(const JsonPlace& place) {
    if (!place.value->is_string()) {
        place.fail("a string");
    }
    return place.value->get<std::string>();
}

// Describes the machine, on a line of a report.
std::string read_words(const JsonPlace& place) {
    constexpr std::size_t longest = 500;
    return cut_text(read_text(place), longest);
}

std::string read_words_or_null(const JsonPlace& place) {
    return place.value->is_null() ? "" : read_words(place);
}

std::string read_document_or_null(const JsonPlace& place) {
    return place.value->is_null() ? "" : place.value->dump();
}

std::optional<Bytes> read_cap_or_null(const JsonPlace& place) {
    return place.value->is_null() ? std::nullopt : std::optional(read_cap_mib(place));
}

template <typename Read>
auto list_of(const Read& read) {
    return [read](const JsonPlace& place) {
        std::vector<decltype(read(place))> values;
        if (place.value->is_array() && place.value->empty()) {
            return values;
        }
        for (const JsonPlace& element : read_array(place, longest_list)) {
            values.push_back(read(element));
        }
        return values;
    };
}

const auto read_times = list_of(read_us);
const auto read_texts = list_of(read_text);

// --- fields ---

// Each record names its fields once, in list_fields(), to whoever collects their keys, writes or
// reads them:
//     required(key, value, read, write)
//     optional(key, value, read)   left out where it says nothing: false, none or empty
//     beside(key, times, others, of, written, partner)
//         none, or as many times as there are of `others`, whose key is `of`; and none, or both,
//         of `key` and `partner`
//     cap_or_sharding(record)      of a step: either what it was told of buckets or of sharding
template <typename Record, typename Kind>
concept Is = std::same_as<std::remove_const_t<Record>, Kind>;

template <typename Fields>
void list_fields(Fields& fields, Is<Transport> auto& transport) {
    fields.required("backend", transport.backend, read_words);
    fields.required("algorithm", transport.algorithm, read_words);
    fields.required("implementation", transport.implementation, read_words);
    fields.required("ranks", transport.ranks, integer_from(1, most_ranks));
    fields.optional("shared_gpu", transport.shared_gpu, read_boolean);
    fields.optional("ctas", transport.ctas, integer_from(1, most_thread_blocks));
}

template <typename Fields>
void list_fields(Fields& fields, Is<EnvironmentRecord> auto& record) {
    const auto null_if_empty = [](const std::string& text) {
        return text.empty() ? Json(nullptr) : Json(text);
    };
    const auto document = [](const std::string& text) {
        return text.empty() ? Json(nullptr) : Json::parse(text);
    };
    list_fields(fields, record.transport);
    fields.required("bucketwise", record.version, read_words);
    fields.required("date", record.date, read_words);
    fields.required("command", record.command, read_texts);
    fields.required("cpu", record.machine.cpu, read_words);
    fields.required("cores", record.machine.cores, integer_from(0, 1'000'000));
    fields.required("kernel", record.machine.kernel, read_words);
    fields.required("compiler", record.machine.compiler, read_words);
    fields.required("libraries", record.libraries, read_words);
    fields.required("gpu_libraries", record.machine.gpu_libraries, read_words);
    fields.required("hosts", record.hosts, integer_from(1, most_ranks));
    fields.required("link_rate", record.link_rate, read_words_or_null, null_if_empty);
    fields.required("seed", record.seed, integer_from(0, most));
    fields.required("rounds", record.rounds, integer_from(0, most));
    fields.required("gradients", record.gradients, read_texts);
    fields.required("forward_operations", record.forward_operations, read_texts);
    fields.required("scenario", record.scenario, read_document_or_null, document);
    fields.required("scheduling", record.machine.scheduling, read_words);
    fields.required("backward_operations", record.backward_operations, read_texts);
    fields.optional("gpu", record.gpu, read_words);
}

template <typename Fields>
void list_fields(Fields& fields, Is<CollectiveRecord> auto& record) {
    list_fields(fields, record.transport);
    fields.required("kind", record.kind, read_collective, record_name);
    fields.required("bytes", record.size, read_size, byte_count);
    fields.required("dtype", record.dtype, read_dtype, name_of<DType>);
    fields.required("round", record.round, integer_from(0, most));
    fields.required("samples_us", record.samples_us, read_times);
    fields.required("largest_difference", record.largest_difference, read_finite);
    fields.required("peak_memory_bytes", record.peak_memory_bytes, integer_from(0, most));
    fields.beside("issue_us", record.issue_us, record.samples_us, "samples_us",
                  !record.issue_us.empty());
    fields.optional("memory_before_bytes", record.memory_before_bytes, integer_from(0, most));
}

template <typename Fields>
void list_fields(Fields& fields, Is<ComputeRecord> auto& record) {
    const bool has_launches =
        !record.forward_launches_us.empty() || !record.backward_launches_us.empty();
    fields.required("backend", record.backend, read_words);
    fields.required("ranks", record.ranks, integer_from(1, most_ranks));
    fields.required("rank", record.rank, integer_from(0, most_ranks));
    fields.required("round", record.round, integer_from(0, most));
    fields.required("samples_us", record.samples_us, read_times);
    fields.required("forward_us", record.forward_us, read_us);
    fields.required("backward_us", record.backward_us, read_us);
    fields.required("optimizer_us", record.optimizer_us, read_us);
    fields.required("copying_step_us", record.copying_step_us, read_us);
    fields.required("forward_operations_us", record.forward_operations_us, read_times);
    fields.required("backward_operations_us", record.backward_operations_us, read_times);
    fields.required("ready_us", record.ready_us, read_times);
    fields.optional("shared_gpu", record.shared_gpu, read_boolean);
    fields.beside("forward_launches_us", record.forward_launches_us, record.forward_operations_us,
                  "forward_operations_us", has_launches);
    fields.beside("backward_launches_us", record.backward_launches_us,
                  record.backward_operations_us, "backward_operations_us", has_launches,
                  "forward_launches_us");
    fields.optional("copies_us", record.copies_us, read_us);
    fields.optional("graph_launch_us", record.graph_launch_us, read_us);
}

template <typename Fields>
void list_fields(Fields& fields, Is<ContentionRecord> auto& record) {
    const bool has_products = !record.products_alone_us.empty();
    list_fields(fields, record.transport);
    fields.optional("collective", record.collective, read_collective);
    fields.required("bytes", record.size, read_size, byte_count);
    fields.required("dtype", record.dtype, read_dtype, name_of<DType>);
    fields.required("round", record.round, integer_from(0, most));
    fields.required("allreduce_alone_us", record.allreduce_alone_us, read_times);
    fields.required("allreduce_disturbed_us", record.allreduce_disturbed_us, read_times);
    fields.required("compute_alone_us", record.compute_alone_us, read_times);
    fields.required("compute_disturbed_us", record.compute_disturbed_us, read_times);
    fields.beside("products_alone_us", record.products_alone_us, record.compute_alone_us,
                  "compute_alone_us", has_products);
    fields.beside("products_disturbed_us", record.products_disturbed_us, record.compute_alone_us,
                  "compute_alone_us", has_products, "products_alone_us");
}

template <typename Fields>
void list_fields(Fields& fields, Is<RankStep> auto& step) {
    fields.required("step_us", step.step_us, read_us);
    fields.required("forward_us", step.forward_us, read_us);
    fields.required("backward_us", step.backward_us, read_us);
    fields.required("optimizer_us", step.optimizer_us, read_us);
    fields.required("waiting_us", step.waiting_us, read_us);
    fields.required("peak_memory_bytes", step.peak_memory_bytes, integer_from(0, most));
}

template <typename Record>
Json json_of(const Record& record);
template <typename Record>
Record read_fields(const JsonPlace& place, std::vector<std::string_view> keys);

template <typename Fields>
void list_fields(Fields& fields, Is<StepRecord> auto& record) {
    const auto sizes = [](const auto& bytes) { return json_list(bytes, byte_count); };
    const auto read_step = [](const JsonPlace& place) { return read_fields<RankStep>(place, {}); };
    const auto steps = [](const auto& by_rank) { return json_list(by_rank, json_of<RankStep>); };
    list_fields(fields, record.transport);
    fields.required("strategy", record.strategy, read_words);
    fields.cap_or_sharding(record);
    fields.required("is_default", record.is_default, read_boolean);
    fields.required("bucket_bytes", record.bucket_bytes, list_of(read_bytes), sizes);
    fields.required("round", record.round, integer_from(0, most));
    fields.required("samples_us", record.samples_us, read_times);
    fields.required("free_communication_us", record.free_communication_us, read_times);
    fields.required("exposed_communication_us", record.exposed_communication_us, read_finite);
    fields.required("by_rank", record.by_rank, list_of(read_step), steps);
    fields.required("collective_begin_us", record.collective_begin_us, read_times);
    fields.required("collective_end_us", record.collective_end_us, read_times);
    fields.required("collective_last_begin_us", record.collective_last_begin_us, read_times);
    fields.required("largest_difference", record.largest_difference, read_finite);
}

// --- what becomes of fields ---

// Messages name the required keys first.
struct FieldKeys {
    std::vector<std::string_view> required_keys;
    std::vector<std::string_view> optional_keys = {};

    void required(std::string_view key, const auto&... /*how*/) { required_keys.push_back(key); }
    void optional(std::string_view key, const auto&... /*how*/) { optional_keys.push_back(key); }
    void beside(std::string_view key, const auto&... /*how*/) { optional_keys.push_back(key); }
    void cap_or_sharding(const StepRecord& /*record*/) {
        required_keys.emplace_back("bucket_cap_mib");
        optional_keys.emplace_back("sharding");
    }
};

struct FieldWriter {
    Json json = Json::object();

    template <typename Write = std::identity>
    void required(const char* key, const auto& value, const auto& /*read*/,
                  const Write& write = {}) {
        json[key] = write(value);
    }
    template <typename Value>
    void optional(const char* key, const Value& value, const auto& /*read*/) {
        add_if(value != Value{}, json, key, value);
    }
    void optional(const char* key, CollectiveKind kind, const auto& /*read*/) {
        add_if(kind != CollectiveKind::all_reduce, json, key, record_name(kind));
    }
    template <typename Value>
    void optional(const char* key, const std::optional<Value>& value, const auto& /*read*/) {
        add_optional(json, key, value);
    }
    void beside(const char* key, const std::vector<double>& times, const auto& /*others*/,
                const char* /*of*/, bool written, const auto&... /*partner*/) {
        add_if(written, json, key, times);
    }
    void cap_or_sharding(const StepRecord& record) {
        if (record.sharding) {
            json["sharding"] = sharding_json(*record.sharding);
        } else {
            json["bucket_cap_mib"] = record.cap ? Json(to_mib(*record.cap)) : Json(nullptr);
        }
    }
};

struct FieldReader {
    JsonObject object;

    template <typename Value>
    void required(const char* key, Value& value, const auto& read, const auto&... /*write*/) {
        value = static_cast<Value>(read(object.at(key)));
    }
    void optional(const char* key, auto& value, const auto& read) {
        object.read_optional(key, value, read);
    }
    void beside(const char* key, std::vector<double>& times, const std::vector<double>& others,
                const char* of, bool /*written*/, const char* partner = nullptr) {
        object.read_optional(key, times, read_times);
        if (object.has(key) && times.size() != others.size()) {
            object.at(key).fail(fmt::format("{} values, as {} has", others.size(), of),
                                std::to_string(times.size()));
        }
        if (partner != nullptr && object.has(key) != object.has(partner)) {
            static_cast<void>(object.at(object.has(key) ? partner : key));
        }
    }
    void cap_or_sharding(StepRecord& record) {
        object.exclusive("bucket_cap_mib", "sharding");
        if (object.has("sharding")) {
            const auto strategy = read_choice(object.at("strategy"), every<ShardedStrategy>);
            record.sharding = read_sharding_settings(object.at("sharding"), strategy);
        } else {
            record.cap = read_cap_or_null(object.at("bucket_cap_mib"));
        }
    }
};

template <typename Record>
Json json_of(const Record& record) {
    FieldWriter writer;
    list_fields(writer, record);
    return std::move(writer.json);
}

// `keys`: what it may have beside its fields.
template <typename Record>
Record read_fields(const JsonPlace& place, std::vector<std::string_view> keys) {
    Record record;
    FieldKeys known{std::move(keys)};
    list_fields(known, record);
    known.required_keys.insert(known.required_keys.end(), known.optional_keys.begin(),
                               known.optional_keys.end());
    FieldReader reader{JsonObject(place, std::move(known.required_keys))};
    list_fields(reader, record);
    return record;
}

template <typename Record>
Measurement read_record(const JsonPlace& place) {
    return read_fields<Record>(place, {"kind"});
}

template <>
Measurement read_record<CollectiveRecord>(const JsonPlace& place) {
    return read_fields<CollectiveRecord>(place, {});
}

struct Kind {
    std::string_view name;
    Measurement (*read)(const JsonPlace&);
};
constexpr std::array<Kind, 7> kinds{{{"environment", read_record<EnvironmentRecord>},
                                     {"allreduce", read_record<CollectiveRecord>},
                                     {"allgather", read_record<CollectiveRecord>},
                                     {"reducescatter", read_record<CollectiveRecord>},
                                     {"compute", read_record<ComputeRecord>},
                                     {"contention", read_record<ContentionRecord>},
                                     {"step", read_record<StepRecord>}}};

struct NameOfKind {
    std::string_view operator()(const EnvironmentRecord& /*record*/) const { return "environment"; }
    std::string_view operator()(const CollectiveRecord& record) const {
        return record_name(record.kind);
    }
    std::string_view operator()(const ComputeRecord& /*record*/) const { return "compute"; }
    std::string_view operator()(const ContentionRecord& /*record*/) const { return "contention"; }
    std::string_view operator()(const StepRecord& /*record*/) const { return "step"; }
};

}  // namespace

std::string_view record_name(CollectiveKind kind) {
    switch (kind) {
        case CollectiveKind::all_reduce:
            return "allreduce";
        case CollectiveKind::all_gather:
            return "allgather";
        case CollectiveKind::reduce_scatter:
            return "reducescatter";
        case CollectiveKind::broadcast:
            break;
    }
    invariant(false, "broadcasts are not recorded");
    return "";
}

Json to_json(const Measurement& record) {
    Json json = std::visit([](const auto& fields) { return json_of(fields); }, record);
    json["kind"] = std::visit(NameOfKind{}, record);
    return json;
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
    for (const Kind& known : kinds) {
        if (kind == known.name) {
            return known.read(place);
        }
    }
    JsonPlace{&kind, place.file, "/kind"}.fail(
        "one of environment, allreduce, allgather, reducescatter, compute, contention, step");
}

}  // namespace bucketwise
