// Values separated by commas: lists, and CSV files with named columns.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bucketwise {

// The parts between separators, or between commas; empty parts too.
std::vector<std::string> split_at(const std::string& text, char separator);
std::vector<std::string> split_at_commas(const std::string& text);

// `text` without any of `blanks` at its ends.
std::string_view trimmed(std::string_view text, std::string_view blanks = " ");

// With every listed character replaced by the text beside it.
std::string with_replaced(std::string_view text,
                          std::initializer_list<std::pair<char, std::string_view>> replacements);

// Empty unless the text is one number that a double holds.
std::optional<double> number_in(std::string_view text);

// In quotes where the value holds a comma, a quote or the end of a line (RFC 4180).
std::string csv_text(const std::string& value);

class CsvFile {
  public:
    // The first line names the columns. Empty lines and lines that begin with # are skipped. Throws
    // InputError, which names the line, for a line without a value per column, for a column named
    // twice, and for no columns.
    static CsvFile read(const std::string& path);
    static CsvFile parse(const std::string& text, const std::string& path);

    [[nodiscard]] std::size_t rows() const { return rows_.size(); }
    [[nodiscard]] bool has_column(std::string_view name) const;

    // Throws InputError when one is missing.
    void require_columns(const std::vector<std::string>& names) const;

    // Throw InputError for a missing column, and number() for another value.
    [[nodiscard]] const std::string& text(std::size_t row, std::string_view column) const;
    [[nodiscard]] double number(std::size_t row, std::string_view column) const;

    // Throws InputError, which names the line and the column's value.
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
