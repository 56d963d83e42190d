// The reports of a validation, and foreign text in them, which means nothing to Markdown or HTML.
#include <fmt/format.h>

#include "cli/validation_report.h"
#include "tests/catch.h"
#include "tests/cli/process.h"
#include "tests/contains.h"

namespace bucketwise {
namespace {

using testing::contains;

constexpr const char* hostile = R"(<script>alert(1)</script> | $x^2$ & "q")";

SettingComparison point_at(std::int64_t mib, double predicted_ms, double measured_ms) {
    SettingComparison point;
    point.measured.cap = Bytes{mib << 20};
    point.measured.bucket_bytes = {Bytes{1 << 20}};
    point.measured.step_us = {measured_ms * 1e3, measured_ms * 1e3};
    point.samples = 2;
    point.predicted_ms = predicted_ms;
    point.measured_ms = measured_ms;
    point.measured_interval_ms.low = measured_ms - 1;
    point.measured_interval_ms.high = measured_ms + 1;
    return point;
}

// 4 MiB is advised and takes 100 ms, the default of 25 MiB takes 125.
ValidationReport made_up_report() {
    ValidationReport report;
    Comparison& c = report.comparison;
    c.scenario = "two caps";
    c.ranks = 2;
    c.machine = "a machine";
    c.points = {point_at(4, 101, 100), point_at(25, 126, 125)};
    c.points[1].measured.is_default = true;
    c.chosen = 0;
    c.fastest = 0;
    c.default_point = 1;
    c.decision.verdict = Verdict::held;
    c.decision.best = 0;
    c.decision.regret = SlowerBy{0, 0, 0.004};
    c.decision.gain = SlowerBy{0.2, 0.25, 0.3};
    c.mape = 0.009;
    c.max_error = 0.01;
    c.rank_correlation = 1;
    c.noise_floor = 0.01;
    c.gain_over_default = 0.25;
    c.what_if = {{"as it is", 101, 0}};
    report.prediction = "the prediction\n";
    report.commands = {"bucketwise measure"};
    return report;
}

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
    const std::size_t from = text.find(begin);
    REQUIRE(from != std::string::npos);
    return text.substr(from + begin.size(), text.find(end, from) - from - begin.size());
}

TEST_CASE("reports begin with the verdict, and three numbers follow before all else") {
    const ValidationReport report = made_up_report();
    const std::string verdict = verdict_text(report.comparison);
    const std::string html = html_report(report);
    CHECK(between(html, "<h1>", "</h1>") == verdict);
    CHECK(markdown_report(report).starts_with("# " + verdict + "\n"));
    // 25 % slower than what is advised: a fifth is saved, between 0.2 / 1.2 and 0.3 / 1.3.
    const std::string numbers = between(html, "<dl class=\"numbers\">", "</dl>");
    for (const char* expected : {"20 %", "17 to 23 % in 95 % of cases", "4 MiB instead of", "0.9 %",
                                 "1.0 % at most", "0.0 to 0.4 % slower", "held"}) {
        INFO(expected << " in " << numbers);
        CHECK(contains(numbers, expected));
        CHECK(contains(markdown_report(report), expected));
    }
    CHECK(html.find("<details>") > html.find("</dl>"));
}

TEST_CASE("a report says that nothing is saved where the default is advised") {
    ValidationReport report = made_up_report();
    Comparison& c = report.comparison;
    c.points[0].measured_ms = 130;
    c.chosen = c.fastest = c.decision.best = 1;
    c.decision.gain = SlowerBy{};
    CHECK(contains(html_report(report), "<dd class=\"value\">nothing</dd>"));
    CHECK(contains(markdown_report(report), "keep the default of 25 MiB"));
}

TEST_CASE("of a cap of which one step was measured no interval is claimed") {
    ValidationReport report = made_up_report();
    Comparison& c = report.comparison;
    CHECK(contains(comparison_report(c, false), "measured 100 ms (99.0 to 101)"));
    CHECK(contains(markdown_report(report), "| 99.0 to 101 |"));
    c.points[0].samples = 1;
    const std::string text = comparison_report(c, false);
    CHECK(contains(text, "measured 100 ms (one step)"));
    CHECK_FALSE(contains(text, "99.0 to 101"));
    CHECK(contains(text, "124 to 126"));
    CHECK(contains(markdown_report(report), "| one step |"));
}

TEST_CASE("the default is called that where it is the best measured") {
    ValidationReport report = made_up_report();
    Comparison& c = report.comparison;
    c.fastest = 1;
    c.regret = 0.02;
    CHECK(contains(comparison_report(c, false), "over the best measured (the default)"));
}

TEST_CASE("a report of one point has nothing to decide") {
    ValidationReport report = made_up_report();
    Comparison& c = report.comparison;
    c.points.resize(1);
    c.points[0].measured.cap.reset();
    c.default_point.reset();
    CHECK(contains(html_report(report), "there are no caps to choose from"));
    CHECK(contains(markdown_report(report), "nothing to decide"));
}

TEST_CASE("a report of a step that shards names its settings, the scenario's own among them") {
    ValidationReport report = made_up_report();
    Comparison& c = report.comparison;
    c.sharded = ShardedStrategy::fsdp;
    for (SettingComparison& point : c.points) {
        point.measured.cap.reset();
        point.measured.sharding = ShardingRequest{};
    }
    c.points[0].measured.sharding->reshard_after_forward = false;
    const std::string html = html_report(report);
    check_contains(html, {"<h1>Use a group for each layer, kept after forward: 17 to 23 % faster "
                          "than the scenario's setting, and at most 0.4 % slower than the best "
                          "measured.</h1>",
                          "each layer, kept instead of the scenario's setting, each layer;",
                          "two caps: fsdp, 2 ranks.", "Every setting that was measured"});
    CHECK(contains(markdown_report(report), "| each layer | 0 | 126 | 125 |"));
    CHECK_FALSE(contains(html, "bucket cap"));
}

TEST_CASE("a report without pictures is whole, and says in a note why there are none") {
    ValidationReport report = made_up_report();
    report.pictures = {{"step_time", "steps", ""}, {"timeline", "one step", ""}};
    report.comparison.notes = {"there are no pictures: no matplotlib"};
    const std::string html = html_report(report);
    CHECK_FALSE(contains(html, "<figure"));
    CHECK_FALSE(contains(html, "One step"));
    check_contains(html, {"What this rests on, and 1 note", "no matplotlib"});
    CHECK_FALSE(contains(markdown_report(report), "!["));
}

TEST_CASE("what files name is shown in reports as it stands there") {
    ValidationReport report = made_up_report();
    Comparison& c = report.comparison;
    c.scenario = c.machine = c.what_if[0].change = hostile;
    c.notes = c.reasons_to_withhold = {hostile};
    report.commands = {hostile};
    report.prediction = std::string(hostile) + "\n````\n";
    report.calibration.link.name = hostile;
    report.pictures = {{"step_time", hostile, "<?xml?><svg></svg>"}};
    const std::string html = html_report(report);
    CHECK_FALSE(contains(html, "<script"));
    CHECK_FALSE(contains(html, "\"q\""));
    CHECK(contains(html,
                   "aria-label=\"&lt;script&gt;alert(1)&lt;/script&gt; | $x^2$ &amp; "
                   "&quot;q&quot;\""));
    const std::string markdown = markdown_report(report);
    const std::string escaped = R"(\<script\>alert(1)\</script\> \| \$x^2\$ \& "q")";
    check_contains(markdown, {"![" + escaped + "](step_time.svg)",
                              escaped + ": ddp, 2 ranks. " + escaped + "\n",
                              "| " + escaped + " | 101 | 0.0 % | 4 MiB |\n"});
    // A fence that the text cannot end.
    CHECK(contains(markdown, fmt::format("`````\n{}\n````\n`````\n", hostile)));
}

TEST_CASE("a name with an end of line does not begin a line of a report") {
    ValidationReport report = made_up_report();
    report.comparison.scenario = "a\n# b\r\n- c";
    CHECK(contains(markdown_report(report), "\na \\# b  - c: ddp, 2 ranks."));
}

TEST_CASE("a name that begins as a list, a rule or code begins a line of text") {
    for (const auto& [name, shown] :
         std::vector<std::pair<std::string, std::string>>{{"- a", "\\- a"},
                                                          {"+ a", "\\+ a"},
                                                          {"1. a", "1\\. a"},
                                                          {"12) a", "12\\) a"},
                                                          {"--- a", "\\--- a"},
                                                          {"     a", "a"},
                                                          {"-1 a", "-1 a"},
                                                          {"2.5 a", "2.5 a"}}) {
        ValidationReport report = made_up_report();
        report.comparison.scenario = name;
        CHECK(contains(markdown_report(report), "\n\n" + shown + ": ddp, 2 ranks."));
    }
}

TEST_CASE("nothing in a report steers the terminal it is shown on, or hides what is written") {
    // U+009B begins a command to a terminal, U+202E turns round what follows.
    const std::string hidden = "a\x1b[31m\xc2\x9b\xe2\x80\xaez";
    ValidationReport report = made_up_report();
    Comparison& c = report.comparison;
    c.scenario = c.machine = c.what_if[0].change = hidden;
    c.notes = {hidden};
    report.commands = {hidden};
    report.prediction = hidden;
    for (const std::string& text : {markdown_report(report), html_report(report)}) {
        for (const char* raw : {"\x1b", "\xc2\x9b", "\xe2\x80\xae"}) {
            CHECK_FALSE(contains(text, raw));
        }
        CHECK(contains(text, R"(a\u001b[31m\u009b\u202ez)"));
    }
}

TEST_CASE("a megabyte of name takes a line of a report, not the report") {
    ValidationReport report = made_up_report();
    report.comparison.notes = {std::string(1 << 20, 'x')};
    CHECK(markdown_report(report).size() < 10'000);
}

}  // namespace
}  // namespace bucketwise
