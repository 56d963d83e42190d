#include "cli/validation_report.h"

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

// --- Markdown ---

std::string markdown(const Table& table) {
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

std::string markdown(const Picture& picture) {
    return picture.svg.empty() ? "" : fmt::format("![{}]({}.svg)\n\n", picture.title, picture.name);
}

const Picture& picture_named(const ValidationReport& report, std::string_view name) {
    static const Picture none;
    for (const Picture& picture : report.pictures) {
        if (picture.name == name) {
            return picture;
        }
    }
    return none;
}

// --- HTML ---

std::string escaped(std::string_view text) {
    return with_replaced(text, {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}});
}

std::string html(const Table& table) {
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

std::string preformatted(std::string_view text) {
    return fmt::format("<pre>{}</pre>\n", escaped(text));
}

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
    const auto picture = [&](std::string_view name) {
        return markdown(picture_named(report, name));
    };
    std::string text = fmt::format("# {}: predicted and measured\n\n{}, {} ranks. {}\n\n",
                                   c.scenario, c.strategy, c.ranks, c.machine);
    for (const std::string& line : verdict(c)) {
        text += fmt::format("- {}\n", line);
    }
    text += "\n" + picture("step_time") + markdown(steps_table(c)) + picture("accuracy");
    text += "## One step\n\n" + picture("timeline");
    text += fmt::format("## Where the error comes from\n\n{}\n\n{}{}{}\n\n", causes_explained,
                        picture("error_causes"), markdown(causes_table(c)), bucket_sentence(c));
    text += "## What would help\n\nPredicted, each at its own best of these caps.\n\n" +
            markdown(what_if_table(c));
    text += "## The link and the machine\n\n" + picture("link_fit") +
            fmt::format("```\n{}```\n\n", calibration_report(report.calibration));
    text += fmt::format("## The prediction for every cap\n\n```\n{}```\n\n", report.prediction);
    text += "## Again\n\n";
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
    const auto picture = [&](std::string_view name) {
        return inline_svg(picture_named(report, name));
    };
    std::string body = fmt::format("<h1>{}: predicted and measured</h1>\n", escaped(c.scenario));
    body += fmt::format("<p class=\"machine\">{}, {} ranks. {}</p>\n<ul class=\"verdict\">\n",
                        escaped(c.strategy), c.ranks, escaped(c.machine));
    for (const std::string& line : verdict(c)) {
        body += fmt::format("<li>{}</li>\n", escaped(line));
    }
    body += "</ul>\n" + picture("step_time") + html(steps_table(c)) + picture("accuracy");
    body += "<h2>One step</h2>\n" + picture("timeline");
    body += "<h2>Where the error comes from</h2>\n" + paragraph(causes_explained) +
            picture("error_causes") + html(causes_table(c)) + paragraph(bucket_sentence(c));
    body += "<h2>What would help</h2>\n" +
            paragraph("Predicted, each at its own best of these caps.") + html(what_if_table(c));
    body += "<h2>The link and the machine</h2>\n" + picture("link_fit") +
            preformatted(calibration_report(report.calibration));
    body += "<h2>The prediction for every cap</h2>\n" + preformatted(report.prediction);
    std::string commands;
    for (const std::string& command : report.commands) {
        commands += command + "\n";
    }
    body += "<h2>Again</h2>\n" + preformatted(commands);
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
