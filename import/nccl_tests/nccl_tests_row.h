// One row of a table that nccl-tests (or rccl-tests) prints: a size, and what a collective of it
// took out of place and in place.
//
//   size(B) count type redop [root] {time(us) algbw(GB/s) busbw(GB/s) [#wrong] [4 of -I]} x 2
//   [date]
//
// Which columns there are is told from the row itself, as logs lose their headers: algbw is bytes
// over time, so a wrong guess does not agree with itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/dtype.h"

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
    Printed time_us;     // with -C what launching took; algbw is of the whole time all the same
    Printed algbw;       // GB/s: bytes / time
    Printed busbw;       // GB/s; of an all-reduce on n ranks 2 (n - 1) / n times algbw
    bool wrong = false;  // elements were, as the test's check found
    bool operator==(const NcclTestsHalf&) const = default;
};

struct NcclTestsRow {
    std::int64_t line = 0;
    std::int64_t bytes = 0;
    std::int64_t count = 0;
    std::string dtype = {};  // as printed: float, half, ...
    std::string redop = {};  // sum, ..., none; empty where the table has no such column
    std::optional<std::int64_t> root = {};
    std::vector<NcclTestsHalf> halves = {};  // those that agree with themselves
    bool incomplete = false;                 // there should be more of them
    std::string date = {};                   // of -S; empty: without
    bool operator==(const NcclTestsRow&) const = default;
};

// What the heading of a table says.
struct NcclTestsColumns {
    std::optional<bool> root = {};  // none: no heading was seen
    bool cpu_time = false;          // -C
    bool operator==(const NcclTestsColumns&) const = default;
};

// Nothing where the line is no heading.
std::optional<NcclTestsColumns> read_nccl_tests_heading(std::string_view line);

// Nothing where the line is no row; without halves where it is one but nothing of it can be used.
// Whatever a launcher or a terminal put before the row is passed over.
std::optional<NcclTestsRow> read_nccl_tests_row(std::string_view line,
                                                const NcclTestsColumns& columns);

// 0 for names that are no element types of nccl-tests.
std::int64_t nccl_element_bytes(std::string_view dtype);

// Nothing for what gradients cannot be: nccl-tests has whole numbers and 8 bits beside.
std::optional<DType> nccl_gradient_dtype(std::string_view dtype);

// Others are no times of a message, and would not fit a measurement.
bool can_be_measured(double us);

// Whether algbw is bytes over time, to what was printed of them. With -C, whether launching took no
// longer than all.
bool agrees(const NcclTestsHalf& half, std::int64_t bytes, bool cpu_time);

// The words of a line; bars and commas part them as spaces do.
std::vector<std::string_view> words_of(std::string_view line);

// A whole number, all of the text.
std::optional<std::int64_t> whole_number_in(std::string_view text);

}  // namespace bucketwise
