#include "cli/steps_csv.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "cli/shell/csv.h"
#include "cli/shell/files.h"
#include "sim/base/error.h"
#include "sim/base/units.h"

namespace bucketwise {
namespace {

constexpr std::string_view blanks = " \t\r\"";

struct Row {
    std::string_view first;
    std::string_view second;
};

class Parser {
  public:
    explicit Parser(const std::string& file) : file_(file) {}

    void add(std::string_view line, std::size_t number) {
        place_ = fmt::format("{}:{}", file_, number);
        const std::string_view text = trimmed(line, blanks);
        if (text.empty() || text.front() == '#') {
            return;
        }
        const Row row = split(text);
        const bool has_names = !number_in(row.first) && !number_in(row.second);
        if (!seen_ && has_names && row.first != "default" && row.second != "default") {
            read_names(row);
        } else {
            read_values(cap_is_first_ ? row : Row{row.second, row.first});
        }
        seen_ = true;
    }

    StepsCsv finish() {
        if (csv_.steps.empty()) {
            throw InputError(file_, "", "lines of a bucket cap in MiB and a time in ms", "none");
        }
        return std::move(csv_);
    }

  private:
    [[noreturn]] void fail(const std::string& expected, std::string_view got) const {
        throw InputError(place_, "", expected, fmt::format("\"{}\"", got));
    }

    [[nodiscard]] Row split(std::string_view text) const {
        const std::size_t comma = text.find(',');
        if (comma == std::string_view::npos ||
            text.find(',', comma + 1) != std::string_view::npos) {
            fail("two values, a bucket cap in MiB and a time in ms", text);
        }
        return {trimmed(text.substr(0, comma), blanks), trimmed(text.substr(comma + 1), blanks)};
    }

    void read_names(const Row& row) {
        cap_is_first_ = row.first == "bucket_cap_mib";
        const std::string_view cap = cap_is_first_ ? row.first : row.second;
        const std::string_view time = cap_is_first_ ? row.second : row.first;
        if (cap != "bucket_cap_mib" || (time != "step_ms" && time != "backward_ms")) {
            fail("the columns bucket_cap_mib and step_ms or backward_ms",
                 fmt::format("{},{}", row.first, row.second));
        }
        csv_.part = time == "step_ms" ? ObservedPart::step : ObservedPart::backward;
    }

    void read_values(const Row& row) {
        ObservedStep step;
        if (row.first != "default") {
            const std::optional<double> mib = number_in(row.first);
            constexpr double most_mib = 1 << 30;
            if (!mib || !(*mib > 0) || *mib > most_mib) {
                fail(fmt::format("a bucket cap above 0 and at most {:.0f} MiB, or default",
                                 most_mib),
                     row.first);
            }
            step.cap = Bytes{std::max<std::int64_t>(
                static_cast<std::int64_t>(*mib * static_cast<double>(bytes_per_mib)), 1)};
        }
        const std::optional<double> ms = number_in(row.second);
        constexpr double least_ms = 1e-6;
        constexpr double most_ms = 1e9;
        if (!ms || !(*ms >= least_ms) || *ms > most_ms) {
            fail(fmt::format("a time of {:g} to {:g} ms", least_ms, most_ms), row.second);
        }
        step.ms = *ms;
        csv_.steps.push_back(step);
    }

    const std::string& file_;
    std::string place_;
    StepsCsv csv_;
    bool seen_ = false;
    bool cap_is_first_ = true;
};

}  // namespace

StepsCsv parse_steps_csv(const std::string& text, const std::string& file) {
    Parser parser(file);
    std::istringstream lines(text);
    std::string line;
    for (std::size_t number = 1; std::getline(lines, line); ++number) {
        parser.add(line, number);
    }
    return parser.finish();
}

StepsCsv read_steps_csv(const std::string& path) {
    return parse_steps_csv(read_text_file(path), path);
}

}  // namespace bucketwise
