#include "cli/shell/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include <fmt/format.h>

#include "cli/shell/files.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

// Removes quotes around a value; a doubled quote within is one.
std::vector<std::string> values_in(const std::string& line) {
    std::vector<std::string> values(1);
    bool quoted = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
        const char c = line[i];
        if (c == '"') {
            const bool is_doubled = quoted && i + 1 < line.size() && line[i + 1] == '"';
            if (is_doubled) {
                values.back() += line[++i];
            } else {
                quoted = !quoted;
            }
        } else if (c == ',' && !quoted) {
            values.emplace_back();
        } else {
            values.back() += c;
        }
    }
    return values;
}

}  // namespace

std::vector<std::string> split_at(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::size_t begin = 0;
    while (begin <= text.size()) {
        const std::size_t end = std::min(text.find(separator, begin), text.size());
        parts.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

std::vector<std::string> split_at_commas(const std::string& text) {
    return split_at(text, ',');
}

std::string_view trimmed(std::string_view text, std::string_view blanks) {
    const std::size_t begin = text.find_first_not_of(blanks);
    return begin == std::string_view::npos
               ? std::string_view()
               : text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

std::string with_replaced(std::string_view text,
                          std::initializer_list<std::pair<char, std::string_view>> replacements) {
    std::string replaced;
    for (const char c : text) {
        const auto* const found =
            std::ranges::find(replacements, c, &std::pair<char, std::string_view>::first);
        replaced += found == replacements.end() ? std::string_view(&c, 1) : found->second;
    }
    return replaced;
}

std::optional<double> number_in(std::string_view text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc{} && end == text.data() + text.size();
    return whole ? std::optional(value) : std::nullopt;
}

std::string csv_text(const std::string& value) {
    if (value.find_first_of(",\"\n\r") == std::string::npos) {
        return value;
    }
    return '"' + with_replaced(value, {{'"', "\"\""}}) + '"';
}

CsvFile CsvFile::read(const std::string& path) {
    return parse(read_text_file(path), path);
}

CsvFile CsvFile::parse(const std::string& text, const std::string& path) {
    CsvFile file;
    file.path_ = path;
    std::istringstream lines(text);
    std::string line;
    for (std::size_t number = 1; std::getline(lines, line); ++number) {
        if (!line.empty() && line.back() == '\r') {
            line.pop_back();
        }
        if (line.empty() || line.front() == '#') {
            continue;
        }
        Row row{number, values_in(line)};
        if (file.columns_.empty()) {
            file.columns_ = std::move(row.values);
            std::vector<std::string> sorted = file.columns_;
            std::sort(sorted.begin(), sorted.end());
            const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
            if (twice != sorted.end()) {
                throw InputError(file.place(row), "", "each column once",
                                 "\"" + *twice + "\" twice");
            }
            continue;
        }
        if (row.values.size() != file.columns_.size()) {
            throw InputError(file.place(row), "", fmt::format("{} values", file.columns_.size()),
                             fmt::format("{}", row.values.size()));
        }
        file.rows_.push_back(std::move(row));
    }
    if (file.columns_.empty()) {
        throw InputError(path, "", "a line with the names of columns", "none");
    }
    return file;
}

bool CsvFile::has_column(std::string_view name) const {
    return std::find(columns_.begin(), columns_.end(), name) != columns_.end();
}

std::size_t CsvFile::index_of(std::string_view column) const {
    const auto found = std::find(columns_.begin(), columns_.end(), column);
    if (found == columns_.end()) {
        throw InputError(path_, "", fmt::format("a column \"{}\"", column),
                         fmt::format("{}", fmt::join(columns_, ", ")));
    }
    return static_cast<std::size_t>(found - columns_.begin());
}

void CsvFile::require_columns(const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
        static_cast<void>(index_of(name));
    }
}

const std::string& CsvFile::text(std::size_t row, std::string_view column) const {
    return rows_[row].values[index_of(column)];
}

double CsvFile::number(std::size_t row, std::string_view column) const {
    const std::string& value = text(row, column);
    const std::optional<double> number = number_in(value);
    if (!number || !std::isfinite(*number)) {
        fail(row, column, fmt::format("a finite number of {}", column));
    }
    return *number;
}

void CsvFile::fail(std::size_t row, std::string_view column, const std::string& expected) const {
    throw InputError(place(rows_[row]), "", expected, fmt::format("\"{}\"", text(row, column)));
}

std::string CsvFile::place(const Row& row) const {
    return fmt::format("{}:{}", path_, row.line);
}

}  // namespace bucketwise
