// bucketwise check TRACE|SCENARIO...: a gate for CI. Are steps as fast as before, and as required?
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/gate/baseline.h"
#include "calibrate/gate/gate.h"
#include "cli/check.h"
#include "cli/commands.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/read_files.h"
#include "cli/shell/scenario_document.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/base/names.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

enum class CheckFormat : std::uint8_t { text, markdown, junit, json };

}  // namespace

template <>
inline constexpr auto names_of<CheckFormat> = names("text", "markdown", "junit", "json");

namespace {

constexpr std::string_view check_text = R"(
examples:
  bucketwise check resnet50 --ranks 8 --max-exposed 5%
  bucketwise check trace.json --baseline baseline.json --update-baseline
  bucketwise check trace.json --baseline baseline.json --max-regression 3%
  bucketwise check measurements.jsonl --baseline measured.json --update-baseline --format junit -o gate.xml

Checks traces of PyTorch's profiler or of Nsight Systems (several traces: more steps, and the spread of runs),
measurements of bucketwise measure, and the predicted steps of scenarios. Exit codes: 0 held, 3 not held, 2 bad input.
A slower step is a regression where it is slower beyond chance, at the rate of --false-alarms, and by more than
--max-regression. --max-step and --max-exposed limit medians. The report names the cause and its bucket.
)";

struct CheckOptions {
    std::vector<std::string> inputs;
    std::string baseline;
    bool update_baseline = false;
    GateLimits limits;
    CheckFormat format = CheckFormat::text;
    std::string output = "-";
    ScenarioOptions scenario;
};

double read_step_ms(const std::string& text, const std::string& option) {
    constexpr double ms_in_s = 1000;
    return ms_in_s * TimeInSeconds{.least = 1e-6, .most = 86400}(text, option);
}

std::vector<OptionText> check_rows(CheckOptions& o) {
    return {
        {"baseline", "baseline to compare with, written by --update-baseline", o.baseline},
        {"update-baseline", "write --baseline from the inputs, instead of comparing",
         o.update_baseline},
        {"max-regression",
         "largest increase of a step over the baseline",
         {o.limits.max_regression, Percentage{{0, 10}}, "2%"}},
        {"false-alarms",
         "share of checks of unchanged steps that may report a regression",
         {o.limits.false_alarms, Percentage{{1e-6, 0.2}}, "1%"}},
        {"max-step", "longest step allowed, such as 120ms", {o.limits.max_step_ms, read_step_ms}},
        {"max-exposed",
         "largest share of a step spent waiting for communication, such as 5%",
         {o.limits.max_exposed, Percentage{{0, 1}}}},
        {"format", "text, markdown, junit or json", {o.format, Choice{every<CheckFormat>}, "text"}},
        {"output,o", "file to write the report to; - is standard output", o.output}};
}

// Empty: nothing to compare with.
std::vector<GateCase> requested_baseline(const CheckOptions& options) {
    const std::string& file = options.baseline;
    if (options.update_baseline && file.empty()) {
        throw UsageError{"--update-baseline: expected --baseline beside it, got none"};
    }
    return options.update_baseline || file.empty()
               ? std::vector<GateCase>{}
               : read_baseline(parse_json(read_text_file(file), file), file);
}

// A gate that compares nothing would always hold.
void check_any_compared(const std::vector<GateCase>& baseline, const GateVerdict& verdict,
                        const std::string& file) {
    const bool is_any = std::ranges::any_of(
        verdict.cases, [](const CheckedCase& one) { return one.change.has_value(); });
    if (!baseline.empty() && !is_any) {
        const auto name = [](const auto& one) {
            return fmt::format("\"{}\" ({})", one.name, name_of(one.source));
        };
        throw InputError(file, "/cases",
                         fmt::format("what is checked, {} (--update-baseline writes it anew)",
                                     fmt::join(transformed(verdict.cases, name), ", ")),
                         fmt::format("{}", fmt::join(transformed(baseline, name), ", ")));
    }
}

std::string report_in(CheckFormat format, const GateVerdict& verdict) {
    constexpr std::array reports{text_of, markdown_of, junit_of};
    return format == CheckFormat::json ? json_text(to_json(verdict))
                                       : reports[static_cast<std::size_t>(format)](verdict);
}

int run_check(const CheckOptions& options) {
    const std::vector<GateCase> baseline = requested_baseline(options);
    const std::vector<GateCase> cases = cases_of_files(options.scenario, options.inputs);
    GateVerdict verdict = check_cases(baseline, cases, options.limits);
    check_any_compared(baseline, verdict, options.baseline);
    for (const GateCase& one : cases) {
        verdict.misfit = verdict.misfit.empty() ? one.misfit : verdict.misfit;
    }
    std::vector<OutputText> outputs;
    if (options.update_baseline) {
        outputs.push_back({options.baseline, json_text(baseline_json(cases))});
        verdict.notes.push_back(
            fmt::format("the baseline {} now is of these steps", options.baseline));
    }
    outputs.push_back({options.output, report_in(options.format, verdict)});
    write_outputs(outputs);
    return verdict.is_held() ? exit_done : exit_not_held;
}

}  // namespace

CommandHelp check_help() {
    const auto o = std::make_shared<CheckOptions>();
    return {.usage = {"bucketwise check TRACE|MEASUREMENTS|SCENARIO... [OPTIONS]"},
            .options = options_of(check_rows(*o), simulated_rows(o->scenario)),
            .text = check_text,
            .arguments = scenarios(),
            .positional = {"inputs", -1, o->inputs},
            .required = {"inputs"},
            .wants = "traces, measurements or scenarios, got none",
            .run = [o](const CommandLine&) { return run_check(*o); }};
}

}  // namespace bucketwise
