#include "cli/shell/result_table.h"

#include <algorithm>
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

std::string text_of(const Json& cell, int decimals) {
    if (cell.is_string()) {
        return shown_line(cell.get_ref<const std::string&>(), longest_cell);
    }
    if (cell.is_number_integer()) {
        return cell.dump();
    }
    if (cell.is_null() || !std::isfinite(cell.get<double>())) {
        return "-";
    }
    return decimals < 0 ? fmt::format("{:.{}g}", cell.get<double>(), -decimals)
                        : fmt::format("{:.{}f}", cell.get<double>(), decimals);
}

std::string csv_of(const Json& cell) {
    if (cell.is_string()) {
        return csv_text(cell.get_ref<const std::string&>());
    }
    if (cell.is_number_integer()) {
        return cell.dump();
    }
    const bool is_number = cell.is_number() && std::isfinite(cell.get<double>());
    return is_number ? fmt::format("{:.9g}", cell.get<double>()) : "";
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
        text.left.push_back(
            std::ranges::any_of(table.rows, [c](const auto& row) { return row[c].is_string(); }));
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
            if (!row[i].is_null()) {
                entry[table.columns[i].key] = row[i];
            }
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

std::optional<double> number_in(const NamedRow& row, const std::string& name) {
    const auto found = row.find(name);
    return found != row.end() && found->is_number() ? std::optional(found->get<double>())
                                                    : std::nullopt;
}

std::optional<double> error_in(const NamedRow& row, const std::string& name,
                               const std::string& against) {
    const auto value = number_in(row, name);
    const auto truth = number_in(row, against);
    return value && truth && *truth > 0 ? std::optional(*value / *truth - 1) : std::nullopt;
}

namespace {

Json cell_in(const NamedRow& row, const NamedColumn& column) {
    const std::string& name = column.of.empty() ? column.column.key : column.of;
    const auto scaled = [&](const std::optional<double>& value) {
        return value ? Json(*value * column.factor) : Json();
    };
    if (column.show == Show::error) {
        return scaled(error_in(row, name, column.against));
    }
    if (column.show == Show::ratio) {
        const auto part = number_in(row, name);
        const auto whole = number_in(row, column.against);
        return part && whole ? Json(*part / *whole) : Json();
    }
    return column.factor == 1 ? row.value(name, Json()) : scaled(number_in(row, name));
}

}  // namespace

NamedColumn error_column(Column column, std::string of, std::string against) {
    return {.column = std::move(column),
            .of = std::move(of),
            .factor = 100,
            .show = Show::error,
            .against = std::move(against)};
}

ResultTable table_of(const std::vector<NamedColumn>& columns, const std::vector<NamedRow>& rows) {
    ResultTable table;
    table.rows.resize(rows.size());
    for (const NamedColumn& column : columns) {
        const std::vector<Json> cells =
            transformed(rows, [&](const NamedRow& row) { return cell_in(row, column); });
        if (!column.always && std::ranges::all_of(cells, &Json::is_null)) {
            continue;
        }
        table.columns.push_back(column.column);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            table.rows[i].push_back(cells[i]);
        }
    }
    return table;
}

ResultTable table_of(const std::vector<Column>& columns, const std::vector<NamedRow>& rows) {
    return table_of(transformed(columns,
                                [](const Column& column) {
                                    return NamedColumn{.column = column, .always = false};
                                }),
                    rows);
}

std::optional<std::size_t> find_row(const CsvFile& file, const TableKeys& keys) {
    for (std::size_t row = 0; row < file.rows(); ++row) {
        if (std::ranges::all_of(keys, [&](const auto& key) {
                const auto& [column, value] = key;
                return value.is_string() ? file.text(row, column) == value
                                         : file.number(row, column) == value;
            })) {
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
