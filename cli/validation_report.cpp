#include "cli/validation_report.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include <bucketwise_report_style.h>
#include <fmt/format.h>

#include "cli/shell/result_table.h"
#include "sim/report/number_text.h"
#include "sim/report/sweep_table.h"
#include "sim/text/foreign_text.h"
#include "sim/text/marked_up.h"

namespace bucketwise {
namespace {

// --- text of both forms ---

std::string report_title(const Comparison& c) {
    return fmt::format("{}: predicted and measured", c.scenario);
}

std::string subject_line(const Comparison& c) {
    return fmt::format("{}: {}, {}. {}", c.scenario, strategy_name(c), counted(c.ranks, "rank"),
                       c.machine);
}

// One of the three numbers at the top.
struct KeyNumber {
    std::string_view name;
    std::string value;
    std::string detail;
    std::string_view state = "";  // the shown verdict, if any
};

KeyNumber saves(const Comparison& c) {
    KeyNumber number{.name = "saves", .value = "nothing", .detail = ""};
    if (!has_decision(c)) {
        number.detail = fmt::format("there are no {}s to choose from", setting_word(c));
        return number;
    }
    const std::string standard =
        fmt::format("{}{}", c.sharded ? "the scenario's setting, " : "the default of ",
                    setting_name(c.points[*c.default_point].measured));
    if (c.chosen == *c.default_point) {
        number.detail = fmt::format("keep {}: it is what is advised", standard);
        return number;
    }
    const double middle =
        faster_by(c.decision.gain ? c.decision.gain->middle : c.gain_over_default);
    number.value = middle > 0 ? percent_text(middle) : "nothing";
    const std::string settings = fmt::format("{} instead of {}", point_name(c, c.chosen), standard);
    if (!c.decision.gain) {
        number.detail = fmt::format("{}; too few steps to say between what", settings);
        return number;
    }
    const SlowerBy& gain = *c.decision.gain;
    number.detail = fmt::format("{}; {} in 95 % of cases{}", settings,
                                percent_range_text(faster_by(gain.low), faster_by(gain.high)),
                                gain.low <= 0 && gain.high >= 0 ? ", so perhaps nothing" : "");
    return number;
}

KeyNumber error_number(const Comparison& c) {
    const Verdict verdict = error_verdict(c);
    const std::string judged =
        verdict == Verdict::held     ? fmt::format("within the goal of {:g} %", 100 * mape_goal)
        : verdict == Verdict::missed ? fmt::format("the goal of {:g} % is missed", 100 * mape_goal)
                                     : "too noisy to judge";
    return {.name = "error",
            .value = percent_text(c.mape),
            .detail = fmt::format("on average over {}, {} at most; {}",
                                  counted(std::ssize(c.points), std::string(setting_word(c))),
                                  percent_text(c.max_error), judged),
            .state = name_of(verdict)};
}

KeyNumber sureness(const Comparison& c) {
    KeyNumber number{.name = "sure", .value = "no", .detail = ""};
    if (!c.reasons_to_withhold.empty() || c.shared_gpu) {
        number.detail = "do not rely on it, for the reason above";
        number.state = name_of(Verdict::missed);
        return number;
    }
    if (!has_decision(c)) {
        number.value = "nothing to decide";
        number.detail =
            is_noise_known(c)
                ? fmt::format("steps are known to within {}", percent_text(c.noise_floor))
                : std::string("too few steps to say how well they are known");
        return number;
    }
    number.state = name_of(decision_verdict(c));
    number.value = number.state;
    number.detail =
        c.decision.regret
            ? fmt::format("what is advised is {} slower than the best measured, in 95 % of cases",
                          percent_range_text(std::max(c.decision.regret->low, 0.0),
                                             c.decision.regret->high))
            : std::string("too few steps to say what is advised costs over the best measured");
    return number;
}

std::vector<KeyNumber> key_numbers(const Comparison& c) {
    return {saves(c), error_number(c), sureness(c)};
}

// "+1.2", "-3.4"; without a sign where it rounds to nothing.
std::string signed_text(double value) {
    constexpr double shown = 0.05;
    return std::abs(value) < shown ? "0.0" : fmt::format("{:+.1f}", value);
}

std::string name_and_default(const Comparison& c, std::size_t point) {
    const MeasuredSetting& measured = c.points[point].measured;
    return measured.is_default && !c.sharded ? setting_name(measured) + ", default"
                                             : point_name(c, point);
}

std::string setting_heading(const Comparison& c) {
    return c.sharded ? "setting" : "bucket cap";
}

TextTable steps_table(const Comparison& c, const std::vector<std::size_t>& points) {
    TextTable table{.header = {setting_heading(c), c.sharded ? "sent" : "buckets", "predicted, ms",
                               "measured, ms", "95 % interval", "error", ""},
                    .rows = {}};
    for (const std::size_t i : points) {
        const SettingComparison& point = c.points[i];
        table.rows.push_back({name_and_default(c, i), fmt::format("{}", point.measured.messages()),
                              three_digits(point.predicted_ms), three_digits(point.measured_ms),
                              measured_interval_text(point),
                              signed_text(100 * point.error()) + " %", marks_of(c, i)});
    }
    return table;
}

std::vector<std::size_t> all_points(const Comparison& c) {
    std::vector<std::size_t> points(c.points.size());
    std::iota(points.begin(), points.end(), 0);
    return points;
}

TextTable causes_table(const Comparison& c) {
    TextTable table{.header = {setting_heading(c), "measured − predicted, ms"}, .rows = {}};
    for (const Cause& cause : c.points.front().attribution.causes) {
        table.header.emplace_back(cause.name);
    }
    for (std::size_t i = 0; i < c.points.size(); ++i) {
        const SettingComparison& point = c.points[i];
        Cells row{name_and_default(c, i), signed_text(point.measured_ms - point.predicted_ms)};
        for (const Cause& cause : point.attribution.causes) {
            row.push_back(signed_text(cause.ms));
        }
        table.rows.push_back(row);
    }
    return table;
}

TextTable what_if_table(const Comparison& c) {
    TextTable table{.header = {"if", "step, ms", "change", "at"}, .rows = {}};
    for (const ChangedMachine& what : c.what_if) {
        table.rows.push_back(
            {what.change, three_digits(what.step_ms),
             signed_text(100 * (what.step_ms / c.what_if.front().step_ms - 1)) + " %",
             c.sharded ? point_name(c, what.point)
                       : rounded_cap_text(c.points[what.point].measured.cap)});
    }
    return table;
}

std::string bucket_sentence(const Comparison& c) {
    const SettingComparison& chosen = c.points[c.chosen];
    const auto& bucket = chosen.attribution.bucket;
    return bucket
               ? fmt::format(
                     "At {}, bucket {} of {} deviates most from its prediction: {:.1f} ms "
                     "instead of {:.1f} ms.",
                     setting_name(chosen.measured), bucket->index + 1,
                     chosen.measured.bucket_bytes.size(), bucket->measured_ms, bucket->predicted_ms)
               : "";
}

constexpr std::string_view causes_explained =
    "One part of the prediction after another is replaced by its measurement; the change of the "
    "simulated step is that part's share.";

// The pieces of a form of the report. All escape the text that they take.
struct Form {
    std::string (*verdict)(std::string_view text);
    std::string (*subject)(std::string_view text);
    std::string (*list)(const std::vector<std::string>& lines);
    std::string (*paragraph)(std::string_view text);
    std::string (*preformatted)(std::string_view text);
    std::string (*table)(const TextTable& table);
    std::string (*picture)(const Picture& picture);
    // The body is made of the pieces above.
    std::string (*section)(std::string_view title, const std::string& body);
};

std::string picture_of(const ValidationReport& report, const Form& form, std::string_view name) {
    const auto found = std::ranges::find(report.pictures, name, &Picture::name);
    return found == report.pictures.end() || found->svg.empty() ? "" : form.picture(*found);
}

// The findings behind the verdict, and notes.
std::string grounds(const ValidationReport& report, const Form& form) {
    const Comparison& c = report.comparison;
    std::vector<std::string> lines = findings(c);
    for (const std::string& note : c.notes) {
        lines.push_back(fmt::format("Note: {}.", note));
    }
    const auto notes = std::ssize(c.notes);
    return form.section(notes == 0
                            ? std::string("What this rests on")
                            : fmt::format("What this rests on, and {}", counted(notes, "note")),
                        form.list(lines));
}

std::string causes(const ValidationReport& report, const Form& form) {
    const Comparison& c = report.comparison;
    return form.section("Where the error comes from", form.paragraph(causes_explained) +
                                                          picture_of(report, form, "error_causes") +
                                                          form.table(causes_table(c)) +
                                                          form.paragraph(bucket_sentence(c)));
}

// Details.
std::string sections(const ValidationReport& report, const Form& form) {
    const Comparison& c = report.comparison;
    const std::string timeline = picture_of(report, form, "timeline");
    return grounds(report, form) +
           form.section(
               fmt::format("Every {} that was measured", setting_word(c)),
               picture_of(report, form, "accuracy") + form.table(steps_table(c, all_points(c)))) +
           (timeline.empty() ? "" : form.section("One step, predicted and measured", timeline)) +
           causes(report, form) +
           form.section("What would help",
                        form.paragraph(fmt::format("Predicted, each at its own best of these {}s.",
                                                   setting_word(c))) +
                            form.table(what_if_table(c))) +
           form.section("The link and the machine",
                        picture_of(report, form, "link_fit") +
                            form.preformatted(calibration_report(report.calibration))) +
           form.section(fmt::format("The prediction for every {}", setting_word(c)),
                        form.preformatted(report.prediction)) +
           form.section("The commands that give this again",
                        form.preformatted(fmt::format("{}\n", fmt::join(report.commands, "\n"))));
}

std::string opening(const Comparison& c, const Form& form) {
    return form.verdict(verdict_text(c)) + form.subject(subject_line(c));
}

// --- Markdown ---

std::string markdown_numbers(const std::vector<KeyNumber>& numbers) {
    std::string text;
    for (const KeyNumber& number : numbers) {
        text += fmt::format("- **{}: {}**, {}\n", number.name, markdown_escaped(number.value),
                            markdown_escaped(number.detail));
    }
    return text + "\n";
}

std::string markdown_list(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) {
        text += fmt::format("- {}\n", markdown_escaped(line));
    }
    return text + "\n";
}

// Between fences longer than any in the text.
std::string markdown_preformatted(std::string_view foreign) {
    const std::string text = shown_text(foreign);
    std::string fence = "```";
    while (text.find(fence) != std::string::npos) {
        fence += '`';
    }
    return fmt::format("{0}\n{1}{0}\n\n", fence, text);
}

std::string markdown_paragraph(std::string_view text) {
    return text.empty() ? "" : fmt::format("{}\n\n", markdown_escaped(text));
}

constexpr Form markdown{
    .verdict =
        [](std::string_view text) { return fmt::format("# {}\n\n", markdown_escaped(text)); },
    .subject = markdown_paragraph,
    .list = markdown_list,
    .paragraph = markdown_paragraph,
    .preformatted = markdown_preformatted,
    .table = markdown_table,
    .picture =
        [](const Picture& picture) {
            return fmt::format("![{}]({}.svg)\n\n", markdown_escaped(picture.title), picture.name);
        },
    .section =
        [](std::string_view title, const std::string& body) {
            return fmt::format("## {}\n\n{}", markdown_escaped(title), body);
        }};

// --- HTML ---

// Every cell names its column, as narrow screens show a row as a list.
std::string html_table(const TextTable& table) {
    constexpr std::size_t most_at_ease = 8;
    std::string text = fmt::format("<div class=\"wide\"><table{}>\n<thead><tr>",
                                   table.header.size() > most_at_ease ? " class=\"dense\"" : "");
    for (const std::string& cell : table.header) {
        text += fmt::format("<th scope=\"col\">{}</th>", markup_escaped(cell));
    }
    text += "</tr></thead>\n<tbody>\n";
    for (const Cells& row : table.rows) {
        text += "<tr>";
        for (std::size_t i = 0; i < row.size(); ++i) {
            text += fmt::format("<td data-column=\"{}\">{}</td>", markup_escaped(table.header[i]),
                                markup_escaped(row[i]));
        }
        text += "</tr>\n";
    }
    return text + "</tbody></table></div>\n";
}

std::string html_numbers(const std::vector<KeyNumber>& numbers) {
    std::string text = "<dl class=\"numbers\">\n";
    for (const KeyNumber& number : numbers) {
        text += fmt::format(
            "<div class=\"{}\"><dt>{}</dt><dd class=\"value\">{}</dd><dd>{}</dd></div>\n",
            number.state, number.name, markup_escaped(number.value), markup_escaped(number.detail));
    }
    return text + "</dl>\n";
}

std::string html_list(const std::vector<std::string>& lines) {
    std::string text = "<ul>\n";
    for (const std::string& line : lines) {
        text += fmt::format("<li>{}</li>\n", markup_escaped(line));
    }
    return text + "</ul>\n";
}

// Without the prolog, whose DOCTYPE names a file elsewhere. Ids get the picture's name as a prefix,
// or the second picture would be clipped like the first.
std::string inline_svg(const Picture& picture) {
    const std::size_t begin = picture.svg.find("<svg");
    if (begin == std::string::npos) {
        return "";
    }
    std::string text;
    const std::string_view svg = std::string_view(picture.svg).substr(begin);
    for (std::size_t i = 0; i < svg.size();) {
        bool replaced = false;
        for (const std::string_view reference : {"id=\"", "url(#", "href=\"#"}) {
            if (svg.substr(i, reference.size()) == reference) {
                text += fmt::format("{}{}-", reference, picture.name);
                i += reference.size();
                replaced = true;
                break;
            }
        }
        if (!replaced) {
            text += svg[i++];
        }
    }
    return fmt::format("<figure class=\"{}\" role=\"img\" aria-label=\"{}\">\n{}\n</figure>\n",
                       picture.name, markup_escaped(picture.title), text);
}

constexpr Form html{
    .verdict =
        [](std::string_view text) { return fmt::format("<h1>{}</h1>\n", markup_escaped(text)); },
    .subject =
        [](std::string_view text) {
            return fmt::format("<p class=\"subject\">{}</p>\n", markup_escaped(text));
        },
    .list = html_list,
    .paragraph =
        [](std::string_view text) {
            return text.empty() ? "" : fmt::format("<p>{}</p>\n", markup_escaped(text));
        },
    .preformatted =
        [](std::string_view text) { return fmt::format("<pre>{}</pre>\n", markup_escaped(text)); },
    .table = html_table,
    .picture = inline_svg,
    .section =
        [](std::string_view title, const std::string& body) {
            return fmt::format("<details>\n<summary>{}</summary>\n{}</details>\n",
                               markup_escaped(title), body);
        }};

}  // namespace

std::string markdown_report(const ValidationReport& report) {
    const Comparison& c = report.comparison;
    return opening(c, markdown) + markdown_numbers(key_numbers(c)) +
           picture_of(report, markdown, "step_time") +
           markdown_table(steps_table(c, deciding_points(c))) + sections(report, markdown);
}

std::string html_report(const ValidationReport& report) {
    const Comparison& c = report.comparison;
    const std::string body =
        opening(c, html) + picture_of(report, html, "step_time") + html_numbers(key_numbers(c)) +
        html_table(steps_table(c, deciding_points(c))) + sections(report, html);
    return fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<title>{}</title>\n<style>{}</style>\n</head>\n"
        "<body onbeforeprint=\"document.querySelectorAll('details').forEach(d => d.open = "
        "true)\">\n"
        "{}</body>\n</html>\n",
        markup_escaped(report_title(c)), report_style, body);
}

}  // namespace bucketwise
