#include "cli/validation_report.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "cli/shell/csv.h"

namespace bucketwise {
namespace {

using Cells = std::vector<std::string>;

struct Table {
    Cells header;
    std::vector<Cells> rows;
};

Table steps_table(const Comparison& c) {
    Table table{.header = {"bucket cap", "buckets", "predicted, ms", "measured, ms",
                           "95 % interval", "error", ""},
                .rows = {}};
    for (std::size_t i = 0; i < c.points.size(); ++i) {
        const CapComparison& point = c.points[i];
        table.rows.push_back(
            {cap_text(point.measured.cap), fmt::format("{}", point.measured.bucket_bytes.size()),
             fmt::format("{:.1f}", point.predicted_ms), fmt::format("{:.1f}", point.measured_ms),
             fmt::format("{:.1f} to {:.1f}", point.measured_interval_ms.low,
                         point.measured_interval_ms.high),
             fmt::format("{:+.1f} %", 100 * point.error()), marks_of(c, i)});
    }
    return table;
}

Table causes_table(const Comparison& c) {
    Table table{.header = {"bucket cap", "measured − predicted, ms"}, .rows = {}};
    for (const Cause& cause : c.points.front().attribution.causes) {
        table.header.emplace_back(cause.name);
    }
    for (const CapComparison& point : c.points) {
        Cells row{cap_text(point.measured.cap) + (point.measured.is_default ? ", default" : ""),
                  fmt::format("{:+.1f}", point.measured_ms - point.predicted_ms)};
        for (const Cause& cause : point.attribution.causes) {
            row.push_back(fmt::format("{:+.1f}", cause.ms));
        }
        table.rows.push_back(row);
    }
    return table;
}

Table what_if_table(const Comparison& c) {
    Table table{.header = {"if", "step, ms", "change", "at"}, .rows = {}};
    for (const ChangedMachine& what : c.what_if) {
        table.rows.push_back(
            {what.change, fmt::format("{:.1f}", what.step_ms),
             fmt::format("{:+.1f} %", 100 * (what.step_ms / c.what_if.front().step_ms - 1)),
             cap_text(what.cap)});
    }
    return table;
}

std::string bucket_sentence(const Comparison& c) {
    const CapComparison& chosen = c.points[c.chosen];
    const auto& bucket = chosen.attribution.bucket;
    return bucket
               ? fmt::format(
                     "At {}, bucket {} of {} deviates most from its prediction: {:.1f} ms "
                     "instead of {:.1f} ms.",
                     cap_text(chosen.measured.cap), bucket->index + 1,
                     chosen.measured.bucket_bytes.size(), bucket->measured_ms, bucket->predicted_ms)
               : "";
}

constexpr std::string_view causes_explained =
    "Each part of the prediction is replaced by what was measured of it, one after another; what "
    "the simulated step then changes by is that part's share.";

// How a form of the report has its pieces.
struct Form {
    std::string (*heading)(std::string_view text);
    std::string (*paragraph)(std::string_view text);
    std::string (*preformatted)(std::string_view text);
    std::string (*table)(const Table& table);
    std::string (*picture)(const Picture& picture);
};

// From the table of steps on, up to how to do it again.
std::string sections(const ValidationReport& report, const Form& form) {
    const Comparison& c = report.comparison;
    const auto picture = [&](std::string_view name) {
        const auto found = std::ranges::find(report.pictures, name, &Picture::name);
        return found == report.pictures.end() ? "" : form.picture(*found);
    };
    return picture("step_time") + form.table(steps_table(c)) + picture("accuracy") +
           form.heading("One step") + picture("timeline") +
           form.heading("Where the error comes from") + form.paragraph(causes_explained) +
           picture("error_causes") + form.table(causes_table(c)) +
           form.paragraph(bucket_sentence(c)) + form.heading("What would help") +
           form.paragraph("Predicted, each at its own best of these caps.") +
           form.table(what_if_table(c)) + form.heading("The link and the machine") +
           picture("link_fit") + form.preformatted(calibration_report(report.calibration)) +
           form.heading("The prediction for every cap") + form.preformatted(report.prediction) +
           form.heading("Again");
}

// --- Markdown ---

std::string markdown_table(const Table& table) {
    std::string text = fmt::format("| {} |\n|", fmt::join(table.header, " | "));
    for (std::size_t i = 0; i < table.header.size(); ++i) {
        text += "---|";
    }
    text += "\n";
    for (const Cells& row : table.rows) {
        text += fmt::format("| {} |\n", fmt::join(row, " | "));
    }
    return text + "\n";
}

constexpr Form markdown{
    .heading = [](std::string_view text) { return fmt::format("## {}\n\n", text); },
    .paragraph = [](std::string_view text) { return fmt::format("{}\n\n", text); },
    .preformatted = [](std::string_view text) { return fmt::format("```\n{}```\n\n", text); },
    .table = markdown_table,
    .picture =
        [](const Picture& picture) {
            return picture.svg.empty()
                       ? ""
                       : fmt::format("![{}]({}.svg)\n\n", picture.title, picture.name);
        }};

// --- HTML ---

std::string escaped(std::string_view text) {
    return with_replaced(text, {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}});
}

std::string html_table(const Table& table) {
    std::string text = "<div class=\"wide\"><table>\n<tr>";
    for (const std::string& cell : table.header) {
        text += fmt::format("<th>{}</th>", escaped(cell));
    }
    text += "</tr>\n";
    for (const Cells& row : table.rows) {
        text += "<tr>";
        for (const std::string& cell : row) {
            text += fmt::format("<td>{}</td>", escaped(cell));
        }
        text += "</tr>\n";
    }
    return text + "</table></div>\n";
}

// Without the prolog, whose DOCTYPE names a file elsewhere. Names within one picture are made
// its own, or the second picture would be clipped like the first.
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
    return fmt::format("<figure role=\"img\" aria-label=\"{}\">\n{}\n</figure>\n",
                       escaped(picture.title), text);
}

