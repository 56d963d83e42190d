#include "bench/all_reduce/published_allreduce.h"

#include <cmath>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "cli/shell/csv.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

constexpr std::int64_t most_ranks = 1'000'000;
constexpr double most_bytes = 1e15;

std::optional<double> number_if_told(const CsvFile& file, std::size_t row,
                                     std::string_view column) {
    if (!file.has_column(column) || file.text(row, column).empty()) {
        return std::nullopt;
    }
    return file.number(row, column);
}

// Above zero, so that an error can be a share of it.
std::optional<double> quantity(const CsvFile& file, const std::string& path, std::size_t row,
                               std::string_view column) {
    const std::optional<double> number = number_if_told(file, row, column);
    if (number && !(*number > 0 && std::isfinite(*number))) {
        throw InputError(path, "", fmt::format("a number of {} above zero", column),
                         file.text(row, column));
    }
    return number;
}

std::int64_t whole(const CsvFile& file, const std::string& path, std::size_t row,
                   std::string_view column, double highest) {
    const double number = file.number(row, column);
    if (!(number >= 1 && number <= highest) || number != std::floor(number)) {
        throw InputError(path, "", fmt::format("a whole number of {} above zero", column),
                         file.text(row, column));
    }
    return static_cast<std::int64_t>(number);
}

std::int64_t ranks_of(const CsvFile& file, const std::string& path, std::size_t row) {
    return whole(file, path, row, "world_size", static_cast<double>(most_ranks));
}

std::vector<PublishedAllReduce> read_comparisons(const CsvFile& file, const std::string& path,
                                                 DType dtype) {
    std::vector<PublishedAllReduce> published;
    for (std::size_t row = 0; row < file.rows(); ++row) {
        const std::string& comparison = file.text(row, "comparison");
        if (comparison != "ring_vs_butterfly" && comparison != "ring_vs_library") {
            throw InputError(path, "", "ring_vs_butterfly or ring_vs_library",
                             "\"" + comparison + "\"");
        }
        const std::string other = comparison == "ring_vs_library" ? "library" : "direct";
        for (const std::string side : {"ring", "other"}) {
            PublishedAllReduce& entry = published.emplace_back();
            entry.place.ranks = ranks_of(file, path, row);
            entry.place.size =
                whole(file, path, row, "tensor_elements", most_bytes) * element_size(dtype);
            entry.place.algorithm = side == "ring" ? side : other;
            entry.time_s = quantity(file, path, row, side + "_max_s");
            entry.peak_memory_kib = quantity(file, path, row, side + "_max_memory_kib");
            entry.largest_difference = number_if_told(file, row, side + "_difference");
        }
    }
    return published;
}

std::vector<PublishedAllReduce> read_by_size(const CsvFile& file, const std::string& path,
                                             const std::string& backend) {
    constexpr std::int64_t ranks = 2;  // one node, two GPUs; what Gloo ran on is not told
    std::vector<PublishedAllReduce> published;
    for (std::size_t row = 0; row < file.rows(); ++row) {
        if (file.text(row, "backend") != backend) {
            continue;
        }
        const auto bytes = static_cast<double>(bytes_per_mib) * file.number(row, "data_size_mb");
        if (!(bytes >= 1 && bytes <= most_bytes)) {
            throw InputError(path, "", "a number of data_size_mb above zero",
                             file.text(row, "data_size_mb"));
        }
        PublishedAllReduce& entry = published.emplace_back();
        entry.place.ranks = ranks;
        entry.place.size = {std::llround(bytes)};
        entry.place.algorithm = "library";
        entry.time_s = quantity(file, path, row, "time_s");
        entry.std_s = number_if_told(file, row, "std_s");
    }
    return published;
}

std::vector<PublishedAllReduce> read_own(const CsvFile& file, const std::string& path, DType dtype,
                                         const std::string& backend) {
    std::vector<PublishedAllReduce> published;
    for (std::size_t row = 0; row < file.rows(); ++row) {
        const bool other_backend =
            file.has_column("backend") && file.text(row, "backend") != backend;
        const bool other_dtype =
            file.has_column("dtype") && file.text(row, "dtype") != name_of(dtype);
        if (other_backend || other_dtype) {
            continue;
        }
        PublishedAllReduce& entry = published.emplace_back();
        entry.place.ranks = ranks_of(file, path, row);
        entry.place.size = {whole(file, path, row, "bytes", most_bytes)};
        entry.place.algorithm = file.text(row, "algorithm");
        entry.time_s = quantity(file, path, row, "time_s");
        entry.std_s = number_if_told(file, row, "std_s");
        entry.peak_memory_kib = quantity(file, path, row, "max_memory_kib");
        entry.largest_difference = number_if_told(file, row, "difference");
    }
    return published;
}

}  // namespace

std::vector<PublishedAllReduce> read_published_all_reduces(const std::string& path, DType dtype,
                                                           const std::string& backend) {
    const CsvFile file = CsvFile::read(path);
    std::vector<PublishedAllReduce> published =
        file.has_column("comparison")     ? read_comparisons(file, path, dtype)
        : file.has_column("data_size_mb") ? read_by_size(file, path, backend)
                                          : read_own(file, path, dtype, backend);
    if (published.empty()) {
        throw InputError(path, "", fmt::format("rows of {}", backend), "none");
    }
    return published;
}

}  // namespace bucketwise
