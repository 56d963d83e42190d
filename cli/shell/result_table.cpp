#include "cli/shell/result_table.h"

#include <cmath>
#include <cstddef>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/shell/files.h"
#include "sim/base/invariant.h"
#include "sim/text/foreign_text.h"

namespace bucketwise {
namespace {

constexpr std::size_t gap = 2;  // between columns, in blanks
constexpr std::size_t longest_cell = 100;

template <typename... Functions>
struct Overloaded : Functions... {
    using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

std::string number_text(double number, int decimals) {
    if (!std::isfinite(number)) {
        return "-";
    }
    return decimals < 0 ? fmt::format("{:.{}g}", number, -decimals)
                        : fmt::format("{:.{}f}", number, decimals);
}

std::string text_of(const Cell& cell, int decimals) {
    return std::visit(
        Overloaded{[](std::monostate) { return std::string("-"); },
                   [](const std::string& text) { return shown_line(text, longest_cell); },
                   [](std::int64_t number) { return fmt::format("{}", number); },
                   [decimals](double number) { return number_text(number, decimals); }},
        cell);
}

std::string csv_of(const Cell& cell) {
    return std::visit(Overloaded{[](std::monostate) { return std::string(); },
                                 [](const std::string& text) { return csv_text(text); },
                                 [](std::int64_t number) { return fmt::format("{}", number); },
                                 [](double number) {
                                     return std::isfinite(number) ? fmt::format("{:.9g}", number)
                                                                  : std::string();
                                 }},
                      cell);
}

// Names of things stand to the left, numbers to the right.
bool is_left(const ResultTable& table, std::size_t column) {
    return std::any_of(table.rows.begin(), table.rows.end(), [column](const auto& row) {
        return std::holds_alternative<std::string>(row[column]);
    });
}

struct TextColumn {
    std::vector<std::string> heading;  // its last line stands right above the cells
    std::vector<std::string> cells;
    std::size_t width = 0;
    bool left = false;

    [[nodiscard]] std::string padded(const std::string& text) const {
        return left ? fmt::format("{:<{}}", text, width) : fmt::format("{:>{}}", text, width);
    }
};

TextColumn text_column(const ResultTable& table, std::size_t index) {
    TextColumn column{.heading = split_at(table.columns[index].heading, '\n'),
                      .cells = {},
                      .left = is_left(table, index)};
    for (const auto& row : table.rows) {
        column.cells.push_back(text_of(row[index], table.columns[index].decimals));
    }
    for (const auto* texts : {&column.heading, &column.cells}) {
        for (const std::string& text : *texts) {
            column.width = std::max(column.width, text.size());
        }
    }
    return column;
}

std::string without_trailing_blanks(const std::string& line) {
    return line.substr(0, line.find_last_not_of(' ') + 1);
}

std::string text_report(const ResultTable& table) {
    std::vector<TextColumn> columns;
    std::size_t heading_lines = 0;
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
        if (table.columns[i].in_text) {
            columns.push_back(text_column(table, i));
            heading_lines = std::max(heading_lines, columns.back().heading.size());
        }
    }
    std::string text = table.title.empty() ? "" : table.title + "\n\n";
    const auto add_line = [&](const auto& text_of_column) {
        std::string line;
        for (const TextColumn& column : columns) {
            line += std::string(gap, ' ') + column.padded(text_of_column(column));
        }
        text += without_trailing_blanks(line) + "\n";
    };
    for (std::size_t line = 0; line < heading_lines; ++line) {
        add_line([&](const TextColumn& column) {
            const std::size_t missing = heading_lines - column.heading.size();
            return line < missing ? std::string() : column.heading[line - missing];
        });
    }
    for (std::size_t row = 0; row < table.rows.size(); ++row) {
        add_line([row](const TextColumn& column) { return column.cells[row]; });
    }
    for (std::size_t i = 0; i < table.notes.size(); ++i) {
        text += (i == 0 ? "\n" : "") + table.notes[i] + "\n";
    }
    return text;
}

std::string csv_report(const ResultTable& table) {
    std::string text;
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
        text += (i > 0 ? "," : "") + csv_text(table.columns[i].key);
    }
    text += '\n';
    for (const auto& row : table.rows) {
        for (std::size_t i = 0; i < row.size(); ++i) {
            text += (i > 0 ? "," : "") + csv_of(row[i]);
        }
        text += '\n';
    }
    return text;
}

std::string json_report(const ResultTable& table, const Json& head) {
    Json document = head;
    Json rows = Json::array();
    for (const auto& row : table.rows) {
        Json entry = Json::object();
        for (std::size_t i = 0; i < row.size(); ++i) {
            std::visit(Overloaded{[](std::monostate) {},
                                  [&](const auto& value) { entry[table.columns[i].key] = value; }},
                       row[i]);
        }
        rows.push_back(std::move(entry));
    }
    document["rows"] = std::move(rows);
    document["notes"] = table.notes;
    return json_text(document);
}

}  // namespace

std::optional<double> error_of(const std::optional<double>& value,
                               const std::optional<double>& truth) {
    return value && truth && *truth > 0 ? std::optional(*value / *truth - 1) : std::nullopt;
}

std::optional<std::size_t> find_row(const CsvFile& file, const TableKeys& keys) {
    for (std::size_t row = 0; row < file.rows(); ++row) {
        const auto has = [&](const auto& key) {
            const auto& [column, value] = key;
            if (const auto* text = std::get_if<std::string>(&value)) {
                return file.text(row, column) == *text;
            }
            const auto* whole = std::get_if<std::int64_t>(&value);
            return file.number(row, column) ==
                   (whole ? static_cast<double>(*whole) : std::get<double>(value));
        };
        if (std::all_of(keys.begin(), keys.end(), has)) {
            return row;
        }
    }
    return std::nullopt;
}

std::string render(const ResultTable& table, TableFormat format, const Json& head) {
    for (const auto& row : table.rows) {
        invariant(row.size() == table.columns.size(), "a cell per column");
    }
    switch (format) {
        case TableFormat::text:
            return text_report(table);
        case TableFormat::csv:
            return csv_report(table);
        case TableFormat::json:
            return json_report(table, head);
    }
    return {};
}

}  // namespace bucketwise