std::string paragraph(std::string_view text) {
    return text.empty() ? "" : fmt::format("<p>{}</p>\n", escaped(text));
}

constexpr Form html{
    .heading = [](std::string_view text) { return fmt::format("<h2>{}</h2>\n", text); },
    .paragraph = paragraph,
    .preformatted =
        [](std::string_view text) { return fmt::format("<pre>{}</pre>\n", escaped(text)); },
    .table = html_table,
    .picture = inline_svg};

constexpr std::string_view style = R"(
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 62rem;
       margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
ul.verdict { padding-left: 1.1rem; } ul.verdict li:first-child { font-weight: 600; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th { white-space: normal; vertical-align: bottom; min-width: 4.2rem; }
td:first-child, th:first-child, td:last-child, th:last-child { text-align: left; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; }
pre { overflow-x: auto; font-size: .8rem; line-height: 1.35; background: #f6f6f6; padding: .8rem; }
details { margin: .6rem 0; } .machine { color: #555; font-size: .9rem; }
@media print { details > * { display: block; } }
)";

}  // namespace

std::string markdown_report(const ValidationReport& report) {
    const Comparison& c = report.comparison;
    std::string text = fmt::format("# {}: predicted and measured\n\n{}, {} ranks. {}\n\n",
                                   c.scenario, name_of(c.strategy), c.ranks, c.machine);
    for (const std::string& line : findings(c)) {
        text += fmt::format("- {}\n", line);
    }
    text += "\n" + sections(report, markdown);
    for (const std::string& command : report.commands) {
        text += fmt::format("    {}\n", command);
    }
    for (const std::string& note : c.notes) {
        text += fmt::format("\nNote: {}.\n", note);
    }
    return text;
}

std::string html_report(const ValidationReport& report) {
    const Comparison& c = report.comparison;
    std::string body = fmt::format("<h1>{}: predicted and measured</h1>\n", escaped(c.scenario));
    body += fmt::format("<p class=\"machine\">{}, {} ranks. {}</p>\n<ul class=\"verdict\">\n",
                        name_of(c.strategy), c.ranks, escaped(c.machine));
    for (const std::string& line : findings(c)) {
        body += fmt::format("<li>{}</li>\n", escaped(line));
    }
    body += "</ul>\n" + sections(report, html) +
            html.preformatted(fmt::format("{}\n", fmt::join(report.commands, "\n")));
    for (const std::string& note : c.notes) {
        body += paragraph(fmt::format("Note: {}.", note));
    }
    return fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<title>{}: predicted and measured</title>\n<style>{}</style>\n</head>\n<body>\n{}</body>\n"
        "</html>\n",
        escaped(c.scenario), style, body);
}

}  // namespace bucketwise
