#include <cmath>

#include <fmt/format.h>

#include "bench/all_reduce/all_reduce.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

std::int64_t whole_above_zero(const CsvFile& file, std::size_t row, const char* column,
                              double highest) {
    const double value = file.number(row, column);
    if (!(value >= 1 && value <= highest) || value != std::floor(value)) {
        file.fail(row, column,
                  fmt::format("a whole number of {} from 1 to {:.0f}", column, highest));
    }
    return static_cast<std::int64_t>(value);
}

BenchRow published_row(const CsvFile& file, std::size_t row, DType dtype) {
    constexpr double most_bytes = 1e15;
    constexpr double most_ranks = 1e6;
    const Bytes size =
        file.has_column("bytes")
            ? Bytes{whole_above_zero(file, row, "bytes", most_bytes)}
            : whole_above_zero(file, row, "tensor_elements", most_bytes) * element_size(dtype);
    BenchRow cells = row_at(whole_above_zero(file, row, "world_size", most_ranks), size,
                            file.text(row, "algorithm"), dtype);
    // Times and memory are above zero, so that an error can be a share of them. The column of times
    // has to be there.
    for (const std::string column : {"time_s", "std_s", "max_memory_kib", "difference"}) {
        if (column != "time_s" && !file.has_column(column)) {
            continue;
        }
        if (!file.text(row, column).empty()) {
            const double value = file.number(row, column);
            if ((column == "time_s" || column == "max_memory_kib") && !(value > 0)) {
                file.fail(row, column, fmt::format("a number of {} above 0", column));
            }
            cells["published_" + column] = value;
        }
    }
    return cells;
}

}  // namespace

BenchRows read_published_all_reduces(const std::string& path, DType dtype,
                                     const std::string& backend) {
    const CsvFile file = CsvFile::read(path);
    const auto is = [&](std::size_t row, const char* column, std::string_view value) {
        return !file.has_column(column) || file.text(row, column) == value;
    };
    BenchRows published;
    for (std::size_t row = 0; row < file.rows(); ++row) {
        if (is(row, "backend", backend) && is(row, "dtype", name_of(dtype))) {
            published.push_back(published_row(file, row, dtype));
        }
    }
    if (published.empty()) {
        throw InputError(path, "", fmt::format("rows of {}", backend), "none");
    }
    return published;
}

}  // namespace bucketwise
