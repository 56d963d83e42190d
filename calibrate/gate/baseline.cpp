#include "calibrate/gate/baseline.h"

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

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

JsonType<std::string> name_text() {
    return as::text(longest_name);
}

JsonType<std::vector<double>> times(const NumberRange& range) {
    return as::list(as::number(range), most_steps);
}

// A bucket may be ready before the origin of its times.
constexpr NumberRange readiness{-longest_ms, longest_ms};

const JsonTable<GateBucket>& bucket_keys() {
    JsonType<Bytes> bytes = as::bytes();
    const JsonType<std::int64_t> count = as::integer(0, std::int64_t{1} << 50);
    bytes.schema = count.schema;
    bytes.read = [read = count.read](const JsonPlace& place) { return Bytes{read(place)}; };
    static const JsonTable<GateBucket> table{
        "bucket",
        "Gradients that travel together",
        {{"bytes", field(&GateBucket::bytes, bytes), "required",
          "that its collective sends; 0: not known"},
         {"last_gradient", field(&GateBucket::last_gradient, name_text()), "none",
          "the gradient that fills it"},
         {"ready_ms", field(&GateBucket::ready_ms, times(readiness)), "none",
          "by step: when it was ready, from the start of backward"},
         {"collective_ms", field(&GateBucket::collective_ms, times({0, longest_ms})), "none",
          "by step: what its collective took once its turn had come"}}};
    return table;
}

const JsonTable<GateGradient>& gradient_keys() {
    static const JsonTable<GateGradient> table{
        "gradient",
        "When a gradient was ready",
        {{"name", field(&GateGradient::name, name_text()), "required",
          "the parameter's name, or its number"},
         {"ready_ms", field(&GateGradient::ready_ms, as::number(readiness)), "required",
          "median, from the start of backward"}}};
    return table;
}

constexpr std::array<std::string_view, every<StepPart>.size()> part_meanings{
    "each step, in the order in which they ran", "by step: waiting for communication",
    "by step: computing, without copies",        "by step: copies into buckets and out of them",
    "by step: the device waits for launches",    "by step: waiting for other ranks or streams"};

const JsonTable<GateRun>& run_keys() {
    static const JsonTable<GateRun> table = [] {
        std::vector<JsonKey<GateRun>> keys{{"file", field(&GateRun::file, name_text()), "required",
                                            "that it was read from, without its folder"}};
        for (const StepPart part : every<StepPart>) {
            const bool whole = part == StepPart::step;
            keys.push_back({name_of(part),
                            field_in<GateRun>(
                                [part](auto& run) -> auto& { return run.part(part); },
                                times({0, longest_ms, whole})),
                            whole ? "required" : "none",
                            part_meanings[static_cast<std::size_t>(part)]});
        }
        keys.push_back({"buckets",
                        field(&GateRun::buckets, as::list(bucket_keys().type(), most_buckets)),
                        "none", "in launch order"});
        keys.push_back({"gradients",
                        field(&GateRun::gradients, as::list(gradient_keys().type(), most_buckets)),
                        "none", "by readiness"});
        keys.push_back({"collectives_wait", field(&GateRun::collectives_wait, as::boolean()),
                        "false", "collectives hold waiting for ranks that were not observed"});
        return JsonTable<GateRun>{"run", "One execution of a case", std::move(keys)};
    }();
    return table;
}

const JsonTable<GateCase>& case_keys() {
    static const JsonTable<GateCase> table{
        "case",
        "One thing that is trained",
        {{"name", field(&GateCase::name, name_text()), "required",
          "what was trained; told apart by this and its source"},
         {"source", field(&GateCase::source, as::one_of<GateSource>()), "required",
          "where its times are from"},
         {"runs", field(&GateCase::runs, as::list(run_keys().type(), most_runs)), "required",
          "executions of it"}}};
    return table;
}

using Cases = std::vector<GateCase>;

KeyUse<Cases> format_number() {
    KeyUse<Cases> use{JsonDescription{{{"const", baseline_format}}, "number"}};
    use.read = [](const JsonPlace& place, Cases& /*cases*/) {
        if (*place.value != baseline_format) {
            place.fail(fmt::format("{}, the format of baselines that is read", baseline_format));
        }
    };
    use.write = [](const Cases& /*cases*/, bool /*always*/) { return Json(baseline_format); };
    return use;
}

const JsonTable<Cases>& baseline_keys() {
    static const JsonTable<Cases> table{
        "baseline",
        "The file that `bucketwise check --update-baseline` writes. docs/check.md says how it is "
        "used",
        {{"format", format_number(), "required",
          "counts up when a key changes what it means or goes"},
         {"cases", field_in<Cases>(std::identity{}, as::list(case_keys().type(), most_cases)),
          "required", "subjects of the check"}}};
    return table;
}

}  // namespace

const ObjectText& baseline_text() {
    return baseline_keys().text();
}

Json baseline_json(const std::vector<GateCase>& cases) {
    return baseline_keys().write(cases);
}

std::vector<GateCase> read_baseline(const Json& document, const std::string& file) {
    std::vector<GateCase> cases = baseline_keys().read({&document, file, ""});
    std::set<std::pair<GateSource, std::string>> names;
    for (std::size_t i = 0; i < cases.size(); ++i) {
        if (!names.emplace(cases[i].source, cases[i].name).second) {
            const Json::json_pointer name(fmt::format("/cases/{}/name", i));
            JsonPlace{&document.at(name), file, name.to_string()}.fail(
                "a name that no other case of its source has");
        }
    }
    return cases;
}

}  // namespace bucketwise
