#include <cmath>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "bench/all_reduce/all_reduce.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

constexpr double most_bytes = 1e15;

// One row of a published table.
struct PublishedRow {
    const CsvFile& file;
    std::size_t row = 0;
    DType dtype = DType::float32;

    [[nodiscard]] const std::string& text(std::string_view column) const {
        return file.text(row, column);
    }
    [[nodiscard]] bool is(std::string_view column, std::string_view value) const {
        return !file.has_column(column) || text(column) == value;
    }
    [[nodiscard]] std::int64_t whole(std::string_view column, double highest) const {
        const double value = file.number(row, column);
        if (!(value >= 1 && value <= highest) || value != std::floor(value)) {
            file.fail(row, column,
                      fmt::format("a whole number of {} from 1 to {:.0f}", column, highest));
        }
        return static_cast<std::int64_t>(value);
    }
    [[nodiscard]] std::int64_t ranks() const { return whole("world_size", 1e6); }

    // Times and memory are above zero, so that an error can be a share of them. The column of the
    // time has to be there, though a row may leave it empty.
    [[nodiscard]] BenchRow at(std::int64_t ranks, Bytes size, const std::string& algorithm,
                              const std::string& time, const std::string& deviation,
                              const std::string& memory, const std::string& difference) const {
        BenchRow cells = row_at(ranks, size, algorithm, dtype);
        static_cast<void>(text(time));
        const auto add = [&](const char* name, const std::string& column, bool above_zero) {
            if (!file.has_column(column) || text(column).empty()) {
                return;
            }
            const double value = file.number(row, column);
            if (above_zero && !(value > 0)) {
                file.fail(row, column, fmt::format("a number of {} above 0", column));
            }
            cells[name] = value;
        };
        add("published_time_s", time, true);
        add("published_std_s", deviation, false);
        add("published_memory_kib", memory, true);
        add("published_difference", difference, false);
        if (const auto kib = number_in(cells, "published_memory_kib")) {
            cells["published_peak_bytes"] = *kib * 1024;
        }
        return cells;
    }
};

void add_comparison(const PublishedRow& row, const std::string& path, BenchRows& published) {
    const std::string& comparison = row.text("comparison");
    if (comparison != "ring_vs_butterfly" && comparison != "ring_vs_library") {
        throw InputError(path, "", "ring_vs_butterfly or ring_vs_library",
                         "\"" + comparison + "\"");
    }
    const Bytes size = row.whole("tensor_elements", most_bytes) * element_size(row.dtype);
    const std::string other = comparison == "ring_vs_library" ? "library" : "direct";
    for (const std::string side : {"ring", "other"}) {
        published.push_back(row.at(row.ranks(), size, side == "ring" ? side : other,
                                   side + "_max_s", "", side + "_max_memory_kib",
                                   side + "_difference"));
    }
}

BenchRow by_size(const PublishedRow& row) {
    constexpr std::int64_t ranks = 2;  // one node, two GPUs; Gloo's hardware is unknown
    const auto bytes =
        static_cast<double>(bytes_per_mib) * row.file.number(row.row, "data_size_mb");
    if (!(bytes >= 1 && bytes <= most_bytes)) {
        row.file.fail(row.row, "data_size_mb",
                      fmt::format("a data_size_mb of 1 to {:.0f} bytes", most_bytes));
    }
    return row.at(ranks, {std::llround(bytes)}, "library", "time_s", "std_s", "", "");
}

}  // namespace

BenchRows read_published_all_reduces(const std::string& path, DType dtype,
                                     const std::string& backend) {
    const CsvFile file = CsvFile::read(path);
    BenchRows published;
    for (std::size_t i = 0; i < file.rows(); ++i) {
        const PublishedRow row{file, i, dtype};
        if (file.has_column("comparison")) {
            add_comparison(row, path, published);
        } else if (file.has_column("data_size_mb")) {
            if (row.text("backend") == backend) {
                published.push_back(by_size(row));
            }
        } else if (row.is("backend", backend) && row.is("dtype", name_of(dtype))) {
            published.push_back(row.at(row.ranks(), {row.whole("bytes", most_bytes)},
                                       row.text("algorithm"), "time_s", "std_s", "max_memory_kib",
                                       "difference"));
        }
    }
    if (published.empty()) {
        throw InputError(path, "", fmt::format("rows of {}", backend), "none");
    }
    return published;
}

}  // namespace bucketwise
