// `bucketwise calibrate`, `compare` and `validate` as their users meet them.
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include "tests/cli/process.h"
#include "tests/cli/sharded_scenario_text.h"
#include "tests/trace_rules.h"

namespace bucketwise {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using Json = nlohmann::json;

Words bucketwise_words(const std::string& command, const Words& words) {
    return Words{BUCKETWISE_BINARY, command} + words;
}

// Means something to HTML, Markdown and matplotlib.
constexpr const char* hostile_name = R"(<script>alert(1)</script> | $x^2$ & "q")";

// A second or two: a step of a few milliseconds at three caps.
Words quick_validation(const TestFolder& own) {
    Json scenario = Json::parse(text_of_file(two_buckets));
    scenario["name"] = hostile_name;
    write_file(own.file("scenario.json"), scenario.dump());
    return bucketwise_words(
        "validate", {own.file("scenario.json"), "-o", own.file("v"), "--rounds", "3",
                     "--bucket-cap", "1MiB,3MiB", "--bytes", "4KiB,64KiB,512KiB,1MiB,2MiB,4MiB"});
}

Json json_in(const std::string& file) {
    return Json::parse(text_of_file(file));
}

void check_refused(const Words& words, const std::string& expected) {
    check_contains(check_fails(2, run(words)), {expected});
}

// One validation serves all that look at what it leaves.
const TestFolder& validated() {
    static const TestFolder folder;
    static const bool done = [] {
        check_ends_well(run(quick_validation(folder)));
        return true;
    }();
    REQUIRE(done);
    return folder;
}

// Sections, as each test case runs in a process of its own and would validate anew.
TEST_CASE("a validation, and what can be done with it") {
    SECTION("validate leaves everything that repeats it, and files that agree") {
        const std::string folder = validated().file("v");
        for (const char* name :
             {"measurements.jsonl", "link.json", "scenario.json", "fit.json", "prediction.json",
              "comparison.json", "trace.json", "report.md", "report.html"}) {
            CHECK(std::filesystem::file_size(std::filesystem::path(folder) / name) > 0);
        }
        check_trace_rules(json_in(folder + "/trace.json"));
        const Json comparison = json_in(folder + "/comparison.json");
        // The default, the two caps asked for, and the scenario's own 25 MiB.
        CHECK(comparison["points"].size() == 4);
        for (const char* key : {"mape", "max_error", "rank_correlation", "regret", "noise_floor"}) {
            CHECK(comparison[key].is_number());
        }
        // The calibrated scenario predicts what the comparison says.
        const std::string predicted = check_ends_well(
            run(bucketwise_words("predict", {folder + "/scenario.json", "--bucket-cap",
                                             "1MiB,3MiB,25MiB", "--json", "-"})));
        const Json prediction = Json::parse(predicted);
        for (const Json& point : comparison["points"]) {
            if (point["is_default"]) {
                CHECK(point["predicted_step_ms"] == prediction["default"]["step_ms"]);
                continue;
            }
            for (const Json& row : prediction["sweep"]) {
                if (row["bucket_cap_mib"] == point["bucket_cap_mib"]) {
                    CHECK(point["predicted_step_ms"] == row["step_ms"]);
                }
            }
        }
    }

    SECTION("the HTML report stands alone, with its pictures or the reason why there are none") {
        const std::string folder = validated().file("v");
        const std::string html = text_of_file(folder + "/report.html");
        for (const char* fetches :
             {"src=", "<script", "<link", "@import", "url(http", "<!DOCTYPE svg"}) {
            CHECK(html.find(fetches) == std::string::npos);
        }
        const bool drawn = std::filesystem::exists(folder + "/step_time.svg");
        CHECK((html.find("<svg") != std::string::npos) == drawn);
        CHECK((html.find("there are no pictures") == std::string::npos) == drawn);
    }

    SECTION("nothing that is sent on names a folder of the machine it was made on") {
        const std::filesystem::path folder = validated().file("v");
        for (const auto& entry : std::filesystem::directory_iterator(folder)) {
            INFO(entry.path());
            CHECK(text_of_file(entry.path()).find(validated().path()) == std::string::npos);
        }
        CHECK_THAT(text_of_file(folder / "report.md"),
                   Contains("\nbucketwise measure scenario.json -o measurements.jsonl --rounds 3"));
    }

    SECTION("both reports begin with the verdict, and show the scenario's name as it is") {
        const std::string folder = validated().file("v");
        const std::string html = text_of_file(folder + "/report.html");
        const std::string markdown = text_of_file(folder + "/report.md");
        const std::string verdict = json_in(folder + "/comparison.json")["verdict"]["text"];
        check_contains(html, {"<h1>" + verdict + "</h1>",
                              "&lt;script&gt;alert(1)&lt;/script&gt; | $x^2$ &amp; "});
        CHECK(markdown.starts_with("# " + verdict));
        CHECK_THAT(markdown, Contains(R"(\<script\>alert(1)\</script\> \| \$x^2\$ \& "q": ddp)"));
    }

    SECTION("calibrate and compare, one by one, say what validate said") {
        const std::string folder = validated().file("v");
        const TestFolder own;
        REQUIRE(run(bucketwise_words("calibrate",
                                     {folder + "/measurements.jsonl", "-o", own.file("link.json"),
                                      "--scenario-output", own.file("scenario.json"), "--fit",
                                      own.file("fit.json")}))
                    .exit_code == 0);
        CHECK(json_in(own.file("scenario.json")) == json_in(folder + "/scenario.json"));
        CHECK(json_in(own.file("fit.json")) == json_in(folder + "/fit.json"));
        REQUIRE(run(bucketwise_words("compare", {own.file("scenario.json"), "--measurements",
                                                 folder + "/measurements.jsonl", "-o",
                                                 own.file("comparison.json")}))
                    .exit_code == 0);
        Json own_comparison = json_in(own.file("comparison.json"));
        CHECK(own_comparison == json_in(folder + "/comparison.json"));
        // The contract of the two: any scenario, a link, measurements.
        const std::string outcome = check_ends_well(run(bucketwise_words(
            "compare", {two_buckets, "--link", own.file("link.json"), "--measurements",
                        folder + "/measurements.jsonl", "-o", "-"})));
        CHECK(Json::parse(outcome)["points"].size() == 4);
    }

    SECTION("a folder that holds files is only gone on with when asked") {
        const std::string folder = validated().file("v");
        check_refused(quick_validation(validated()), "expected a new or empty folder, or --resume");
        const std::string before = text_of_file(folder + "/measurements.jsonl");
        const std::string comparison = text_of_file(folder + "/comparison.json");
        check_ends_well(run(quick_validation(validated()) + Words{"--resume"}));
        // Nothing was left to measure but that it was resumed.
        CHECK_THAT(text_of_file(folder + "/measurements.jsonl"), Contains(before));
        CHECK(json_in(folder + "/comparison.json")["points"] == Json::parse(comparison)["points"]);
    }

    SECTION("a truncated last line costs one sample and a note") {
        const std::string text = text_of_file(validated().file("v") + "/measurements.jsonl");
        const TestFolder own;
        write_file(own.file("torn.jsonl"), text.substr(0, text.size() - 100));
        const std::string outcome = check_ends_well(run(
            bucketwise_words("calibrate", {own.file("torn.jsonl"), "-o", own.file("link.json")})));
        CHECK_THAT(outcome, Contains("the last line has no end"));
    }

    SECTION("damaged and mixed measurements are refused by their line, and nothing is written") {
        const std::string text = text_of_file(validated().file("v") + "/measurements.jsonl");
        const TestFolder own;
        const std::string file = own.file("m.jsonl");
        const Words calibrate = bucketwise_words("calibrate", {file, "-o", own.file("link.json")});
        const auto refused = [&](const std::string& content, const std::string& expected) {
            write_file(file, content);
            check_refused(calibrate, expected);
            CHECK_FALSE(std::filesystem::exists(own.file("link.json")));
        };
        const std::size_t second = text.find('\n') + 1;
        refused("", "expected measurement records, got none");
        refused(text.substr(0, second) + "{\"kind\": \"step\"}\n" + text.substr(second),
                "m.jsonl:2");
        refused(text.substr(0, second) + "no JSON\n" + text.substr(second), "m.jsonl:2");
        // Another run's records below.
        std::string other = text;
        for (std::size_t at = other.find("\"ranks\":2"); at != std::string::npos;
             at = other.find("\"ranks\":2", at + 1)) {
            other.replace(at, 9, "\"ranks\":4");
        }
        refused(text + other, "expected records of one run");
        // An environment alone has nothing to fit.
        refused(text.substr(0, second), "expected all-reduces of at least two sizes");
    }
}

std::int64_t records_of(const std::string& file, const std::string& kind) {
    const std::string text = text_of_file(file);
    const std::string wanted = "\"kind\":\"" + kind + "\"";
    std::int64_t count = 0;
    for (std::size_t at = text.find(wanted); at != std::string::npos;
         at = text.find(wanted, at + 1)) {
        ++count;
    }
    return count;
}

// A machine may be too slow for a limit of time, which a note says.
std::string check_ends_in_time(Outcome outcome) {
    std::istringstream notes(outcome.errors);
    for (std::string note; std::getline(notes, note);) {
        CHECK_THAT(note, StartsWith("bucketwise: the time is too short to choose by: ") ||
                             StartsWith("bucketwise: --time "));
    }
    outcome.errors.clear();
    return check_ends_well(outcome);
}

TEST_CASE("where the time is too short to choose by, a note says so, and which might do") {
    const TestFolder own;
    // At least six rounds of the default and three other caps, of 0.3 s and 0.3 s each.
    const Outcome outcome = run(bucketwise_words(
        "validate", {two_buckets, "--set", "/workload/backward_ms=300", "--bucket-cap",
                     "1MiB,2MiB,3MiB", "-o", own.file("v"), "--time", "2s"}));
    check_ends_in_time(outcome);
    CHECK_THAT(outcome.errors,
               Contains("the time is too short to choose by: to measure one step") &&
                   Contains("\nbucketwise: --time ") &&
                   Contains(" might do, or a smaller batch or model\n"));
    CHECK_FALSE(json_in(own.file("v/comparison.json"))["points"].empty());
}

TEST_CASE("a validation with a limit of time ends by itself, and another one goes on with it") {
    const TestFolder own;
    const std::string folder = own.file("v");
    const Words words{two_buckets, "-o", folder};
    const std::string first =
        check_ends_in_time(run(bucketwise_words("validate", words + Words{"--time", "3s"})));
    const Json comparison = json_in(folder + "/comparison.json");
    CHECK(comparison["format"] == 2);
    CHECK(first.find('\n') > 20);
    std::string text = comparison["verdict"]["text"];
    CHECK(first.substr(0, 15) == text.substr(0, 15));
    CHECK(text_of_file(folder + "/report.md").find("bucketwise measure") != std::string::npos);
    const std::string file = folder + "/measurements.jsonl";
    const std::string measured = text_of_file(file);
    // The default is a step of every round.
    CHECK(records_of(file, "step") > 0);
    CHECK(records_of(file, "compute") > 0);
    check_ends_well(run(bucketwise_words("validate", words + Words{"--time", "2s", "--resume"})));
    CHECK_THAT(text_of_file(file), StartsWith(measured));
    CHECK(text_of_file(file).size() > measured.size());
}

// Each setting of a comparison once, by name, and what every comparison says.
std::set<std::string> check_sharded_comparison(const Json& comparison,
                                               const std::string& strategy) {
    CHECK(comparison["strategy"] == strategy);
    for (const char* key : {"mape", "max_error", "rank_correlation", "regret", "noise_floor"}) {
        CHECK(comparison[key].is_number());
    }
    CHECK(comparison["verdict"]["decision"].is_string());
    std::set<std::string> names;
    std::int64_t defaults = 0;
    for (const Json& point : comparison["points"]) {
        CHECK(names.insert(point["setting"]).second);
        CHECK(point["sharding"].is_object());
        defaults += point["is_default"] == true ? 1 : 0;
    }
    CHECK(defaults == 1);
    return names;
}

TEST_CASE("a step that shards is validated as any other, with settings in place of caps") {
    const TestFolder own;
    write_file(own.file("scenario.json"), sharded_scenario_text);
    SECTION("in rounds of all settings, which are compared again from their file") {
        check_ends_well(run(bucketwise_words(
            "validate", {own.file("scenario.json"), "-o", own.file("v"), "--rounds", "3",
                         "--sharding", "2,all/keep", "--bytes", "4KiB,64KiB,1MiB"})));
        const Json comparison = json_in(own.file("v/comparison.json"));
        CHECK(
            check_sharded_comparison(comparison, "fsdp") ==
            std::set<std::string>{"each layer, async", "2 layers, async", "3 layers, kept, async"});
        CHECK(comparison["verdict"]["regret_95"].size() == 2);
        check_trace_rules(json_in(own.file("v/trace.json")));
        const std::string report = text_of_file(own.file("v/report.md"));
        CHECK_THAT(report, Contains("Every setting that was measured") &&
                               Contains("| 3 layers, kept, async |"));
        check_ends_well(run(bucketwise_words(
            "compare", {own.file("v/scenario.json"), "--measurements",
                        own.file("v/measurements.jsonl"), "-o", own.file("again.json")})));
        CHECK(json_in(own.file("again.json")) == comparison);
    }
    SECTION("in a limited time, in which the advised setting joins, and another run goes on") {
        const Words words{own.file("scenario.json"), "-o", own.file("v"), "--bytes",
                          "4KiB,64KiB,1MiB"};
        check_ends_in_time(run(bucketwise_words("validate", words + Words{"--time", "4s"})));
        const Json comparison = json_in(own.file("v/comparison.json"));
        CHECK(check_sharded_comparison(comparison, "fsdp").contains("each layer, async"));
        const std::string measured = text_of_file(own.file("v/measurements.jsonl"));
        check_ends_well(
            run(bucketwise_words("validate", words + Words{"--time", "2s", "--resume"})));
        CHECK_THAT(text_of_file(own.file("v/measurements.jsonl")), StartsWith(measured));
    }
    SECTION("not from collectives of one size") {
        check_refused(bucketwise_words("validate", {own.file("scenario.json"), "-o", own.file("v"),
                                                    "--bytes", "4KiB"}),
                      "expected all-gathers or reduce-scatters of at least two sizes");
    }
    SECTION("with replicas, and with stage 3") {
        for (const auto& [strategy, options] : std::map<std::string, Words>{
                 {"hsdp",
                  {"--ranks", "4", "--set",
                   R"(/sync={"strategy": "hsdp", "sharding": {"shard_ranks": 2}})"}},
                 {"zero3",
                  {"--set",
                   R"(/sync={"strategy": "zero3", "sharding": {)"
                   R"("param_persistence_threshold": 30, "prefetch_bucket_size": 0}})"}}}) {
            INFO(strategy);
            check_ends_well(run(bucketwise_words(
                "validate", Words{own.file("scenario.json"), "-o", own.file(strategy), "--rounds",
                                  "2", "--bytes", "4KiB,64KiB,1MiB"} +
                                options)));
            check_sharded_comparison(json_in(own.file(strategy) + "/comparison.json"), strategy);
        }
    }
}

TEST_CASE("who interrupts a validation gets a report of what was measured") {
    const TestFolder own;
    const std::string file = own.file("v") + "/measurements.jsonl";
    Process process(
        bucketwise_words("validate", {two_buckets, "-o", own.file("v"), "--rounds", "100000",
                                      "--bucket-cap", "1MiB", "--bytes", "4KiB,1MiB,4MiB"}));
    // Two rounds of everything: the default, 1 MiB and the scenario's own cap.
    REQUIRE(wait_until([&] { return records_of(file, "step") >= 6 || process.has_ended(); }));
    process.send(SIGINT);
    CHECK(process.wait() == 0);
    CHECK_THAT(process.output(), Contains("judged by what was measured until then"));
    CHECK(std::filesystem::exists(own.file("v") + "/report.html"));
    CHECK(process.errors().empty());
}

// --- folders that an earlier run has left ---

// A script that takes the place of python3.
class OtherPython {
  public:
    explicit OtherPython(const std::string& script) {
        write_file(folder_.file("python3"), "#!/bin/sh\n" + script);
        std::filesystem::permissions(folder_.file("python3"), std::filesystem::perms::owner_all);
    }
    [[nodiscard]] Surroundings surroundings() const {
        return {
            .variables = {{"PATH", folder_.path() + ":/usr/bin:/bin"}, {"FOLDER", folder_.path()}}};
    }
    [[nodiscard]] std::string file(const std::string& name) const { return folder_.file(name); }

