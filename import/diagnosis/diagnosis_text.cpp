#include <cstdlib>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "import/diagnosis/diagnosis.h"
#include "sim/report/number_text.h"
#include "sim/report/verdict.h"

namespace bucketwise {
namespace {

// Counts up when a key changes what it means or goes.
constexpr int diagnosis_format = 1;

std::string range_text(const Diagnosis& diagnosis) {
    return fmt::format("{} ({} to {})", ms_text(diagnosis.expected), ms_text(diagnosis.least),
                       ms_text(diagnosis.most));
}

std::string indented(const char* label, const std::string& text) {
    std::string lines = wrapped(text, 92);
    while (!lines.empty() && lines.back() == '\n') {
        lines.pop_back();
    }
    for (std::size_t at = 0; (at = lines.find('\n', at)) != std::string::npos; ++at) {
        lines.replace(at, 1, "\n            ");
    }
    return text.empty() ? "" : fmt::format("      {:<5} {}\n", label, lines);
}

}  // namespace

std::string first_line(const Diagnosis& diagnosis) {
    if (!diagnosis.withheld.empty()) {
        return fmt::format("The step took {}. What it should take is not said: {}.",
                           ms_text(diagnosis.traced), diagnosis.withheld);
    }
    const bool is_sound = diagnosis.causes.empty() && diagnosis.traced <= diagnosis.most;
    const std::string range = range_text(diagnosis);
    const std::string took = ms_text(diagnosis.traced);
    if (is_sound && !diagnosis.compared) {
        return fmt::format(
            "Nothing that this trace shows by itself is wrong: the step took {}. "
            "--expected and --link compare it.",
            took);
    }
    if (is_sound && diagnosis.traced < diagnosis.least) {
        return fmt::format(
            "This step takes less than it should: {}, and took {}. Is the expected scenario of the "
            "same training?",
            range, took);
    }
    return is_sound ? fmt::format("This step takes what it should: {}, and took {}.", range, took)
                    : fmt::format("This step should take {} and took {}.", range, took);
}

std::string last_lines(const Diagnosis& diagnosis) {
    if (!diagnosis.withheld.empty()) {
        return "";
    }
    const Duration left = diagnosis.unexplained();
    const Duration size{std::abs(left.count())};
    // The step may have been expected to take as little as the range leaves.
    const Duration beyond = left.count() < 0 ? size - (diagnosis.expected - diagnosis.least) : size;
    const std::string rest =
        beyond < diagnosis.noticeable ? "Nothing else is noticeable"
        : left.count() > 0            ? fmt::format("{} are not explained", ms_text(left))
        : diagnosis.causes.empty()
            ? fmt::format("It took {} less than expected", ms_text(size))
            : fmt::format("The causes explain {} more than there are", ms_text(size));
    return fmt::format("{}; what costs less than {} is not named. The step is bound by {}.", rest,
                       ms_text(diagnosis.noticeable), diagnosis.binds);
}

std::string text_of(const Diagnosis& diagnosis) {
    std::string text = wrapped(first_line(diagnosis)) + "\n";
    int number = 0;
    for (const DiagnosedCause& cause : diagnosis.causes) {
        text += fmt::format("\n  {}. {:>9}  {}: {}\n", ++number, ms_text(cause.costs),
                            name_of(cause.kind), cause.text);
        text += indented("seen", cause.evidence);
        text += indented("do", cause.change);
        text += fmt::format("      {:<5} {} without it{}\n", "gives", ms_text(cause.without),
                            number == 1 ? "" : " and those above");
    }
    const std::string last = last_lines(diagnosis);
    return last.empty() ? text : text + "\n" + wrapped(last) + "\n";
}

Json diagnosis_json(const Diagnosis& diagnosis) {
    Json causes = Json::array();
    for (const DiagnosedCause& cause : diagnosis.causes) {
        causes.push_back({{"cause", name_of(cause.kind)},
                          {"costs_ms", to_ms(cause.costs)},
                          {"without_ms", to_ms(cause.without)},
                          {"text", cause.text},
                          {"evidence", cause.evidence},
                          {"change", cause.change}});
    }
    return {{"format", diagnosis_format},
            {"step_ms", to_ms(diagnosis.traced)},
            {"replayed_step_ms", to_ms(diagnosis.replayed)},
            {"expected_step_ms", to_ms(diagnosis.expected)},
            {"expected_range_ms", {to_ms(diagnosis.least), to_ms(diagnosis.most)}},
            {"longer", diagnosis.longer()},
            {"causes", causes},
            {"bound_by", diagnosis.binds},
            {"unexplained_ms", to_ms(diagnosis.unexplained())},
            {"noticeable_ms", to_ms(diagnosis.noticeable)},
            {"withheld", diagnosis.withheld}};
}

}  // namespace bucketwise
