// Tables of results: aligned text for people, Markdown, CSV for spreadsheets, JSON for programs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cli/shell/csv.h"
#include "sim/base/json.h"
#include "sim/base/names.h"

namespace bucketwise {

// --- tables of text ---

using Cells = std::vector<std::string>;

struct TextTable {
    Cells header;  // '\n' parts lines
    std::vector<Cells> rows = {};
    std::vector<bool> left = {};  // columns to align left; the others align right
};

// Indented by two, columns two blanks apart.
std::string aligned_text(const TextTable& table);

std::string markdown_table(const TextTable& table);

// --- tables of values ---

enum class TableFormat : std::uint8_t { text, csv, json };

template <>
inline constexpr auto names_of<TableFormat> = names("text", "csv", "json");

struct Column {
    std::string key;      // in CSV and JSON; ends in its unit
    std::string heading;  // in text; with its unit, lines parted by '\n'
    int decimals = 3;     // of numbers, in text; negative: significant digits
    bool in_text = true;  // else in CSV and JSON only
};

// Nothing: "-" in text, empty in CSV, left out in JSON.
using Cell = std::variant<std::monostate, std::string, std::int64_t, double>;

struct ResultTable {
    std::string title;  // before the table, in text
    std::vector<Column> columns;
    std::vector<std::vector<Cell>> rows;  // each as long as `columns`
    std::vector<std::string> notes;       // after the table, one line each
};

template <typename Value>
Cell cell_of(const std::optional<Value>& value, double factor = 1) {
    return value ? Cell(static_cast<double>(*value) * factor) : Cell();
}

// The relative error of `value`; nothing without either, or for a truth of zero.
std::optional<double> error_of(const std::optional<double>& value,
                               const std::optional<double>& truth);

// A column and its cell in a row.
template <typename Row>
struct ColumnOf {
    Column column;
    std::function<Cell(const Row&)> cell;
    bool always = true;  // else left out where no row has it
};

template <typename Row>
ResultTable table_of(const std::vector<ColumnOf<Row>>& columns, const std::vector<Row>& rows) {
    ResultTable table;
    table.rows.resize(rows.size());
    for (const ColumnOf<Row>& column : columns) {
        std::vector<Cell> cells;
        for (const Row& row : rows) {
            cells.push_back(column.cell(row));
        }
        const bool is_empty = std::ranges::all_of(
            cells, [](const Cell& cell) { return std::holds_alternative<std::monostate>(cell); });
        if (is_empty && !column.always) {
            continue;
        }
        table.columns.push_back(column.column);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            table.rows[i].push_back(std::move(cells[i]));
        }
    }
    return table;
}

// Cells by the keys of columns. A column without any cell is left out.
using NamedRow = std::map<std::string, Cell>;
ResultTable table_of(const std::vector<Column>& columns, const std::vector<NamedRow>& rows);

using TableKeys = std::vector<std::pair<std::string, Cell>>;  // by column

// The first row of a published table with these values. Throws InputError for a missing column.
std::optional<std::size_t> find_row(const CsvFile& file, const TableKeys& keys);

// `head`: keys of the JSON document beside "rows" and "notes". Precondition (asserted): every row
// has a cell per column.
std::string render(const ResultTable& table, TableFormat format, const Json& head);

}  // namespace bucketwise
