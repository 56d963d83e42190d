#include "cli/diagnosis_page.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <bucketwise_report_style.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/report/number_text.h"
#include "sim/text/marked_up.h"

namespace bucketwise {
namespace {

// --- both steps, to one scale ---

struct Slice {
    std::string name;
    double begin_us = 0;
    double end_us = 0;
};

struct Row {
    std::string process;
    std::string track;
    std::vector<Slice> slices = {};
};

// Tracks in the order they are first named; those without slices are left out.
std::vector<Row> rows_of(const std::string& trace) {
    const Json document = Json::parse(trace);
    std::map<std::int64_t, std::string> processes;
    std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> places;
    std::vector<Row> rows;
    const auto key_of = [](const Json& event) {
        return std::pair{event.value("pid", std::int64_t{0}), event.value("tid", std::int64_t{0})};
    };
    for (const Json& event : document.at("traceEvents")) {
        if (event.at("name") == "process_name") {
            processes[key_of(event).first] = event.at("args").at("name");
        } else if (event.at("name") == "thread_name") {
            places.emplace(key_of(event), rows.size());
            rows.push_back({processes[key_of(event).first], event.at("args").at("name")});
        }
    }
    for (const Json& event : document.at("traceEvents")) {
        if (const auto place = places.find(key_of(event));
            event.at("ph") == "X" && place != places.end()) {
            const double begin = event.at("ts");
            rows[place->second].slices.push_back(
                {event.at("name"), begin, begin + event.at("dur").get<double>()});
        }
    }
    std::erase_if(rows, [](const Row& row) { return row.slices.empty(); });
    return rows;
}

// Neighbours that no screen could show apart are one.
std::vector<Slice> visible(std::vector<Slice> slices, double us_per_pixel) {
    std::ranges::stable_sort(slices, {}, &Slice::begin_us);
    std::vector<Slice> shown;
    std::size_t joined = 0;
    for (Slice& slice : slices) {
        const bool is_small = slice.end_us - slice.begin_us < us_per_pixel;
        const bool touches =
            !shown.empty() && slice.begin_us - shown.back().end_us < us_per_pixel / 2;
        if (touches && is_small &&
            (joined > 0 || shown.back().end_us - shown.back().begin_us < us_per_pixel)) {
            shown.back().end_us = std::max(shown.back().end_us, slice.end_us);
            shown.back().name = fmt::format("{} operations", ++joined + 1);
        } else {
            joined = 0;
            shown.push_back(std::move(slice));
        }
    }
    return shown;
}

constexpr double picture_width = 960;
constexpr double label_width = 150;
constexpr double row_height = 26;
constexpr double heading_height = 24;
constexpr double axis_height = 24;

std::string text_at(double x, double y, std::string_view style, std::string_view text) {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>", x, y, style,
                       markup_escaped(text));
}

std::string slice_svg(const Slice& slice, double y, double scale, std::string_view colour) {
    constexpr double letter = 6.2;
    const double from_us = std::max(slice.begin_us, 0.0);  // a host may begin before its step does
    const double x = label_width + from_us * scale;
    const double width = std::max((slice.end_us - from_us) * scale, 0.3);
    std::string svg = fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"18\" fill=\"{}\" "
        "stroke=\"#fff\" "
        "stroke-width=\"0.4\"><title>{}: {:.3f} ms, from {:.3f} ms</title></rect>",
        x, y, width, colour, markup_escaped(slice.name), (slice.end_us - slice.begin_us) / 1e3,
        slice.begin_us / 1e3);
    const auto room = static_cast<std::size_t>(std::max((width - 6) / letter, 0.0));
    if (room >= std::min<std::size_t>(slice.name.size(), 4)) {
        svg += text_at(x + 3, y + 13, "font-size=\"11\" fill=\"#fff\"", slice.name.substr(0, room));
    }
    return svg;
}

std::string axis_svg(double y, double longest_us, double scale) {
    constexpr double most_ticks = 8;
    double step_us = 1;
    for (int i = 0; longest_us / step_us > most_ticks; ++i) {
        step_us *= i % 3 == 1 ? 2.5 : 2;
    }
    std::string svg;
    for (double at = 0; at <= longest_us; at += step_us) {
        const double x = label_width + at * scale;
        svg += fmt::format(
            "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1:.1f}\" "
            "stroke=\"#ccc\" stroke-width=\"0.5\"/>",
            x, y);
        svg += text_at(x, y + 16, "font-size=\"11\" text-anchor=\"middle\" fill=\"#555\"",
                       fmt::format("{:g} ms", at / 1e3));
    }
    return svg;
}

std::string_view colour_of(const std::string& track) {
    return track.find("communication") != std::string::npos ? "#c24a00"
           : track.find("host") != std::string::npos        ? "#6b7280"
                                                            : "#1f77b4";
}

std::string timeline_svg(const std::string& trace) {
    const std::vector<Row> rows = rows_of(trace);
    double longest_us = 1;
    for (const Row& row : rows) {
        for (const Slice& slice : row.slices) {
            longest_us = std::max(longest_us, slice.end_us);
        }
    }
    const double scale = (picture_width - label_width - 40) / longest_us;
    std::string marks;
    std::string process;
    double y = 0;
    for (const Row& row : rows) {
        if (row.process != process) {
            process = row.process;
            marks +=
                text_at(0, y + 17, "font-size=\"13\" font-weight=\"600\" fill=\"#222\"", process);
            y += heading_height;
        }
        marks += text_at(0, y + 14, "font-size=\"12\" fill=\"#555\"", row.track);
        for (const Slice& slice : visible(row.slices, 1 / scale)) {
            marks += slice_svg(slice, y, scale, colour_of(row.track));
        }
        y += row_height;
    }
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" "
        "font-family=\"system-ui, sans-serif\" role=\"img\" aria-label=\"the expected "
        "step above the traced one\">{}{}</svg>",
        picture_width, y + axis_height, axis_svg(y, longest_us, scale), marks);
}

// --- the page ---

std::string cause_html(const DiagnosedCause& cause) {
    return fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                       ms_text(cause.costs), markup_escaped(cause.text),
                       markup_escaped(cause.evidence), markup_escaped(cause.change),
                       ms_text(cause.without));
}

}  // namespace

std::string diagnosis_page(const Diagnosis& diagnosis, const std::string& name,
                           const std::string& trace) {
    std::string causes;
    for (const DiagnosedCause& cause : diagnosis.causes) {
        causes += cause_html(cause);
    }
    const std::string table =
        causes.empty() ? ""
                       : "<div class=\"wide\"><table class=\"causes\"><thead><tr><th>costs</th><th>"
                         "what</th><th>seen</th><th>what to do</th><th>step without it and those "
                         "above</th></tr></thead><tbody>\n" +
                             causes + "</tbody></table></div>\n";
    return fmt::format(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta "
        "name=\"viewport\" "
        "content=\"width=device-width\">\n<title>{0}: diagnosis</title>\n<style>{1}\n"
        "table.causes td {{ white-space: normal; text-align: left; vertical-align: top; }}\n"
        "table.causes td:first-child, table.causes td:last-child {{ white-space: nowrap; }}\n"
        "</style></head><body>\n<h1>{2}</h1>\n<p class=\"subject\">{0}. {3}</p>\n{4}"
        "<figure>{5}</figure>\n</body></html>\n",
        markup_escaped(name), report_style, markup_escaped(first_line(diagnosis)),
        markup_escaped(last_lines(diagnosis)), table, timeline_svg(trace));
}

}  // namespace bucketwise
