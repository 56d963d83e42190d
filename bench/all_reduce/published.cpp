#include <cmath>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "bench/all_reduce/rows.h"
#include "cli/shell/csv.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

constexpr double most_published_ranks = 1e6;
constexpr double most_bytes = 1e15;

// One row of a published table.
struct PublishedRow {
    const CsvFile& file;
    std::size_t row = 0;

    [[nodiscard]] const std::string& text(std::string_view column) const {
        return file.text(row, column);
    }
    [[nodiscard]] bool is(std::string_view column, std::string_view value) const {
        return !file.has_column(column) || text(column) == value;
    }
    [[nodiscard]] std::optional<double> number(std::string_view column) const {
        return file.has_column(column) && !text(column).empty()
                   ? std::optional(file.number(row, column))
                   : std::nullopt;
    }
    // Above zero, so that an error can be a share of it.
    [[nodiscard]] std::optional<double> quantity(std::string_view column) const {
        const std::optional<double> value = number(column);
        if (value && !(*value > 0)) {
            file.fail(row, column, fmt::format("a number of {} above 0", column));
        }
        return value;
    }
    // The table's subject: its column has to be there, though a row may leave it empty.
    [[nodiscard]] std::optional<double> time(std::string_view column) const {
        static_cast<void>(text(column));
        return quantity(column);
    }
    [[nodiscard]] std::int64_t whole(std::string_view column, double highest) const {
        const double value = file.number(row, column);
        if (!(value >= 1 && value <= highest) || value != std::floor(value)) {
            file.fail(row, column,
                      fmt::format("a whole number of {} from 1 to {:.0f}", column, highest));
        }
        return static_cast<std::int64_t>(value);
    }
    [[nodiscard]] std::int64_t ranks() const { return whole("world_size", most_published_ranks); }
};

using Published = std::vector<PublishedAllReduce>;

void add_comparison(const PublishedRow& row, const std::string& path, DType dtype,
                    Published& published) {
    const std::string& comparison = row.text("comparison");
    if (comparison != "ring_vs_butterfly" && comparison != "ring_vs_library") {
        throw InputError(path, "", "ring_vs_butterfly or ring_vs_library",
                         "\"" + comparison + "\"");
    }
    const std::string other = comparison == "ring_vs_library" ? "library" : "direct";
    for (const std::string side : {"ring", "other"}) {
        published.push_back(
            {.place = {row.ranks(), row.whole("tensor_elements", most_bytes) * element_size(dtype),
                       side == "ring" ? side : other},
             .time_s = row.time(side + "_max_s"),
             .peak_memory_kib = row.quantity(side + "_max_memory_kib"),
             .largest_difference = row.number(side + "_difference")});
    }
}

void add_by_size(const PublishedRow& row, Published& published) {
    constexpr std::int64_t ranks = 2;  // one node, two GPUs; Gloo's hardware is unknown
    const auto bytes =
        static_cast<double>(bytes_per_mib) * row.file.number(row.row, "data_size_mb");
    if (!(bytes >= 1 && bytes <= most_bytes)) {
        row.file.fail(row.row, "data_size_mb",
                      fmt::format("a data_size_mb of 1 to {:.0f} bytes", most_bytes));
    }
    published.push_back({.place = {ranks, {std::llround(bytes)}, "library"},
                         .time_s = row.time("time_s"),
                         .std_s = row.number("std_s")});
}

void add_own(const PublishedRow& row, Published& published) {
    published.push_back(
        {.place = {row.ranks(), {row.whole("bytes", most_bytes)}, row.text("algorithm")},
         .time_s = row.time("time_s"),
         .std_s = row.number("std_s"),
         .peak_memory_kib = row.quantity("max_memory_kib"),
         .largest_difference = row.number("difference")});
}

}  // namespace

std::vector<PublishedAllReduce> read_published_all_reduces(const std::string& path, DType dtype,
                                                           const std::string& backend) {
    const CsvFile file = CsvFile::read(path);
    Published published;
    for (std::size_t i = 0; i < file.rows(); ++i) {
        const PublishedRow row{file, i};
        if (file.has_column("comparison")) {
            add_comparison(row, path, dtype, published);
        } else if (file.has_column("data_size_mb")) {
            if (row.text("backend") == backend) {
                add_by_size(row, published);
            }
        } else if (row.is("backend", backend) && row.is("dtype", name_of(dtype))) {
            add_own(row, published);
        }
    }
    if (published.empty()) {
        throw InputError(path, "", fmt::format("rows of {}", backend), "none");
    }
    return published;
}

}  // namespace bucketwise
