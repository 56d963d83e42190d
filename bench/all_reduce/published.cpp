#include "bench/all_reduce/published.h"

#include <cmath>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "cli/shell/csv.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

constexpr std::int64_t most_published_ranks = 1'000'000;
constexpr double most_bytes = 1e15;

// A row of a published table, and what it may say.
struct PublishedRow {
    const CsvFile& file;
    const std::string& path;
    std::size_t row = 0;

    [[nodiscard]] const std::string& text(std::string_view column) const {
        return file.text(row, column);
    }
    [[nodiscard]] std::optional<double> number_if_told(std::string_view column) const {
        return file.has_column(column) && !text(column).empty()
                   ? std::optional(file.number(row, column))
                   : std::nullopt;
    }
    // Above zero, so that an error can be a share of it.
    [[nodiscard]] std::optional<double> quantity(std::string_view column) const {
        const std::optional<double> number = number_if_told(column);
        if (number && !(*number > 0)) {
            fail(column, fmt::format("a number of {} above 0", column));
        }
        return number;
    }
    // What the table is about: its column has to be there, though a row may leave it out.
    [[nodiscard]] std::optional<double> time(std::string_view column) const {
        static_cast<void>(text(column));
        return quantity(column);
    }
    [[nodiscard]] std::int64_t whole(std::string_view column, double highest) const {
        const double number = file.number(row, column);
        if (!(number >= 1 && number <= highest) || number != std::floor(number)) {
            fail(column, fmt::format("a whole number of {} from 1 to {:.0f}", column, highest));
        }
        return static_cast<std::int64_t>(number);
    }
    [[noreturn]] void fail(std::string_view column, const std::string& expected) const {
        file.fail(row, column, expected);
    }
    [[nodiscard]] std::int64_t ranks() const {
        return whole("world_size", static_cast<double>(most_published_ranks));
    }
};

using Published = std::vector<PublishedAllReduce>;

void add_comparison(const PublishedRow& row, DType dtype, Published& published) {
    const std::string& comparison = row.text("comparison");
    if (comparison != "ring_vs_butterfly" && comparison != "ring_vs_library") {
        throw InputError(row.path, "", "ring_vs_butterfly or ring_vs_library",
                         "\"" + comparison + "\"");
    }
    const std::string other = comparison == "ring_vs_library" ? "library" : "direct";
    for (const std::string side : {"ring", "other"}) {
        PublishedAllReduce& entry = published.emplace_back();
        entry.place = {row.ranks(), row.whole("tensor_elements", most_bytes) * element_size(dtype),
                       side == "ring" ? side : other};
        entry.time_s = row.time(side + "_max_s");
        entry.peak_memory_kib = row.quantity(side + "_max_memory_kib");
        entry.largest_difference = row.number_if_told(side + "_difference");
    }
}

void add_by_size(const PublishedRow& row, const std::string& backend, Published& published) {
    constexpr std::int64_t ranks = 2;  // one node, two GPUs; what Gloo ran on is not told
    if (row.text("backend") != backend) {
        return;
    }
    const auto bytes =
        static_cast<double>(bytes_per_mib) * row.file.number(row.row, "data_size_mb");
    if (!(bytes >= 1 && bytes <= most_bytes)) {
        row.fail("data_size_mb", fmt::format("a data_size_mb of 1 to {:.0f} bytes", most_bytes));
    }
    published.push_back({.place = {ranks, {std::llround(bytes)}, "library"},
                         .time_s = row.time("time_s"),
                         .std_s = row.number_if_told("std_s")});
}

// As --format csv writes it.
void add_own(const PublishedRow& row, DType dtype, const std::string& backend,
             Published& published) {
    const bool other_backend = row.file.has_column("backend") && row.text("backend") != backend;
    const bool other_dtype = row.file.has_column("dtype") && row.text("dtype") != name_of(dtype);
    if (other_backend || other_dtype) {
        return;
    }
    published.push_back(
        {.place = {row.ranks(), {row.whole("bytes", most_bytes)}, row.text("algorithm")},
         .time_s = row.time("time_s"),
         .std_s = row.number_if_told("std_s"),
         .peak_memory_kib = row.quantity("max_memory_kib"),
         .largest_difference = row.number_if_told("difference")});
}

}  // namespace

std::vector<PublishedAllReduce> read_published_all_reduces(const std::string& path, DType dtype,
                                                           const std::string& backend) {
    const CsvFile file = CsvFile::read(path);
    Published published;
    for (std::size_t i = 0; i < file.rows(); ++i) {
        const PublishedRow row{file, path, i};
        if (file.has_column("comparison")) {
            add_comparison(row, dtype, published);
        } else if (file.has_column("data_size_mb")) {
            add_by_size(row, backend, published);
        } else {
            add_own(row, dtype, backend, published);
        }
    }
    if (published.empty()) {
        throw InputError(path, "", fmt::format("rows of {}", backend), "none");
    }
    return published;
}

}  // namespace bucketwise
