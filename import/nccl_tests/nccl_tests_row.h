// One row of a table that nccl-tests (or rccl-tests) prints: a size, and a collective's times out
// of place and in place.
//
//   size(B) count type redop [root] {time(us) algbw(GB/s) busbw(GB/s) [#wrong] [4 of -I]} x 2
//   [date]
//
// The row itself tells its columns, as logs lose their headings: algbw is bytes over time, so a
// wrong guess contradicts itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bucketwise {

// A printed number, exact to half a unit of its last digit.
struct Printed {
    double value = 0;
    double half_unit = 0;
    bool operator==(const Printed&) const = default;

    [[nodiscard]] double lowest() const { return value - half_unit; }
    [[nodiscard]] double highest() const { return value + half_unit; }
};

// Out of place or in place.
struct NcclTestsHalf {
    Printed time_us;     // with -C the time to launch; algbw is of the whole time nevertheless
    Printed algbw;       // GB/s: bytes / time
    Printed busbw;       // GB/s; an all-reduce's on n ranks is 2 (n - 1) / n times algbw
    bool wrong = false;  // the test's check found wrong elements
    bool operator==(const NcclTestsHalf&) const = default;
};

struct NcclTestsRow {
    std::int64_t line = 0;
    std::int64_t bytes = 0;
    std::int64_t count = 0;
    std::string dtype = {};  // as printed: float, half, ...
    std::string redop = {};  // sum, ..., none; empty where the table has no such column
    std::optional<std::int64_t> root = {};
    std::vector<NcclTestsHalf> halves = {};  // without those that contradict themselves
    bool incomplete = false;                 // a half is missing
    std::string date = {};                   // of -S; empty: without
    bool operator==(const NcclTestsRow&) const = default;
};

// The heading of a table.
struct NcclTestsColumns {
    std::optional<bool> root = {};  // nothing: no heading was seen
    bool cpu_time = false;          // -C
    bool is_gather = false;         // of all-gathers or reduce-scatters
    bool operator==(const NcclTestsColumns&) const = default;
};

// Nothing where the line is no heading.
std::optional<NcclTestsColumns> read_nccl_tests_heading(std::string_view line);

// Nothing where the line is no row; a row without halves where none can be used. Passes over the
// prefixes of launchers and terminals.
std::optional<NcclTestsRow> read_nccl_tests_row(std::string_view line,
                                                const NcclTestsColumns& columns);

// Whether the line holds numbers alone, as the rest of a row that was torn.
bool is_part_of_row(std::string_view line);

// 0 for names that are no element types of nccl-tests.
std::int64_t nccl_element_bytes(std::string_view dtype);

// Whether it can be the time of a message, and fits a measurement.
bool can_be_measured(double us);

// The words of a line, separated by spaces, bars and commas.
std::vector<std::string_view> words_of(std::string_view line);

// A whole number, all of the text.
std::optional<std::int64_t> whole_number_in(std::string_view text);

}  // namespace bucketwise
