// Values separated by commas: lists, and CSV files that a user names, read as lines of named
// values.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bucketwise {

// The parts between separators, or between commas; empty ones too.
std::vector<std::string> split_at(const std::string& text, char separator);
std::vector<std::string> split_at_commas(const std::string& text);

// `text` without any of `blanks` at its ends.
std::string_view trimmed(std::string_view text, std::string_view blanks = " ");

// With every character that is listed replaced by what stands beside it.
std::string with_replaced(std::string_view text,
                          std::initializer_list<std::pair<char, std::string_view>> replacements);

// None: the text is not a number that a double holds, or more than one.
std::optional<double> number_in(std::string_view text);

// A value as a CSV file has it: in quotes where it holds a comma, a quote or the end of a line
// (RFC 4180).
std::string csv_text(const std::string& value);

class CsvFile {
  public:
    // The first line names the columns. Empty lines and lines that begin with # are skipped. Throws
    // InputError that names the line: one without a value per column, a column named twice, none.
    static CsvFile read(const std::string& path);
    static CsvFile parse(const std::string& text, const std::string& path);

    [[nodiscard]] std::size_t rows() const { return rows_.size(); }
    [[nodiscard]] bool has_column(std::string_view name) const;

    // Throws InputError when one is missing.
    void require_columns(const std::vector<std::string>& names) const;

    // Throw InputError when there is no such column, and number() when the value is no number.
    [[nodiscard]] const std::string& text(std::size_t row, std::string_view column) const;
    [[nodiscard]] double number(std::size_t row, std::string_view column) const;

    // Throws InputError that names the line and what stands in the column.
    [[noreturn]] void fail(std::size_t row, std::string_view column,
                           const std::string& expected) const;

  private:
    struct Row {
        std::size_t line = 0;
        std::vector<std::string> values;
    };
    [[nodiscard]] std::string place(const Row& row) const;
    [[nodiscard]] std::size_t index_of(std::string_view column) const;

    std::string path_;
    std::vector<std::string> columns_;
    std::vector<Row> rows_;
};

}  // namespace bucketwise
