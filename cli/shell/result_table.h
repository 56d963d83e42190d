// Tables of results: aligned text for people, Markdown, CSV for spreadsheets, JSON for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

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

// A cell is text, a whole number or a number; null, "-" in text, empty in CSV and left out in JSON.
struct ResultTable {
    std::string title;  // before the table, in text
    std::vector<Column> columns;
    std::vector<std::vector<Json>> rows;  // each as long as `columns`
    std::vector<std::string> notes;       // after the table, one line each
};

// --- rows of named cells ---

// An object; a name that is missing is an empty cell.
using NamedRow = Json;

std::optional<double> number_in(const NamedRow& row, const std::string& name);
// How much too large a cell is against another one, as a share; nothing without either, or where
// the other is not above zero.
std::optional<double> error_in(const NamedRow& row, const std::string& name,
                               const std::string& against);

enum class Show : std::uint8_t {
    number,  // the cell itself
    error,   // error_in()
    ratio    // its share of another one
};

struct NamedColumn {
    Column column;
    std::string of = {};  // the cell's name; empty: the column's key
    double factor = 1;
    Show show = Show::number;
    std::string against = {};
    bool always = true;  // else left out where all its cells are empty
};

// An error in percent.
NamedColumn error_column(Column column, std::string of, std::string against);

ResultTable table_of(const std::vector<NamedColumn>& columns, const std::vector<NamedRow>& rows);
// A column without any cell is left out.
ResultTable table_of(const std::vector<Column>& columns, const std::vector<NamedRow>& rows);

using TableKeys = std::vector<std::pair<std::string, Json>>;  // by column

// The first row of a published table with these values. Throws InputError for a missing column.
std::optional<std::size_t> find_row(const CsvFile& file, const TableKeys& keys);

// `head`: keys of the JSON document beside "rows" and "notes". Precondition (asserted): every row
// has a cell per column.
std::string render(const ResultTable& table, TableFormat format, const Json& head);

}  // namespace bucketwise
