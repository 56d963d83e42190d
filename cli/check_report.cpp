#include "cli/check.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/shell/result_table.h"
#include "sim/base/json_output.h"
#include "sim/report/number_text.h"
#include "sim/text/foreign_text.h"
#include "sim/text/marked_up.h"

namespace bucketwise {
namespace {

constexpr std::size_t longest_shown = 200;

// Counts up when a key changes what it means or goes.
constexpr int check_format = 1;

// "5.3 % slower (95 %: 4.1 to 6.6 %)".
std::string change_text(const GateChange& change) {
    constexpr double noticeable = 0.0005;
    if (std::abs(change.slower) < noticeable && change.low == change.high) {
        return "as before";
    }
    const bool is_faster = change.slower < 0;
    const double low = is_faster ? -change.high : change.low;
    const double high = is_faster ? -change.low : change.high;
    return fmt::format(
        "{} {}{}", percent_text(is_faster ? -change.slower : change.slower),
        is_faster ? "faster" : "slower",
        low == high ? "" : fmt::format(" (95 %: {})", percent_range_text(low, high)));
}

std::string said_of(const CheckedCase& one) {
    if (!one.broken.empty()) {
        return "not held";
    }
    if (one.change && !one.change->can_be_told) {
        return "cannot be told";
    }
    return one.change && one.change->is_faster ? "held, faster" : "held";
}

bool is_compared(const GateVerdict& verdict) {
    return std::ranges::any_of(verdict.cases,
                               [](const CheckedCase& one) { return one.change.has_value(); });
}

std::ptrdiff_t broken_cases(const GateVerdict& verdict) {
    return std::ranges::count_if(verdict.cases,
                                 [](const CheckedCase& one) { return !one.broken.empty(); });
}

// Whether the limits hold.
std::string holding_text(const GateVerdict& verdict) {
    for (const CheckedCase& one : verdict.cases) {
        if (!one.broken.empty()) {
            const auto others = broken_cases(verdict) - 1;
            const std::string why =
                one.causes.empty() ? "" : fmt::format(": {}", one.causes.front().text);
            const std::string more = others == 0 ? ""
                                     : others == 1
                                         ? " One more case is not held."
                                         : fmt::format(" {} more cases are not held.", others);
            return fmt::format("Not held: {}, {}{}.{}", one.name, one.broken.front(), why, more);
        }
    }
    const auto untold = std::ranges::count_if(verdict.cases, [](const CheckedCase& one) {
        return one.change && !one.change->can_be_told;
    });
    if (untold > 0) {
        return fmt::format("Held, but of {} too few steps were seen to tell a regression.",
                           counted(untold, "case"));
    }
    const bool compared = is_compared(verdict);
    if (!compared && !verdict.limits.max_step_ms && !verdict.limits.max_exposed) {
        return "Held, as nothing was compared: --baseline, --max-step and --max-exposed set "
               "limits.";
    }
    return compared ? "Held: no step is slower than its baseline beyond what is allowed."
                    : "Held: no step is beyond its limits.";
}

// The first sentences.
std::string opening(const GateVerdict& verdict) {
    return verdict.misfit.empty() ? holding_text(verdict)
                                  : verdict.misfit + " " + holding_text(verdict);
}

// A row for each case; columns of the baseline only where anything was compared.
TextTable table_of(const GateVerdict& verdict) {
    const bool compared = is_compared(verdict);
    TextTable table{.header = {"case", "steps", "step (ms)", "exposed (ms)"}, .left = {true}};
    if (compared) {
        table.header.insert(table.header.end(), {"against the baseline", "told from"});
    }
    table.header.emplace_back("");
    table.left.resize(table.header.size());
    table.left.back() = true;
    for (const CheckedCase& one : verdict.cases) {
        Cells row{shown_line(one.name, longest_shown),
                  one.runs == 1 ? std::to_string(one.steps)
                                : fmt::format("{} in {} runs", one.steps, one.runs),
                  three_digits(one.step_ms), one.exposed_ms ? three_digits(*one.exposed_ms) : "-"};
        if (compared) {
            const bool is_told = one.change && one.change->can_be_told && one.change->tellable > 0;
            row.push_back(one.change ? change_text(*one.change) : "-");
            row.push_back(is_told ? percent_text(one.change->tellable) : "-");
        }
        row.push_back(said_of(one));
        table.rows.push_back(std::move(row));
    }
    return table;
}

// Remarks on one case: sentences without their ends.
std::vector<std::string> remarks_on(const CheckedCase& one) {
    std::vector<std::string> remarks = one.broken;
    for (const GateCause& cause : one.causes) {
        remarks.push_back(cause.step_ms > 0 ? fmt::format("{}, which costs the step {} ms",
                                                          cause.text, three_digits(cause.step_ms))
                                            : cause.text);
    }
    const bool is_regression =
        one.change && one.change->is_slower && one.change->slower > 0 && !one.broken.empty();
    if (is_regression && one.causes.empty()) {
        remarks.emplace_back("nothing that was observed of both sides explains the difference");
    }
    remarks.insert(remarks.end(), one.notes.begin(), one.notes.end());
    return remarks;
}

std::string sentence(std::string text) {
    if (!text.empty() && text.front() >= 'a' && text.front() <= 'z') {
        text.front() = static_cast<char>(text.front() - 'a' + 'A');
    }
    return text + ".";
}

std::string rate_text(const GateVerdict& verdict) {
    return fmt::format(
        "A regression is a step that is slower by more than {}, and by more than "
        "chance gives in {} of checks of what has not changed.",
        percent_text(verdict.limits.max_regression), percent_text(verdict.limits.false_alarms));
}

// Sentences of all cases and of the whole; a remark on several cases appears once.
std::vector<std::string> all_remarks(const GateVerdict& verdict) {
    std::vector<std::pair<std::string, std::vector<std::string>>> by_text;
    for (const CheckedCase& one : verdict.cases) {
        for (const std::string& remark : remarks_on(one)) {
            auto known = std::ranges::find_if(
                by_text, [&](const auto& said) { return said.first == remark; });
            if (known == by_text.end()) {
                known = by_text.insert(by_text.end(), {remark, {}});
            }
            known->second.push_back(shown_line(one.name, longest_shown));
        }
    }
    std::vector<std::string> all;
    for (const auto& [text, names] : by_text) {
        all.push_back(verdict.cases.size() == 1 ? sentence(text)
                      : names.size() == 1       ? fmt::format("{}: {}.", names.front(), text)
                                                : fmt::format("{} cases: {}.", names.size(), text));
    }
    for (const std::string& note : verdict.notes) {
        all.push_back(sentence(note));
    }
    if (is_compared(verdict)) {
        all.push_back(rate_text(verdict));
    }
    return all;
}

Json cause_json(const GateCause& cause) {
    Json json{{"kind", name_of(cause.kind)}, {"text", cause.text}};
    add_if(cause.step_ms > 0, json, "step_ms", cause.step_ms);
    add_optional(json, "bucket", cause.bucket);
    add_unless_empty(json, "gradient", cause.gradient);
    return json;
}

Json change_json(const GateChange& change) {
    return {{"before_ms", change.before_ms},
            {"slower", change.slower},
            {"low", change.low},
            {"high", change.high},
            {"is_slower", change.is_slower},
            {"is_faster", change.is_faster},
            {"can_be_told", change.can_be_told},
            {"runs_are_known", change.runs_are_known},
            {"tellable", change.tellable},
            {"enough_steps", change.enough_steps},
            {"steps_before", change.steps_before},
            {"runs_before", change.runs_before}};
}

Json case_json(const CheckedCase& one) {
    Json json{{"name", one.name},           {"source", name_of(one.source)},
              {"held", one.broken.empty()}, {"steps", one.steps},
              {"runs", one.runs},           {"step_ms", one.step_ms},
              {"broken", one.broken},       {"causes", json_list(one.causes, cause_json)},
              {"notes", one.notes}};
    add_optional(json, "exposed_communication_ms", one.exposed_ms);
    add_optional(json, "change", one.change, change_json);
    return json;
}

}  // namespace

std::string text_of(const GateVerdict& verdict) {
    std::string text =
        wrapped(shown_line(opening(verdict), 2000)) + "\n\n" + aligned_text(table_of(verdict));
    const std::vector<std::string> remarks = all_remarks(verdict);
    text += remarks.empty() ? "" : "\n";
    for (const std::string& remark : remarks) {
        text += fmt::format("  {}\n", shown_line(remark, 2000));
    }
    return text;
}

std::string markdown_of(const GateVerdict& verdict) {
    std::string text = fmt::format("### bucketwise: {}\n\n{}", markdown_escaped(opening(verdict)),
                                   markdown_table(table_of(verdict)));
    for (const std::string& remark : all_remarks(verdict)) {
        text += fmt::format("- {}\n", markdown_escaped(remark));
    }
    return text + "\n";
}

std::string junit_of(const GateVerdict& verdict) {
    std::string text = fmt::format(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<testsuites>\n  <testsuite name=\"bucketwise check\" tests=\"{}\" failures=\"{}\">\n",
        verdict.cases.size(), broken_cases(verdict));
    for (const CheckedCase& one : verdict.cases) {
        const std::string remarks = fmt::format("{}", fmt::join(remarks_on(one), "\n"));
        text +=
            fmt::format("    <testcase classname=\"bucketwise.{}\" name=\"{}\" time=\"{}\">\n",
                        name_of(one.source), markup_escaped(shown_line(one.name, longest_shown)),
                        one.step_ms / 1000);
        if (!one.broken.empty()) {
            text += fmt::format("      <failure message=\"{}\">{}</failure>\n",
                                markup_escaped(one.broken.front()), markup_escaped(remarks));
        } else if (!remarks.empty()) {
            text += fmt::format("      <system-out>{}</system-out>\n", markup_escaped(remarks));
        }
        text += "    </testcase>\n";
    }
    return text + "  </testsuite>\n</testsuites>\n";
}

Json to_json(const GateVerdict& verdict) {
    return {{"format", check_format},
            {"held", verdict.is_held()},
            {"verdict", opening(verdict)},
            {"max_regression", verdict.limits.max_regression},
            {"false_alarms", verdict.limits.false_alarms},
            {"cases", json_list(verdict.cases, case_json)},
            {"notes", verdict.notes}};
}

}  // namespace bucketwise
