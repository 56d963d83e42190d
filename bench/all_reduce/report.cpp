#include "bench/all_reduce/report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/shell/result_table.h"
#include "cli/shell/size.h"
#include "hw/record/environment.h"
#include "sim/base/dtype.h"
#include "sim/base/statistics.h"
#include "sim/link/collective.h"
#include "sim/text/passed_on.h"

namespace bucketwise {
namespace {

constexpr double bytes_per_kib = 1024;

using CellOf = std::function<Cell(const AllReduceRow&)>;
using Columns = std::vector<ColumnOf<AllReduceRow>>;

// What one source says of a row.
struct Numbers {
    std::optional<double> us = {};
    std::optional<double> peak_bytes = {};
    std::optional<double> added_bytes = {};
    std::optional<double> difference = {};
};

using Source = Numbers (*)(const AllReduceRow&);
using Number = std::optional<double> Numbers::*;

Numbers measured(const AllReduceRow& row) {
    Numbers numbers;
    if (const auto& from = row.measured) {
        const auto peak = static_cast<double>(from->peak_memory_bytes);
        numbers = {
            .us = from->median_us, .peak_bytes = peak, .difference = from->largest_difference};
        if (from->memory_before_bytes) {
            numbers.added_bytes = peak - static_cast<double>(*from->memory_before_bytes);
        }
    }
    return numbers;
}

// What the process had before is measured, and what a message adds simulated.
Numbers simulated(const AllReduceRow& row) {
    Numbers numbers;
    if (const auto& from = row.simulated) {
        numbers = {.us = from->time_us,
                   .peak_bytes = from->peak_memory_bytes,
                   .added_bytes = from->added_memory_bytes,
                   .difference = from->largest_difference};
        if (numbers.added_bytes && row.measured && row.measured->memory_before_bytes) {
            numbers.peak_bytes =
                *numbers.added_bytes + static_cast<double>(*row.measured->memory_before_bytes);
        }
    }
    return numbers;
}

Numbers published(const AllReduceRow& row) {
    Numbers numbers;
    if (const auto& from = row.published) {
        numbers.difference = from->largest_difference;
        if (from->time_s) {
            numbers.us = *from->time_s * 1e6;
        }
        if (from->peak_memory_kib) {
            numbers.peak_bytes = *from->peak_memory_kib * bytes_per_kib;
        }
    }
    return numbers;
}

CellOf value(Source source, Number number, double factor = 1) {
    return [=](const AllReduceRow& row) { return cell_of(source(row).*number, factor); };
}

std::optional<double> error_in(const AllReduceRow& row, Source source, Source truth,
                               Number number) {
    return error_of(source(row).*number, truth(row).*number);
}

CellOf error(Source source, Source truth, Number number, double factor = 1) {
    return [=](const AllReduceRow& row) {
        return cell_of(error_in(row, source, truth, number), factor);
    };
}

// What else follows from what was measured.
template <typename Function>
CellOf of_measured(const Function& function) {
    return [function](const AllReduceRow& row) {
        return row.measured ? Cell(function(*row.measured)) : Cell();
    };
}

CellOf of_published(std::optional<double> PublishedAllReduce::*member, double factor = 1) {
    return [=](const AllReduceRow& row) {
        return row.published ? cell_of((*row.published).*member, factor) : Cell();
    };
}

// Columns but those of a row's place are left out where no row has them.
Columns with_optional(Columns columns, Columns more) {
    for (ColumnOf<AllReduceRow>& column : more) {
        column.always = false;
    }
    append(columns, more);
    return columns;
}

constexpr auto algorithm_cell = [](const AllReduceRow& row) { return row.place.algorithm; };
constexpr auto ranks_cell = [](const AllReduceRow& row) { return row.place.ranks; };

// --- text ---

CellOf versus_library(const std::vector<AllReduceRow>& rows) {
    return [&rows](const AllReduceRow& row) -> Cell {
        for (const AllReduceRow& other : rows) {
            if (row.measured && other.place.algorithm == "library" &&
                other.place.size == row.place.size && other.place.ranks == row.place.ranks &&
                other.measured && other.measured->median_us > 0) {
                return row.measured->median_us / other.measured->median_us;
            }
        }
        return {};
    };
}

// A single rank moves nothing.
CellOf bandwidth(double (*gb_per_s)(const AllReduceRow&)) {
    return [gb_per_s](const AllReduceRow& row) {
        return row.measured && row.place.ranks > 1 ? Cell(gb_per_s(row)) : Cell();
    };
}

constexpr double mib = 1.0 / bytes_per_mib;
constexpr double percent = 100;

Columns text_columns(const std::vector<AllReduceRow>& rows) {
    return {
        {{"", "samples"},
         of_measured([](const MeasuredAllReduce& m) { return std::ssize(m.samples_us); })},
        {{"", "median us", 1}, value(measured, &Numbers::us)},
        {{"", "p90 us", 1},
         of_measured([](const MeasuredAllReduce& m) { return quantile(m.samples_us, 0.9); })},
        {{"", "alg GB/s", 3}, bandwidth(algorithm_gb_per_s)},
        {{"", "bus GB/s", 3}, bandwidth(bus_gb_per_s)},
        {{"", "time/\nlibrary", 2}, versus_library(rows)},
        {{"", "peak MiB", 1}, value(measured, &Numbers::peak_bytes, mib)},
        {{"", "added MiB", 2}, value(measured, &Numbers::added_bytes, mib)},
        {{"", "difference", -2}, value(measured, &Numbers::difference)},
        {{"", "simulated\nus", 1}, value(simulated, &Numbers::us)},
        {{"", "to measured\n%", 1}, error(simulated, measured, &Numbers::us, percent)},
        {{"", "simulated\npeak MiB", 1}, value(simulated, &Numbers::peak_bytes, mib)},
        {{"", "to measured\n%", 2}, error(simulated, measured, &Numbers::peak_bytes, percent)},
        {{"", "simulated\nadded MiB", 2}, value(simulated, &Numbers::added_bytes, mib)},
        {{"", "simulated\ndifference", -2}, value(simulated, &Numbers::difference)},
        {{"", "published\nus", 1}, value(published, &Numbers::us)},
        {{"", "+- us", 1}, of_published(&PublishedAllReduce::std_s, 1e6)},
        {{"", "simulated to\npublished %", 1}, error(simulated, published, &Numbers::us, percent)},
        {{"", "measured to\npublished %", 1}, error(measured, published, &Numbers::us, percent)},
        {{"", "published\npeak MiB", 1}, value(published, &Numbers::peak_bytes, mib)},
        {{"", "simulated to\npublished %", 2},
         error(simulated, published, &Numbers::peak_bytes, percent)},
        {{"", "published\ndifference", -2}, value(published, &Numbers::difference)}};
}

std::string title_of(const AllReduceReport& report, const std::vector<AllReduceRow>& rows) {
    const std::string dtype = rows.empty() ? "" : std::string(name_of(rows.front().dtype)) + " ";
    const EnvironmentRecord* e = report.environment;
    if (e == nullptr) {
        return fmt::format("{}{}, {}", dtype, name_of(report.kind),
                           report.links.empty() ? "published" : "simulated");
    }
    return fmt::format(
        "{}{} over {}{}; {}\n"
        "times of the slowest rank; the rank with most memory, and what messages and summing added "
        "to it;\nthe element furthest from the exact mean",
        dtype, name_of(report.kind), e->libraries,
        e->link_rate.empty() ? "" : " at " + e->link_rate, hardware_of(*e));
}

std::string text_report(const AllReduceReport& report, const std::vector<AllReduceRow>& rows) {
    const Columns place{
        {{"", "ranks"}, ranks_cell},
        {{"", "message"}, [](const AllReduceRow& row) { return message_text(row.place.size); }},
        {{"", "algorithm"}, algorithm_cell}};
    ResultTable table = table_of(with_optional(place, text_columns(rows)), rows);
    table.title = title_of(report, rows);
    table.notes = report.links;
    table.notes.insert(table.notes.end(), report.notes.begin(), report.notes.end());
    return render(table, TableFormat::text, Json::object());
}

// --- CSV and JSON ---

Columns first_data_columns() {
    return {
        {{"world_size", ""}, ranks_cell},
        {{"tensor_elements", ""},
         [](const AllReduceRow& row) {
             return row.place.size.count / element_size(row.dtype).count;
         }},
        {{"bytes", ""}, [](const AllReduceRow& row) { return row.place.size.count; }},
        {{"dtype", ""}, [](const AllReduceRow& row) { return std::string(name_of(row.dtype)); }},
        {{"algorithm", ""}, algorithm_cell}};
}

Columns measured_data_columns() {
    const auto seconds = [](const auto& statistic) {
        return of_measured(
            [statistic](const MeasuredAllReduce& m) { return statistic(m.samples_us) / 1e6; });
    };
    return {{{"time_s", ""}, value(measured, &Numbers::us, 1e-6)},
            {{"std_s", ""}, seconds(standard_deviation)},
            {{"min_s", ""}, seconds([](const auto& samples) { return std::ranges::min(samples); })},
            {{"max_s", ""}, seconds([](const auto& samples) { return std::ranges::max(samples); })},
            {{"max_memory_kib", ""},
             of_measured([](const MeasuredAllReduce& m) { return m.peak_memory_bytes / 1024; })},
            {{"difference", ""}, value(measured, &Numbers::difference)},
            {{"backend", ""},
             of_measured([](const MeasuredAllReduce& m) { return m.transport.backend; })}};
}

// Errors are shares: 0.01 is 1 % too much.
Columns compared_data_columns() {
    constexpr double kib = 1 / bytes_per_kib;
    return {
        {{"added_memory_kib", ""}, value(measured, &Numbers::added_bytes, kib)},
        {{"simulated_time_s", ""}, value(simulated, &Numbers::us, 1e-6)},
        {{"simulated_time_error", ""}, error(simulated, measured, &Numbers::us)},
        {{"simulated_added_memory_kib", ""}, value(simulated, &Numbers::added_bytes, kib)},
        {{"simulated_memory_kib", ""}, value(simulated, &Numbers::peak_bytes, kib)},
        {{"simulated_memory_error", ""}, error(simulated, measured, &Numbers::peak_bytes)},
        {{"simulated_difference", ""}, value(simulated, &Numbers::difference)},
        {{"published_time_s", ""}, of_published(&PublishedAllReduce::time_s)},
        {{"published_std_s", ""}, of_published(&PublishedAllReduce::std_s)},
        {{"published_memory_kib", ""}, of_published(&PublishedAllReduce::peak_memory_kib)},
        {{"published_difference", ""}, value(published, &Numbers::difference)},
        {{"simulated_to_published_time", ""}, error(simulated, published, &Numbers::us)},
        {{"measured_to_published_time", ""}, error(measured, published, &Numbers::us)},
        {{"simulated_to_published_memory", ""}, error(simulated, published, &Numbers::peak_bytes)}};
}

Json head_of(const AllReduceReport& report) {
    Json head{{"command", passed_on_command(report.command)}, {"date", utc_now()}};
    if (const EnvironmentRecord* e = report.environment) {
        head["hardware"] = hardware_of(*e);
        head["libraries"] = e->libraries;
        head["link_rate"] = e->link_rate.empty() ? Json(nullptr) : Json(e->link_rate);
        head["date"] = e->date;
    }
    if (!report.links.empty()) {
        head["links"] = report.links;
    }
    return head;
}

std::string data_report(const AllReduceReport& report, const std::vector<AllReduceRow>& rows,
                        TableFormat format) {
    // Readers of the CSV count on the first columns, where nothing is compared.
    const bool compared = std::any_of(rows.begin(), rows.end(), [](const AllReduceRow& row) {
        return row.simulated || row.published;
    });
    Columns columns = measured_data_columns();
    if (compared || format == TableFormat::json) {
        append(columns, compared_data_columns());
    }
    ResultTable table = table_of(with_optional(first_data_columns(), columns), rows);
    table.notes = report.notes;
    return render(table, format, head_of(report));
}

// --- how far off ---

std::vector<std::string> error_notes(const std::vector<AllReduceRow>& rows) {
    struct Comparison {
        const char* what;
        Source truth;
        Number number;
    };
    std::vector<std::string> notes;
    for (const auto& [what, truth, number] :
         {Comparison{"time, simulated to measured", measured, &Numbers::us},
          Comparison{"time, simulated to published", published, &Numbers::us},
          Comparison{"memory, simulated to measured", measured, &Numbers::peak_bytes},
          Comparison{"memory, simulated to published", published, &Numbers::peak_bytes}}) {
        double sum = 0;
        double most = 0;
        int count = 0;
        for (const AllReduceRow& row : rows) {
            if (const std::optional<double> off = error_in(row, simulated, truth, number)) {
                sum += std::abs(*off);
                most = std::max(most, std::abs(*off));
                ++count;
            }
        }
        if (count > 0) {
            notes.push_back(fmt::format("{}: {:.2f} % off on average, {:.2f} % at most ({} rows)",
                                        what, percent * sum / count, percent * most, count));
        }
    }
    return notes;
}

}  // namespace

double algorithm_gb_per_s(const AllReduceRow& row) {
    return row.measured->median_us > 0
               ? static_cast<double>(row.place.size.count) / row.measured->median_us / 1e3
               : 0.0;
}

double bus_gb_per_s(const AllReduceRow& row) {
    return bus_factor(row.kind, row.place.ranks) * algorithm_gb_per_s(row);
}

std::string bench_allreduce_report(AllReduceReport report, std::vector<AllReduceRow> rows,
                                   BenchFormat format) {
    if (format == BenchFormat::nccl_tests) {
        return nccl_tests_report(report.environment, rows);
    }
    // By ranks, then by size, so that algorithms stand one below the other.
    std::ranges::stable_sort(rows, {}, [](const AllReduceRow& row) {
        return std::pair(row.place.ranks, row.place.size);
    });
    const std::vector<std::string> errors = error_notes(rows);
    report.notes.insert(report.notes.end(), errors.begin(), errors.end());
    if (format == BenchFormat::text) {
        return text_report(report, rows);
    }
    return data_report(report, rows,
                       format == BenchFormat::csv ? TableFormat::csv : TableFormat::json);
}

}  // namespace bucketwise
