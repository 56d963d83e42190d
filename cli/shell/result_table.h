// A table of results, described once: aligned text for people, CSV for spreadsheets, JSON for
// programs, and the rows that others published of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cli/shell/csv.h"
#include "sim/base/json.h"
#include "sim/base/names.h"

namespace bucketwise {

enum class TableFormat : std::uint8_t { text, csv, json };

template <>
inline constexpr auto names_of<TableFormat> = names("text", "csv", "json");

struct Column {
    std::string key;      // in CSV and JSON; ends in its unit
    std::string heading;  // in text; with its unit, lines parted by '\n'
    int decimals = 3;     // of numbers, in text; negative: so many significant digits
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

// How much too large `value` is, as a share of `truth`; nothing without either, or a truth of zero.
std::optional<double> error_of(const std::optional<double>& value,
                               const std::optional<double>& truth);

// A column of a table whose rows are values of one kind, and what stands in it.
template <typename Row>
struct ColumnOf {
    Column column;
    std::function<Cell(const Row&)> cell;
    bool always = true;  // else left out where no row has it
};

template <typename Row>
void append(std::vector<ColumnOf<Row>>& columns, const std::vector<ColumnOf<Row>>& more) {
    columns.insert(columns.end(), more.begin(), more.end());
}

template <typename Row>
ResultTable table_of(const std::vector<ColumnOf<Row>>& columns, const std::vector<Row>& rows) {
    ResultTable table;
    table.rows.resize(rows.size());
    for (const ColumnOf<Row>& column : columns) {
        std::vector<Cell> cells;
        for (const Row& row : rows) {
            cells.push_back(column.cell(row));
        }
        if (!column.always && std::all_of(cells.begin(), cells.end(), [](const Cell& cell) {
                return std::holds_alternative<std::monostate>(cell);
            })) {
            continue;
        }
        table.columns.push_back(column.column);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            table.rows[i].push_back(std::move(cells[i]));
        }
    }
    return table;
}

using TableKeys = std::vector<std::pair<std::string, Cell>>;  // by column

// The first row of a published table that has these values, texts as they are and numbers as
// numbers. Throws InputError for a column that is not there.
std::optional<std::size_t> find_row(const CsvFile& file, const TableKeys& keys);

// `head` are keys of the JSON document beside "rows" and "notes": what was run, on what, when.
// Precondition (asserted): every row has a cell per column.
std::string render(const ResultTable& table, TableFormat format, const Json& head);

}  // namespace bucketwise
