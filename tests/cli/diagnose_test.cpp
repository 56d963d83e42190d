// A diagnosis as people meet it: traces in, text, page, numbers and exit code out.
#include <string>

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/cli/process.h"
#include "tests/import/replay/written_trace.h"

namespace bucketwise {
namespace {

Outcome diagnose(const TestFolder& folder, const Words& arguments) {
    return run(Words{BUCKETWISE_BINARY, "diagnose"} + arguments, {.folder = folder.path()});
}

// Traces of a sound step and of one that waits for data, and the scenario of the sound one.
void write_traces(const TestFolder& folder) {
    TraceShape shape;
    shape.steps = 12;
    shape.host_us = 20;
    shape.kernel_us = 800;
    shape.wire_us = 700;
    write_file(folder.file("sound.json"), SyntheticTrace(shape).document().dump());
    shape.idle_us = 9000;
    shape.loads_data = true;
    write_file(folder.file("slow.json"), SyntheticTrace(shape).document().dump());
    check_ends_well(
        run({BUCKETWISE_BINARY, "import", "kineto", "sound.json", "-o", "expected.json"},
            {.folder = folder.path()}));
}

TEST_CASE("a slow step is diagnosed against a sound one, as text, numbers, page and timeline",
          "[diagnose]") {
    const TestFolder folder;
    write_traces(folder);
    const Outcome slow =
        diagnose(folder, {"slow.json", "--expected", "expected.json", "--html", "page.html",
                          "--trace", "steps.json", "--json", "d.json"});
    check_ends_well(slow);
    CHECK(slow.output.starts_with("This step should take "));
    CHECK(slow.output.find("late_host: the host waits for data") != std::string::npos);
    const auto found = nlohmann::json::parse(text_of_file(folder.file("d.json")));
    CHECK(found["causes"][0]["cause"] == "late_host");
    CHECK(found["longer"] > 0.1);
    // The expected step is above the traced one.
    const std::string page = text_of_file(folder.file("page.html"));
    const std::size_t expected = page.find(">predicted: sound");
    const std::size_t mended = page.find("as it should be");
    const std::size_t traced = page.find(">traced: ProfilerStep#");
    CHECK(expected == std::string::npos);  // it is the slow trace's, mended
    CHECK(mended < traced);
    CHECK(traced < page.find("</svg>"));
    CHECK(page.find("host does nothing") < page.find("</svg>"));
    CHECK(page.find("the host waits for data") < page.find("<svg"));
    const auto steps = nlohmann::json::parse(text_of_file(folder.file("steps.json")));
    CHECK(steps["traceEvents"].size() > 20);
}

TEST_CASE("a diagnosis is a gate where one asks for it", "[diagnose]") {
    const TestFolder folder;
    write_traces(folder);
    const Words compared{"--expected", "expected.json", "--fail-above"};
    CHECK(diagnose(folder, Words{"slow.json"} + compared + Words{"10%"}).exit_code == 3);
    CHECK(diagnose(folder, Words{"slow.json"} + compared + Words{"60%"}).exit_code == 0);
    CHECK(diagnose(folder, Words{"sound.json"} + compared + Words{"10%"}).exit_code == 0);
}

TEST_CASE("what is no trace, no scenario or no link is refused by its name", "[diagnose]") {
    const TestFolder folder;
    write_traces(folder);
    const auto says = [&](const Words& arguments, const std::string& part) {
        const Outcome outcome = diagnose(folder, arguments);
        CAPTURE(outcome.errors);
        CHECK(outcome.exit_code == 2);
        CHECK(outcome.output.empty());
        CHECK(outcome.errors.find(part) != std::string::npos);
    };
    says({"expected.json"}, "expected.json: expected a trace");
    says({"missing.json"}, "missing.json");
    says({"slow.json", "--expected", "slow.json"}, "slow.json");
    says({"slow.json", "--link", "no-such-link"}, "no-such-link");
    says({"slow.json", "slow.json"}, "/distributedInfo/rank: expected another rank");
    says({"slow.json", "--fail-above", "x"}, "--fail-above");
    says({"slow.json", "--device", "A100"}, "--device has no effect without --expected");
    says({}, "traces, got none");
}

}  // namespace
}  // namespace bucketwise
