// bucketwise check TRACE|SCENARIO...: a gate for CI. Are steps as fast as they were, and as they
// have to be?
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "calibrate/gate/baseline.h"
#include "calibrate/gate/gate.h"
#include "cli/check_report.h"
#include "cli/checked_cases.h"
#include "cli/commands.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/read_files.h"
#include "cli/shell/scenario_document.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/base/names.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

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

Traces of PyTorch's profiler or of Nsight Systems (several: more steps, and how much runs differ), measurements of
bucketwise measure, and scenarios, of which the predicted step is checked. Exit codes: 0 held, 3 not held, 2 bad input.
A step that takes longer counts where it does so beyond chance, at the rate of --false-alarms, and by more than
--max-regression. --max-step and --max-exposed are compared with medians. What is printed says why, with the bucket.
)";

po::options_description check_options() {
    po::options_description options("options", 100);
    add_options(
        options,
        {{"baseline", "file that an earlier check wrote with --update-baseline, to compare with"},
         {"update-baseline", "write --baseline of what is given, instead of comparing with it",
          no_value},
         {"max-regression", "by which a step may take longer than in the baseline", "2%"},
         {"false-alarms",
          "in what share of checks of what has not changed a regression may be seen", "1%"},
         {"max-step", "longest step that is allowed, such as 120ms"},
         {"max-exposed", "largest share of a step that may wait for communication, such as 5%"},
         {"format", "text, markdown, junit or json", "text"},
         {"output,o", "file to write what was found to; - is standard output", "-"}});
    add_scenario_options(options);
    add_workload_options(options);
    add_options(options, {ranks_option, help_option});
    return options;
}

GateLimits requested_limits(const po::variables_map& values) {
    constexpr double shortest_s = 1e-6;
    constexpr double longest_s = 86400;
    constexpr double ms_in_s = 1000;
    GateLimits limits{.max_regression = share_value(values, "max-regression", {0, 10}),
                      .false_alarms = share_value(values, "false-alarms", {1e-6, 0.2})};
    if (values.count("max-exposed") != 0) {
        limits.max_exposed = share_value(values, "max-exposed", {0, 1});
    }
    if (values.count("max-step") != 0) {
        limits.max_step_ms = ms_in_s * seconds_value(values, "max-step", shortest_s, longest_s);
    }
    return limits;
}

// Empty: there is none to compare with.
std::vector<GateCase> requested_baseline(const po::variables_map& values) {
    const std::string file = text_or_empty(values, "baseline");
    if (values.count("update-baseline") != 0) {
        if (file.empty()) {
            throw UsageError{"--update-baseline: expected --baseline beside it, got none"};
        }
        return {};
    }
    return file.empty() ? std::vector<GateCase>{}
                        : read_baseline(parse_json(read_text_file(file), file), file);
}

// A gate that compares nothing would be held for ever.
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

}  // namespace

CommandHelp check_help() {
    return {.usage = {"bucketwise check TRACE|MEASUREMENTS|SCENARIO... [OPTIONS]"},
            .options = check_options(),
            .text = check_text,
            .arguments = scenarios(),
            .values = {{"format", one_of(every<CheckFormat>)}},
            .positional = {"inputs", -1},
            .required = {"inputs"},
            .wants = "traces, measurements or scenarios, got none"};
}

int run_check(const CommandLine& line) {
    const po::variables_map& values = line.values;
    const auto format = choice_value(values, "format", every<CheckFormat>);
    const GateLimits limits = requested_limits(values);
    const std::vector<GateCase> baseline = requested_baseline(values);
    const std::string file = text_or_empty(values, "baseline");
    const std::vector<GateCase> cases = cases_of_files(values, texts_value(values, "inputs"));
    GateVerdict verdict = check_cases(baseline, cases, limits);
    check_any_compared(baseline, verdict, file);
    std::vector<OutputText> outputs;
    if (values.count("update-baseline") != 0) {
        outputs.push_back({file, json_text(baseline_json(cases))});
        verdict.notes.push_back(fmt::format("the baseline {} now is of these steps", file));
    }
    outputs.push_back({text_value(values, "output"), report_in(format, verdict)});
    write_outputs(outputs);
    return verdict.is_held() ? exit_done : exit_not_held;
}

}  // namespace bucketwise
