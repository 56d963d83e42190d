#include "cli/steps_csv.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "cli/shell/csv.h"
#include "cli/shell/files.h"
#include "sim/base/error.h"
#include "sim/base/units.h"

namespace bucketwise {
namespace {

// `place`: the file's line.
[[noreturn]] void refuse_line(const std::string& place, const std::string& expected,
                              std::string_view got) {
    throw InputError(place, "", expected, fmt::format("\"{}\"", got));
}

ObservedStep step_in(const std::string& place, std::string_view cap, std::string_view time) {
    ObservedStep step;
    if (cap != "default") {
        const std::optional<double> mib = number_in(cap);
        constexpr double most_mib = 1 << 30;
        if (!mib || !(*mib > 0) || *mib > most_mib) {
            refuse_line(
                place,
                fmt::format("a bucket cap above 0 and at most {:.0f} MiB, or default", most_mib),
                cap);
        }
        step.cap = Bytes{std::max<std::int64_t>(
            static_cast<std::int64_t>(*mib * static_cast<double>(bytes_per_mib)), 1)};
    }
    const std::optional<double> ms = number_in(time);
    constexpr double least_ms = 1e-6;
    constexpr double most_ms = 1e9;
    if (!ms || !(*ms >= least_ms) || *ms > most_ms) {
        refuse_line(place, fmt::format("a time of {:g} to {:g} ms", least_ms, most_ms), time);
    }
    step.ms = *ms;
    return step;
}

}  // namespace

StepsCsv parse_steps_csv(const std::string& text, const std::string& file) {
    constexpr std::string_view blanks = " \t\r\"";
    StepsCsv csv;
    bool is_first = true;
    std::size_t cap_column = 0;
    std::istringstream lines(text);
    std::string line;
    for (std::size_t number = 1; std::getline(lines, line); ++number) {
        const std::string_view trimmed_line = trimmed(line, blanks);
        if (trimmed_line.empty() || trimmed_line.front() == '#') {
            continue;
        }
        const std::string place = fmt::format("{}:{}", file, number);
        const std::vector<std::string> parts = split_at_commas(std::string(trimmed_line));
        if (parts.size() != 2) {
            refuse_line(place, "two values, a bucket cap in MiB and a time in ms", trimmed_line);
        }
        const auto value = [&](std::size_t column) { return trimmed(parts[column], blanks); };
        const bool has_names = !number_in(value(0)) && !number_in(value(1)) &&
                               value(0) != "default" && value(1) != "default";
        if (std::exchange(is_first, false) && has_names) {
            cap_column = value(0) == "bucket_cap_mib" ? 0 : 1;
            const std::string_view time = value(1 - cap_column);
            if (value(cap_column) != "bucket_cap_mib" ||
                (time != "step_ms" && time != "backward_ms")) {
                refuse_line(place, "the columns bucket_cap_mib and step_ms or backward_ms",
                            fmt::format("{},{}", value(0), value(1)));
            }
            csv.part = time == "step_ms" ? ObservedPart::step : ObservedPart::backward;
            continue;
        }
        csv.steps.push_back(step_in(place, value(cap_column), value(1 - cap_column)));
    }
    if (csv.steps.empty()) {
        throw InputError(file, "", "lines of a bucket cap in MiB and a time in ms", "none");
    }
    return csv;
}

StepsCsv read_steps_csv(const std::string& path) {
    return parse_steps_csv(read_text_file(path), path);
}

}  // namespace bucketwise
