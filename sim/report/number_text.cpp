#include "sim/report/number_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace bucketwise {
namespace {

constexpr double shown_share = 0.0005;    // less reads as 0.0 %
constexpr double whole_percent = 0.0995;  // from here on without a decimal

std::string percent_number(double share, bool whole) {
    const double percent = 100 * share;
    // No "-0".
    const double unit = whole ? 1 : 0.1;
    const double rounded = std::round(percent / unit) * unit + 0.0;
    return whole ? fmt::format("{:.0f}", rounded) : fmt::format("{:.1f}", rounded);
}

}  // namespace

std::string three_digits(double value) {
    const double size = std::abs(value);
    if (size == 0 || !std::isfinite(value)) {
        return fmt::format("{}", value + 0.0);
    }
    constexpr int digits = 3;
    // Digits of the rounded number: 9.996 is 10.0.
    const int before = static_cast<int>(std::floor(std::log10(size * (1 + 0.5e-3)))) + 1;
    return fmt::format("{:.{}f}", value, std::clamp(digits - before, 0, 9));
}

std::string ms_text(Duration time) {
    return three_digits(to_ms(time)) + " ms";
}

double share_of(Duration part, Duration whole) {
    return whole.count() == 0
               ? 0.0
               : static_cast<double>(part.count()) / static_cast<double>(whole.count());
}

std::string percent_text(double share) {
    return share < shown_share ? "less than 0.1 %"
                               : percent_number(share, share >= whole_percent) + " %";
}

std::string percent_range_text(double low, double high) {
    const bool whole = std::max(std::abs(low), std::abs(high)) >= whole_percent;
    const std::string from = percent_number(low, whole);
    const std::string to = percent_number(high, whole);
    return (from == to ? to : from + " to " + to) + " %";
}

namespace {

// The part of the time that is left; empty: not a simple one.
std::string_view simple_part(double low, double high) {
    constexpr double tolerance = 0.02;
    constexpr std::array<std::pair<double, std::string_view>, 3> parts{
        {{1.0 / 2, "half the time"},
         {2.0 / 3, "a third of the time"},
         {3.0 / 4, "a quarter of the time"}}};
    const auto near = std::ranges::find_if(parts, [&](const auto& part) {
        return std::abs(low - part.first) <= tolerance && std::abs(high - part.first) <= tolerance;
    });
    return near == parts.end() ? std::string_view() : near->second;
}

}  // namespace

std::string less_time_text(double low, double high) {
    const std::string_view part = simple_part(low, high);
    return part.empty() ? percent_range_text(low, high) + " less time" : std::string(part);
}

std::string faster_text(double low, double high) {
    constexpr double misleading = 0.3;
    return high >= misleading ? less_time_text(low, high)
           : low == high      ? percent_text(low) + " faster"
                              : percent_range_text(low, high) + " faster";
}

std::string faster_than_text(double low, double high, const std::string& other) {
    const std::string text = faster_text(low, high);
    return fmt::format("{} {} {}", text, text.ends_with("the time") ? "of" : "than", other);
}

std::string counted(long long count, const std::string& noun) {
    return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string wrapped(const std::string& text, std::size_t columns) {
    std::string result;
    std::size_t line = 0;  // its length so far
    for (std::size_t begin = 0; begin < text.size();) {
        std::size_t end = std::min(text.find(' ', begin), text.size());
        if (text.compare(end, 2, " %") == 0) {  // stays with its number
            end = std::min(text.find(' ', end + 1), text.size());
        }
        const std::size_t word = end - begin;
        if (line > 0 && line + 1 + word > columns) {
            result += '\n';
            line = 0;
        } else if (line > 0) {
            result += ' ';
            ++line;
        }
        result.append(text, begin, word);
        line += word;
        begin = end + 1;
    }
    return result;
}

std::string waiting_text(double seconds) {
    constexpr double minute = 60;
    constexpr double hour = 3600;
    if (seconds < 2 * minute) {
        return counted(static_cast<long long>(std::ceil(seconds / 10) * 10), "second");
    }
    return seconds < 2 * hour
               ? counted(static_cast<long long>(std::ceil(seconds / minute)), "minute")
               : counted(static_cast<long long>(std::ceil(seconds / hour)), "hour");
}

std::string text_table(const std::vector<TextColumn>& columns,
                       const std::vector<std::vector<std::string>>& rows) {
    std::vector<std::string> lines(rows.size() + 1);
    for (std::size_t column = 0; column < columns.size(); ++column) {
        const auto& [heading, least, left] = columns[column];
        std::size_t width = std::max(least, heading.size());
        for (const std::vector<std::string>& row : rows) {
            width = std::max(width, row[column].size());
        }
        for (std::size_t line = 0; line < lines.size(); ++line) {
            const std::string& cell = line == 0 ? heading : rows[line - 1][column];
            lines[line] +=
                left ? fmt::format("  {:<{}}", cell, width) : fmt::format("  {:>{}}", cell, width);
        }
    }
    std::string text;
    for (const std::string& line : lines) {
        text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
}

}  // namespace bucketwise
