#include "cli/shell/result_table.h"

#include <cmath>
#include <cstddef>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/shell/files.h"
#include "sim/base/invariant.h"
#include "sim/base/transformed.h"
#include "sim/text/foreign_text.h"
#include "sim/text/marked_up.h"

namespace bucketwise {
namespace {

constexpr std::size_t longest_cell = 100;

std::string text_of(const Cell& cell, int decimals) {
    if (const auto* text = std::get_if<std::string>(&cell)) {
        return shown_line(*text, longest_cell);
    }
    if (const auto* whole = std::get_if<std::int64_t>(&cell)) {
        return std::to_string(*whole);
    }
    const auto* number = std::get_if<double>(&cell);
    if (number == nullptr || !std::isfinite(*number)) {
        return "-";
    }
    return decimals < 0 ? fmt::format("{:.{}g}", *number, -decimals)
                        : fmt::format("{:.{}f}", *number, decimals);
}

std::string csv_of(const Cell& cell) {
    if (const auto* text = std::get_if<std::string>(&cell)) {
        return csv_text(*text);
    }
    if (const auto* whole = std::get_if<std::int64_t>(&cell)) {
        return std::to_string(*whole);
    }
    const auto* number = std::get_if<double>(&cell);
    return number != nullptr && std::isfinite(*number) ? fmt::format("{:.9g}", *number) : "";
}

std::string text_report(const ResultTable& table) {
    TextTable text;
    text.rows.resize(table.rows.size());
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
        const Column& column = table.columns[c];
        if (!column.in_text) {
            continue;
        }
        text.header.push_back(column.heading);
        // Names align left, numbers right.
        text.left.push_back(std::ranges::any_of(table.rows, [c](const auto& row) {
            return std::holds_alternative<std::string>(row[c]);
        }));
        for (std::size_t row = 0; row < table.rows.size(); ++row) {
            text.rows[row].push_back(text_of(table.rows[row][c], column.decimals));
        }
    }
    return (table.title.empty() ? "" : table.title + "\n\n") + aligned_text(text) +
           (table.notes.empty() ? "" : fmt::format("\n{}\n", fmt::join(table.notes, "\n")));
}

std::string csv_report(const ResultTable& table) {
    const auto line = [](const auto& cells) { return fmt::format("{}\n", fmt::join(cells, ",")); };
    std::string text =
        line(transformed(table.columns, [](const Column& column) { return csv_text(column.key); }));
    for (const auto& row : table.rows) {
        text += line(transformed(row, csv_of));
    }
    return text;
}

std::string json_report(const ResultTable& table, const Json& head) {
    Json document = head;
    Json& rows = document["rows"] = Json::array();
    for (const auto& row : table.rows) {
        Json& entry = rows.emplace_back(Json::object());
        for (std::size_t i = 0; i < row.size(); ++i) {
            std::visit(
                [&]<typename Value>(const Value& value) {
                    if constexpr (!std::is_same_v<Value, std::monostate>) {
                        entry[table.columns[i].key] = value;
                    }
                },
                row[i]);
        }
    }
    document["notes"] = table.notes;
    return json_text(document);
}

}  // namespace

std::string aligned_text(const TextTable& table) {
    const std::vector<Cells> headings =
        transformed(table.header, [](const std::string& text) { return split_at(text, '\n'); });
    std::size_t lines = 0;
    std::vector<std::size_t> widths;
    for (std::size_t c = 0; c < headings.size(); ++c) {
        lines = std::max(lines, headings[c].size());
        widths.push_back(std::ranges::max(headings[c], {}, &std::string::size).size());
        for (const Cells& row : table.rows) {
            widths[c] = std::max(widths[c], row[c].size());
        }
    }
    std::string text;
    const auto add_line = [&](const auto& cell_in) {
        for (std::size_t c = 0; c < widths.size(); ++c) {
            const bool left = c < table.left.size() && table.left[c];
            text += left ? fmt::format("  {:<{}}", cell_in(c), widths[c])
                         : fmt::format("  {:>{}}", cell_in(c), widths[c]);
        }
        text.erase(text.find_last_not_of(' ') + 1);
        text += '\n';
    };
    // A heading's last line stands right above the cells.
    for (std::size_t line = 0; line < lines; ++line) {
        add_line([&](std::size_t c) {
            const std::size_t missing = lines - headings[c].size();
            return line < missing ? std::string() : headings[c][line - missing];
        });
    }
    for (const Cells& row : table.rows) {
        add_line([&](std::size_t c) { return row[c]; });
    }
    return text;
}

std::string markdown_table(const TextTable& table) {
    const auto line = [](const Cells& cells) {
        return fmt::format("| {} |\n", fmt::join(transformed(cells, markdown_escaped), " | "));
    };
    std::string text = line(table.header) + "|";
    for (std::size_t i = 0; i < table.header.size(); ++i) {
        text += "---|";
    }
    text += '\n';
    for (const Cells& row : table.rows) {
        text += line(row);
    }
    return text + '\n';
}

std::optional<double> error_of(const std::optional<double>& value,
                               const std::optional<double>& truth) {
    return value && truth && *truth > 0 ? std::optional(*value / *truth - 1) : std::nullopt;
}

ResultTable table_of(const std::vector<Column>& columns, const std::vector<NamedRow>& rows) {
    return table_of(transformed(columns,
                                [](const Column& column) {
                                    const auto cell = [key = column.key](const NamedRow& row) {
                                        const auto found = row.find(key);
                                        return found == row.end() ? Cell() : found->second;
                                    };
                                    return ColumnOf<NamedRow>{column, cell, false};
                                }),
                    rows);
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
        if (std::ranges::all_of(keys, has)) {
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