  private:
    TestFolder folder_;
};

// A validation of one round.
Words short_validation(const std::string& folder) {
    return bucketwise_words("validate", {two_buckets, "-o", folder, "--rounds", "1", "--bucket-cap",
                                         "1MiB", "--bytes", "4KiB,1MiB,4MiB"});
}

TEST_CASE("a validation that fails before its first record leaves its folder as it was") {
    const TestFolder own;
    const std::string folder = own.file("v");
    const Surroundings nowhere{.variables = {{"TMPDIR", own.file("none")}}};
    CHECK(run(short_validation(folder), nowhere).exit_code == 2);
    CHECK_FALSE(std::filesystem::exists(folder));
    std::filesystem::create_directory(folder);
    CHECK(run(short_validation(folder), nowhere).exit_code == 2);
    CHECK(std::filesystem::is_empty(folder));
}

TEST_CASE("a folder with an empty file of measurements is begun with, asked to resume or not") {
    const OtherPython drawing("exit 0\n");
    for (const Words& options : {Words{}, Words{"--resume"}}) {
        const TestFolder own;
        write_file(own.file("measurements.jsonl"), "");
        check_ends_well(run(short_validation(own.path()) + options, drawing.surroundings()));
        CHECK(records_of(own.file("measurements.jsonl"), "step") > 0);
        CHECK(std::filesystem::exists(own.file("report.html")));
    }
}

// --- pictures ---

TEST_CASE("who ends a validation while it draws ends Python, too") {
    const auto [signal, exit_code] =
        GENERATE(table<int, int>({{SIGTERM, 1}, {SIGKILL, 128 + SIGKILL}}));
    INFO("signal " << signal);
    const TestFolder own;
    const OtherPython slow(R"(cd "$FOLDER" && echo $$ > new && mv new number && exec sleep 1000)");
    Process process(short_validation(own.file("v")), slow.surroundings());
    REQUIRE(wait_until(
        [&] { return std::filesystem::exists(slow.file("number")) || process.has_ended(); }));
    INFO(process.errors());
    REQUIRE_FALSE(process.has_ended());
    const ::pid_t number = std::stoi(text_of_file(slow.file("number")));
    const std::optional<ProcessState> state = state_of(number);
    REQUIRE(state);
    const ProcessId python{number, state->start};
    process.send(signal);
    CHECK(process.wait() == exit_code);
    if (signal != SIGKILL) {  // it was waited for
        CHECK_FALSE(is_alive(python));
        check_one_line(process.errors());
        CHECK_THAT(process.errors(), Contains("interrupted by signal " + std::to_string(signal)) &&
                                         Contains("while pictures were drawn"));
    }
    CHECK(wait_until([&] { return !is_alive(python); }));
}

TEST_CASE("without new pictures the old ones stay, and the report shows none of them") {
    const TestFolder own;
    const OtherPython drawing("echo '<svg>old</svg>' > \"$2/accuracy.svg\"\n");
    REQUIRE(run(short_validation(own.file("v")), drawing.surroundings()).exit_code == 0);
    CHECK_THAT(text_of_file(own.file("v") + "/report.html"), Contains("<svg>old</svg>"));
    check_ends_well(run(short_validation(own.file("v")) + Words{"--resume"},
                        {.variables = {{"PYTHONHOME", own.file("none")}}}));
    CHECK(text_of_file(own.file("v") + "/accuracy.svg") == "<svg>old</svg>\n");
    const std::string html = text_of_file(own.file("v") + "/report.html");
    CHECK_THAT(html, !Contains("<svg>old</svg>"));
    CHECK_THAT(html, Contains("there are no pictures: ") &&
                         Contains("those in the folder are of an earlier run"));
}

TEST_CASE("a time that is none is refused") {
    const TestFolder own;
    for (const char* time : {"0s", "2", "soon", "-3s", "1e9h", ""}) {
        check_refused(
            bucketwise_words("validate", {two_buckets, "-o", own.file("v"), "--time", time}),
            "--time: expected a time of 1 s to 168 h");
    }
    CHECK_FALSE(std::filesystem::exists(own.file("v")));
}

TEST_CASE("wrong use of calibrate, compare and validate ends with 2 and one line") {
    const TestFolder own;
    const std::string link = own.file("link.json");
    check_refused(bucketwise_words("calibrate", {}), "expected measurement files");
    check_refused(bucketwise_words("calibrate", {"m.jsonl"}), "expected measurement files");
    check_refused(bucketwise_words("calibrate", {"none.jsonl", "-o", link}), "none.jsonl");
    check_refused(bucketwise_words("calibrate", {"--steps", "s.csv", "-o", link}),
                  "expected a --scenario for each --steps");
    check_refused(bucketwise_words("compare", {two_buckets}), "--measurements");
    check_refused(bucketwise_words("compare", {two_buckets, "--measurements", two_buckets}),
                  two_buckets);
    check_refused(bucketwise_words("validate", {two_buckets}), "expected -o and a folder");
    check_refused(bucketwise_words("validate", {"none.json", "-o", own.file("v")}), "none.json");
    CHECK_FALSE(std::filesystem::exists(own.file("v")));
    check_refused(bucketwise_words("validate", {two_buckets, "-o", own.file("none/v")}),
                  "expected a folder that can be made");
    check_refused(bucketwise_words("validate", {two_buckets, "-o", own.file("v"), "--no-such"}),
                  "no-such");
    for (const char* command : {"calibrate", "compare", "validate"}) {
        const std::string help = check_ends_well(run(bucketwise_words(command, {"--help"})));
        CHECK_THAT(help, Contains("examples:"));
    }
}

TEST_CASE("a machine is fitted to published steps from the command line") {
    const TestFolder own;
    write_file(own.file("steps.csv"),
               "bucket_cap_mib,backward_ms\n12,483.565\n36,505.944\n60,532.847\n108,572.485\n");
    const std::string scenario = std::string(BUCKETWISE_SCENARIO_DIR) + "/compare_ddp_async.json";
    const std::string outcome = check_ends_well(run(bucketwise_words(
        "calibrate", {"--steps", own.file("steps.csv"), "--scenario", scenario, "-o",
                      own.file("link.json"), "--scenario-output", own.file("fitted.json")})));
    CHECK_THAT(outcome, Contains("latency_us is not identifiable"));
    const std::string predicted = check_ends_well(
        run(bucketwise_words("predict", {own.file("fitted.json"), "--bucket-cap", "36MiB", "--link",
                                         own.file("link.json"), "--json", "-"})));
    const double backward = Json::parse(predicted)["sweep"][0]["backward_ms"];
    CHECK(std::abs(backward / 505.944 - 1) < 0.01);
}

}  // namespace
}  // namespace bucketwise
