#include "calibrate/gate/baseline.h"

#include <cstdint>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/json_input.h"
#include "sim/base/json_output.h"
#include "sim/base/transformed.h"
#include "sim/text/foreign_text.h"

namespace bucketwise {
namespace {

constexpr std::int64_t baseline_format = 1;
// More than anybody checks, and few enough to compare at once.
constexpr std::size_t most_cases = 1000;
constexpr std::size_t most_runs = 1000;
constexpr std::size_t most_steps = 100'000;
constexpr std::size_t most_buckets = 100'000;
constexpr std::size_t longest_name = 1000;

constexpr std::int64_t most_bytes = std::int64_t{1} << 50;
constexpr double longest_ms = 1e10;
constexpr NumberRange step_range{0, longest_ms, true};
constexpr NumberRange part_range{0, longest_ms};

std::string read_name(const JsonPlace& place) {
    return read_text(place, longest_name);
}

std::vector<double> read_times(const JsonPlace& place, const NumberRange& range) {
    return transformed(read_array(place, most_steps),
                       [&](const JsonPlace& time) { return read_number(time, range); });
}

GateBucket read_bucket(const JsonPlace& place) {
    const JsonObject object(place, {"bytes", "last_gradient", "ready_ms", "collective_ms"});
    GateBucket bucket{.bytes = Bytes{read_integer(object.at("bytes"), 0, most_bytes)}};
    object.read_optional("last_gradient", bucket.last_gradient, read_name);
    // A bucket may be ready before the origin of its times.
    object.read_optional("ready_ms", bucket.ready_ms, read_times,
                         NumberRange{-longest_ms, longest_ms});
    object.read_optional("collective_ms", bucket.collective_ms, read_times, part_range);
    return bucket;
}

GateGradient read_gradient(const JsonPlace& place) {
    const JsonObject object(place, {"name", "ready_ms"});
    return {.name = read_name(object.at("name")),
            .ready_ms = read_number(object.at("ready_ms"), {-longest_ms, longest_ms})};
}

GateRun read_run(const JsonPlace& place) {
    std::vector<std::string_view> keys{"file", "buckets", "gradients", "collectives_wait"};
    keys.insert(keys.end(), names_of<StepPart>.begin(), names_of<StepPart>.end());
    const JsonObject object(place, keys);
    GateRun run{.file = read_name(object.at("file"))};
    for (const StepPart part : every<StepPart>) {
        object.read_optional(name_of(part), run.part(part), read_times,
                             part == StepPart::step ? step_range : part_range);
    }
    static_cast<void>(object.at(name_of(StepPart::step)));  // required
    object.read_optional("buckets", run.buckets, [](const JsonPlace& list) {
        return transformed(read_array(list, most_buckets), read_bucket);
    });
    object.read_optional("gradients", run.gradients, [](const JsonPlace& list) {
        return transformed(read_array(list, most_buckets), read_gradient);
    });
    object.read_optional("collectives_wait", run.collectives_wait, read_boolean);
    return run;
}

GateCase read_case(const JsonPlace& place) {
    const JsonObject object(place, {"name", "source", "runs"});
    return {.name = read_name(object.at("name")),
            .source = read_choice(object.at("source"), every<GateSource>),
            .runs = transformed(read_array(object.at("runs"), most_runs), read_run)};
}

// Names of files and parameters may be anything; a baseline holds no control characters.
std::string written_name(const std::string& name) {
    return cut_text(name, longest_name);
}

Json bucket_json(const GateBucket& bucket) {
    Json json{{"bytes", bucket.bytes.count}};
    add_unless_empty(json, "last_gradient", written_name(bucket.last_gradient));
    add_unless_empty(json, "ready_ms", bucket.ready_ms);
    add_unless_empty(json, "collective_ms", bucket.collective_ms);
    return json;
}

Json run_json(const GateRun& run) {
    Json json{{"file", written_name(run.file)}};
    for (const StepPart part : every<StepPart>) {
        add_unless_empty(json, name_of(part), run.part(part));
    }
    add_unless_empty(json, "buckets", json_list(run.buckets, bucket_json));
    add_unless_empty(
        json, "gradients", json_list(run.gradients, [](const GateGradient& gradient) {
            return Json{{"name", written_name(gradient.name)}, {"ready_ms", gradient.ready_ms}};
        }));
    add_if(run.collectives_wait, json, "collectives_wait", true);
    return json;
}

}  // namespace

Json baseline_json(const std::vector<GateCase>& cases) {
    return {{"format", baseline_format}, {"cases", json_list(cases, [](const GateCase& one) {
                                              return Json{{"name", one.name},
                                                          {"source", name_of(one.source)},
                                                          {"runs", json_list(one.runs, run_json)}};
                                          })}};
}

std::vector<GateCase> read_baseline(const Json& document, const std::string& file) {
    const JsonObject object({&document, file, ""}, {"format", "cases"});
    const JsonPlace format = object.at("format");
    if (*format.value != baseline_format) {
        format.fail(fmt::format("{}, the format of baselines that is read", baseline_format));
    }
    std::vector<GateCase> cases;
    std::set<std::pair<GateSource, std::string>> names;
    for (const JsonPlace& place : read_array(object.at("cases"), most_cases)) {
        cases.push_back(read_case(place));
        if (!names.emplace(cases.back().source, cases.back().name).second) {
            JsonObject(place, {"name", "source", "runs"})
                .at("name")
                .fail("a name that no other case of its source has");
        }
    }
    return cases;
}

}  // namespace bucketwise
