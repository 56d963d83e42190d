// A table of results: aligned text for people, CSV for spreadsheets, JSON for programs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/base/json.h"

namespace bucketwise {

enum class TableFormat : std::uint8_t { text, csv, json };

constexpr std::array<TableFormat, 3> all_table_formats{TableFormat::text, TableFormat::csv,
                                                       TableFormat::json};

std::string_view name_of(TableFormat format);

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

// `head` are keys of the JSON document beside "rows" and "notes": what was run, on what, when.
// Precondition (asserted): every row has a cell per column.
std::string render(const ResultTable& table, TableFormat format, const Json& head);

}  // namespace bucketwise
