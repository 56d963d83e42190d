// The gate as CI meets it: files in, exit code and report out.
#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/cli/process.h"
#include "tests/import/replay/written_trace.h"

namespace bucketwise {
namespace {

using Document = nlohmann::json;

const std::string traces = std::string(BUCKETWISE_TEST_DATA_DIR) + "/traces/";

Outcome check(const TestFolder& folder, const Words& arguments) {
    return run(Words{BUCKETWISE_BINARY, "check"} + arguments, {.folder = folder.path()});
}

// The smallest scenario, with a longer forward.
std::string slower_scenario() {
    Document document = Document::parse(text_of_file(two_buckets));
    document["workload"]["forward_ms"] = 2.0;
    return document.dump();
}

TEST_CASE("a scenario that is slower than its baseline is not held, and that says why", "[check]") {
    const TestFolder folder;
    check_ends_well(check(folder, {two_buckets, "--baseline", "b.json", "--update-baseline"}));
    CHECK(check(folder, {two_buckets, "--baseline", "b.json"}).exit_code == 0);
    write_file(folder.file("slower.json"), slower_scenario());
    const Outcome slower = check(folder, {"slower.json", "--baseline", "b.json"});
    CHECK(slower.exit_code == 3);
    CHECK(slower.errors.empty());
    CHECK(slower.output.find("Not held: ") == 0);
    CHECK(slower.output.find("omputing takes longer: 4.00 to 5.00 ms a step") != std::string::npos);
    const Document found = Document::parse(
        check(folder, {"slower.json", "--baseline", "b.json", "--format", "json"}).output);
    CHECK(found["held"] == false);
    CHECK(found["cases"][0]["causes"][0]["kind"] == "more_computing");
    // The limit is what one says it is.
    CHECK(
        check(folder, {"slower.json", "--baseline", "b.json", "--max-regression=50%"}).exit_code ==
        0);
}

TEST_CASE("a slower link is told of predictions by its collectives", "[check]") {
    const TestFolder folder;
    check(folder, {two_buckets, "--baseline", "b.json", "--update-baseline"});
    const Outcome slower =
        check(folder, {two_buckets, "--baseline", "b.json", "--format", "json", "--set",
                       "/cluster/link/segments/1/bandwidth_gb_per_s=0.5"});
    CHECK(slower.exit_code == 3);
    const Document found = Document::parse(slower.output);
    CHECK(found["cases"][0]["causes"][0]["kind"] == "slower_link");
}

TEST_CASE("limits need no baseline", "[check]") {
    const TestFolder folder;
    // A step of 5.345728 ms waits 1.345728 for communication: 25 %.
    CHECK(check(folder, {two_buckets, "--max-step", "5.4ms", "--max-exposed", "26%"}).exit_code ==
          0);
    CHECK(check(folder, {two_buckets, "--max-step", "5.3ms"}).exit_code == 3);
    CHECK(check(folder, {two_buckets, "--max-exposed", "25%"}).exit_code == 3);
}

TEST_CASE("traces, measurements and models are checked together", "[check]") {
    const TestFolder folder;
    const std::string trace = traces + "ddp.json.gz";
    const std::string measured =
        BUCKETWISE_TEST_DATA_DIR "/validation/resnet_300mbit_1/measurements.jsonl";
    const Words inputs{trace, measured, "resnet18"};
    CHECK(check(folder, inputs + Words{"--baseline", "b.json", "--update-baseline"}).exit_code ==
          0);
    const Document baseline = Document::parse(text_of_file(folder.file("b.json")));
    CHECK(baseline["format"] == 1);
    const Document& last = baseline["cases"].back();
    CHECK(last["name"] == "traced steps");
    CHECK(last["runs"][0]["step_ms"].size() == 3);
    CHECK(!last["runs"][0]["buckets"].empty());
    const std::string same = check_ends_well(check(folder, inputs + Words{"--baseline", "b.json"}));
    CHECK(same.find("too few steps") != std::string::npos);
    // Traces of one rank are several runs.
    const Document twice =
        Document::parse(check(folder, {trace, trace, "--format", "json"}).output);
    CHECK(twice["cases"][0]["runs"] == 2);
    CHECK(twice["cases"][0]["steps"] == 6);
}

// The first cause that is found for a trace of ten steps, after a change.
std::string cause_of(const TraceShape& before, const TraceShape& after) {
    const TestFolder folder;
    write_file(folder.file("before.json"), SyntheticTrace(before).document().dump());
    write_file(folder.file("after.json"), SyntheticTrace(after).document().dump());
    check(folder, {"before.json", "--baseline", "b.json", "--update-baseline"});
    const Outcome outcome =
        check(folder, {"after.json", "--baseline", "b.json", "--format", "json"});
    INFO(outcome.output);
    CHECK(outcome.exit_code == 3);
    const Document causes = Document::parse(outcome.output)["cases"][0]["causes"];
    REQUIRE(!causes.empty());
    return causes[0]["kind"];
}

TEST_CASE("what a change did to traced steps is told from the traces", "[check]") {
    TraceShape shape;
    shape.steps = 10;
    // As long as it takes to launch: half of the step is computing, and all-reduces stick out.
    shape.kernel_us = 50;
    shape.wire_us = 400;
    TraceShape slower_link = shape;
    slower_link.wire_us = 600;
    CHECK(cause_of(shape, slower_link) == "slower_link");
    TraceShape more_copies = shape;
    more_copies.copy_us = 60;
    CHECK(cause_of(shape, more_copies) == "more_copies");
    TraceShape launch_bound = shape;
    launch_bound.host_us = 150;
    CHECK(cause_of(shape, launch_bound) == "launch_bound");
    TraceShape more_computing = shape;
    more_computing.kernel_us = 150;
    CHECK(cause_of(shape, more_computing) == "more_computing");
}

TEST_CASE("reports for CI are what their readers take, whatever names hold", "[check]") {
    const TestFolder folder;
    Document document = Document::parse(text_of_file(two_buckets));
    document["name"] = "a <b> & \"c\" | *d*";
    write_file(folder.file("s.json"), document.dump());
    const Words late{"s.json", "--max-step", "1ms"};
    const Outcome junit = check(folder, late + Words{"--format", "junit"});
    CHECK(junit.exit_code == 3);
    CHECK(junit.output.find("name=\"a &lt;b&gt; &amp; &quot;c&quot; | *d*\"") != std::string::npos);
    CHECK(junit.output.find("failures=\"1\"") != std::string::npos);
    const Outcome markdown = check(folder, late + Words{"--format", "markdown"});
    CHECK(markdown.output.find(R"(| a \<b\> \& "c" \| \*d\* | 1 |)") != std::string::npos);
    // Nothing else goes to standard output.
    const Outcome file = check(folder, late + Words{"--format", "junit", "-o", "gate.xml"});
    CHECK(file.exit_code == 3);
    CHECK(file.output.empty());
    CHECK(text_of_file(folder.file("gate.xml")) == junit.output);
}

TEST_CASE("what is wrong is one sentence, and nothing is written", "[check]") {
    const TestFolder folder;
    write_file(folder.file("s.json"), text_of_file(two_buckets));
    write_file(folder.file("b.json"), "{\"format\": 1, \"cases\": [], \"more\": 1}");
    write_file(folder.file("other.json"),
               R"({"format": 1, "cases": [{"name": "x", "source": "trace",
                   "runs": [{"file": "x", "step_ms": [1]}]}]})");
    const auto refused = [&](const Words& arguments) {
        const Outcome outcome = check(folder, arguments);
        CHECK(outcome.exit_code == 2);
        CHECK(outcome.output.empty());
        check_one_line(outcome.errors);
        return outcome.errors;
    };
    CHECK(refused({"s.json", "--baseline", "b.json"}).find("b.json: /more: expected") !=
          std::string::npos);
    CHECK(refused({"s.json", "--baseline", "other.json"}).find("--update-baseline writes it") !=
          std::string::npos);
    write_file(folder.file("zero.json"), R"({"name": "z",
        "workload": {"forward_ms": 0, "backward_ms": 0,
                     "gradients": [{"name": "a", "numel": 1, "dtype": "float32", "ready_ms": 0}]},
        "cluster": {"ranks": 1, "link": "eth-1g"}, "sync": {"strategy": "none"}})");
    CHECK(refused({"zero.json"}).find("steps that take time") != std::string::npos);
    CHECK(refused({"s.json", "--update-baseline"}).find("expected --baseline") !=
          std::string::npos);
    CHECK(refused({"s.json", "--max-regression", "2"}).find("such as 2%") != std::string::npos);
    CHECK(refused({"s.json", "--false-alarms", "50%"}).find("--false-alarms") != std::string::npos);
    CHECK(refused({"s.json", "s.json"}).find("/name") != std::string::npos);
    refused({"none.json"});
    refused({});
    // An input is not written over, nor is the baseline where the report cannot be written.
    refused({"s.json", "--baseline", "s.json", "--update-baseline"});
    refused({"s.json", "-o", "s.json"});
    CHECK(text_of_file(folder.file("s.json")) == text_of_file(two_buckets));
}

}  // namespace
}  // namespace bucketwise
