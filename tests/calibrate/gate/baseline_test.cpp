#include "calibrate/gate/baseline.h"

#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "tests/catch.h"
#include "tests/schema_file.h"

namespace bucketwise {
namespace {

std::vector<GateCase> two_cases() {
    GateRun run{.file = "trace.json"};
    for (const StepPart part : every<StepPart>) {
        run.part(part) = {1.5, 2.5};
    }
    run.buckets = {
        {.bytes = Bytes{4}, .last_gradient = "w", .ready_ms = {-0.5, 1}, .collective_ms = {1, 2}}};
    run.gradients = {{"w", 0.75}};
    run.collectives_wait = true;
    GateRun least{.file = "x"};
    least.part(StepPart::step) = {1};
    return {{.name = "a", .source = GateSource::trace, .runs = {run, least}},
            {.name = "a", .source = GateSource::prediction, .runs = {least}}};
}

std::string baseline_schema() {
    return schema_text(schema_of(baseline_text()), "A baseline of bucketwise's gate");
}

TEST_CASE("the baseline's schema is what its tables of keys say", "[baseline]") {
    CHECK(scenario_file_text("baseline.schema.json") == baseline_schema());
}

TEST_CASE("the baseline's schema is written", "[.write]") {
    write_scenario_file("baseline.schema.json", baseline_schema());
}

TEST_CASE("a baseline is read as it was written", "[baseline]") {
    CHECK(read_baseline(baseline_json(two_cases()), "b.json") == two_cases());
}

TEST_CASE("names are written so that they can be read", "[baseline]") {
    std::vector<GateCase> cases = two_cases();
    cases[0].runs[0].file = "a\nb\x1b.json";
    cases[0].runs[0].gradients[0].name = std::string(5000, 'w');
    const std::vector<GateCase> read = read_baseline(baseline_json(cases), "b.json");
    CHECK(read[0].runs[0].file == "a b .json");
    CHECK(read[0].runs[0].gradients[0].name.size() == 1000);
}

TEST_CASE("what is wrong in a baseline is said with its place", "[baseline]") {
    const auto refused = [](const char* pointer, const Json& value) {
        Json document = baseline_json(two_cases());
        document[Json::json_pointer(pointer)] = value;
        try {
            read_baseline(document, "b.json");
        } catch (const InputError& error) {
            return std::string(error.what());
        }
        return std::string("taken");
    };
    CHECK(refused("/format", 2) ==
          "b.json: /format: expected 1, the format of baselines that is read, got 2");
    CHECK(refused("/cases/0/runs/0/step_mss", 1).find("/cases/0/runs/0/step_mss: ") !=
          std::string::npos);
    CHECK(refused("/cases/0/runs/0/step_ms/1", 0).find("/step_ms/1: ") != std::string::npos);
    CHECK(refused("/cases/0/runs/0/step_ms", Json::array()).find("/step_ms: ") !=
          std::string::npos);
    CHECK(refused("/cases/0/source", "trial").find("/source: ") != std::string::npos);
    CHECK(refused("/cases/1/source", "trace").find("/cases/1/name: ") != std::string::npos);
    Json without = baseline_json(two_cases());
    without["cases"][0]["runs"][0].erase("step_ms");
    CHECK_THROWS_AS(read_baseline(without, "b.json"), InputError);
}

}  // namespace
}  // namespace bucketwise
