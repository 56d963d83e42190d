#include "bench/all_reduce/report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/shell/result_table.h"
#include "cli/shell/size.h"
#include "hw/record/environment.h"
#include "sim/base/dtype.h"
#include "sim/base/statistics.h"
#include "sim/link/collective.h"

namespace bucketwise {
namespace {

constexpr double bytes_per_kib = 1024;

using CellOf = std::function<Cell(const AllReduceRow&)>;
using Columns = std::vector<ColumnOf<AllReduceRow>>;

// What was measured, or follows from it; or nothing.
template <typename Function>
CellOf measured(const Function& function) {
    return [function](const AllReduceRow& row) {
        return row.measured ? Cell(std::invoke(function, *row.measured)) : Cell();
    };
}

template <typename Value>
CellOf simulated(std::optional<Value> SimulatedAllReduce::*value, double factor = 1) {
    return [value, factor](const AllReduceRow& row) {
        return row.simulated ? cell_of((*row.simulated).*value, factor) : Cell();
    };
}

CellOf published(std::optional<double> PublishedAllReduce::*value, double factor = 1) {
    return [value, factor](const AllReduceRow& row) {
        return row.published ? cell_of((*row.published).*value, factor) : Cell();
    };
}

// --- the values of a row that two columns or more need ---

std::optional<double> measured_us(const AllReduceRow& row) {
    return row.measured ? std::optional(row.measured->median_us) : std::nullopt;
}
std::optional<double> simulated_us(const AllReduceRow& row) {
    return row.simulated ? std::optional(row.simulated->time_us) : std::nullopt;
}
std::optional<double> published_us(const AllReduceRow& row) {
    return row.published && row.published->time_s ? std::optional(*row.published->time_s * 1e6)
                                                  : std::nullopt;
}

std::optional<double> measured_peak(const AllReduceRow& row) {
    return row.measured ? std::optional(static_cast<double>(row.measured->peak_memory_bytes))
                        : std::nullopt;
}
std::optional<double> measured_added(const AllReduceRow& row) {
    return row.measured && row.measured->memory_before_bytes
               ? std::optional(static_cast<double>(row.measured->peak_memory_bytes -
                                                   *row.measured->memory_before_bytes))
               : std::nullopt;
}
// What the process had before is measured, and what a message adds simulated.
std::optional<double> simulated_peak(const AllReduceRow& row) {
    if (!row.simulated || !row.simulated->added_memory_bytes) {
        return std::nullopt;
    }
    if (row.measured && row.measured->memory_before_bytes) {
        return static_cast<double>(*row.measured->memory_before_bytes +
                                   *row.simulated->added_memory_bytes);
    }
    return row.simulated->peak_memory_bytes
               ? std::optional(static_cast<double>(*row.simulated->peak_memory_bytes))
               : std::nullopt;
}
std::optional<double> published_peak(const AllReduceRow& row) {
    return row.published && row.published->peak_memory_kib
               ? std::optional(*row.published->peak_memory_kib * bytes_per_kib)
               : std::nullopt;
}

using ValueOf = std::optional<double> (*)(const AllReduceRow&);

std::optional<double> error_in(const AllReduceRow& row, ValueOf value, ValueOf truth) {
    return error_of(value(row), truth(row));
}

CellOf error(ValueOf value, ValueOf truth, double factor) {
    return [value, truth, factor](const AllReduceRow& row) {
        return cell_of(error_in(row, value, truth), factor);
    };
}

CellOf scaled_value(ValueOf value, double factor) {
    return [value, factor](const AllReduceRow& row) { return cell_of(value(row), factor); };
}

// Columns but those of a row's place are left out where no row has them.
Columns with_optional(Columns columns, const std::vector<Columns>& more) {
    for (const Columns& some : more) {
        for (ColumnOf<AllReduceRow> column : some) {
            column.always = false;
            columns.push_back(std::move(column));
        }
    }
    return columns;
}

CellOf algorithm_cell() {
    return [](const AllReduceRow& row) { return row.place.algorithm; };
}

CellOf ranks_cell() {
    return [](const AllReduceRow& row) { return row.place.ranks; };
}

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

Columns measured_text_columns(const std::vector<AllReduceRow>& rows) {
    return {{{"", "samples"}, measured([](const MeasuredAllReduce& m) {
                 return static_cast<std::int64_t>(m.samples_us.size());
             })},
            {{"", "median us", 1}, scaled_value(measured_us, 1)},
            {{"", "p90 us", 1},
             measured([](const MeasuredAllReduce& m) { return quantile(m.samples_us, 0.9); })},
            {{"", "alg GB/s", 3}, bandwidth(algorithm_gb_per_s)},
            {{"", "bus GB/s", 3}, bandwidth(bus_gb_per_s)},
            {{"", "time/\nlibrary", 2}, versus_library(rows)},
            {{"", "peak MiB", 1}, scaled_value(measured_peak, mib)},
            {{"", "added MiB", 2}, scaled_value(measured_added, mib)},
            {{"", "difference", -2}, measured(&MeasuredAllReduce::largest_difference)}};
}

Columns simulated_text_columns() {
    return {
        {{"", "simulated\nus", 1}, scaled_value(simulated_us, 1)},
        {{"", "to measured\n%", 1}, error(simulated_us, measured_us, percent)},
        {{"", "simulated\npeak MiB", 1}, scaled_value(simulated_peak, mib)},
        {{"", "to measured\n%", 2}, error(simulated_peak, measured_peak, percent)},
        {{"", "simulated\nadded MiB", 2}, simulated(&SimulatedAllReduce::added_memory_bytes, mib)},
        {{"", "simulated\ndifference", -2}, simulated(&SimulatedAllReduce::largest_difference)}};
}

Columns published_text_columns() {
    return {
        {{"", "published\nus", 1}, scaled_value(published_us, 1)},
        {{"", "+- us", 1}, published(&PublishedAllReduce::std_s, 1e6)},
        {{"", "simulated to\npublished %", 1}, error(simulated_us, published_us, percent)},
        {{"", "measured to\npublished %", 1}, error(measured_us, published_us, percent)},
        {{"", "published\npeak MiB", 1}, scaled_value(published_peak, mib)},
        {{"", "simulated to\npublished %", 2}, error(simulated_peak, published_peak, percent)},
        {{"", "published\ndifference", -2}, published(&PublishedAllReduce::largest_difference)}};
}

std::string title_of(const AllReduceReport& report, const std::vector<AllReduceRow>& rows) {
    const std::string dtype = rows.empty() ? "" : std::string(name_of(rows.front().dtype)) + " ";
    const EnvironmentRecord* e = report.environment;
    if (e == nullptr) {
        return dtype + (report.links.empty() ? "all-reduce, published" : "all-reduce, simulated");
    }
    return fmt::format(
        "{}all-reduce over {}{}; {}\n"
        "times of the slowest rank; the rank with most memory, and what messages and summing added "
        "to it;\nthe element furthest from the exact mean",
        dtype, e->libraries, e->link_rate.empty() ? "" : " at " + e->link_rate, hardware_of(*e));
}

std::string text_report(const AllReduceReport& report, const std::vector<AllReduceRow>& rows) {
    const Columns place{
        {{"", "ranks"}, ranks_cell()},
        {{"", "message"}, [](const AllReduceRow& row) { return message_text(row.place.size); }},
        {{"", "algorithm"}, algorithm_cell()}};
    ResultTable table =
        table_of(with_optional(place, {measured_text_columns(rows), simulated_text_columns(),
                                       published_text_columns()}),
                 rows);
    table.title = title_of(report, rows);
    table.notes = report.links;
    table.notes.insert(table.notes.end(), report.notes.begin(), report.notes.end());
    return render(table, TableFormat::text, Json::object());
}

// --- CSV and JSON ---

Columns first_data_columns() {
    return {
        {{"world_size", ""}, ranks_cell()},
        {{"tensor_elements", ""},
         [](const AllReduceRow& row) {
             return row.place.size.count / element_size(row.dtype).count;
         }},
        {{"bytes", ""}, [](const AllReduceRow& row) { return row.place.size.count; }},
        {{"dtype", ""}, [](const AllReduceRow& row) { return std::string(name_of(row.dtype)); }},
        {{"algorithm", ""}, algorithm_cell()}};
}

Columns measured_data_columns() {
    const auto seconds = [](const auto& statistic) {
        return measured(
            [statistic](const MeasuredAllReduce& m) { return statistic(m.samples_us) / 1e6; });
    };
    return {{{"time_s", ""}, scaled_value(measured_us, 1e-6)},
            {{"std_s", ""}, seconds(standard_deviation)},
            {{"min_s", ""}, seconds([](const std::vector<double>& samples) {
                 return *std::min_element(samples.begin(), samples.end());
             })},
            {{"max_s", ""}, seconds([](const std::vector<double>& samples) {
                 return *std::max_element(samples.begin(), samples.end());
             })},
            {{"max_memory_kib", ""},
             measured([](const MeasuredAllReduce& m) { return m.peak_memory_bytes / 1024; })},
            {{"difference", ""}, measured(&MeasuredAllReduce::largest_difference)},
            {{"backend", ""},
             measured([](const MeasuredAllReduce& m) { return m.transport.backend; })}};
}

// Errors are shares: 0.01 is 1 % too much.
Columns compared_data_columns() {
    constexpr double kib = 1 / bytes_per_kib;
    return {{{"added_memory_kib", ""}, scaled_value(measured_added, kib)},
            {{"simulated_time_s", ""}, scaled_value(simulated_us, 1e-6)},
            {{"simulated_time_error", ""}, error(simulated_us, measured_us, 1)},
            {{"simulated_added_memory_kib", ""},
             simulated(&SimulatedAllReduce::added_memory_bytes, kib)},
            {{"simulated_memory_kib", ""}, scaled_value(simulated_peak, kib)},
            {{"simulated_memory_error", ""}, error(simulated_peak, measured_peak, 1)},
            {{"simulated_difference", ""}, simulated(&SimulatedAllReduce::largest_difference)},
            {{"published_time_s", ""}, published(&PublishedAllReduce::time_s)},
            {{"published_std_s", ""}, published(&PublishedAllReduce::std_s)},
            {{"published_memory_kib", ""}, published(&PublishedAllReduce::peak_memory_kib)},
            {{"published_difference", ""}, published(&PublishedAllReduce::largest_difference)},
            {{"simulated_to_published_time", ""}, error(simulated_us, published_us, 1)},
            {{"measured_to_published_time", ""}, error(measured_us, published_us, 1)},
            {{"simulated_to_published_memory", ""}, error(simulated_peak, published_peak, 1)}};
}

Json head_of(const AllReduceReport& report) {
    Json head{{"command", report.command}, {"date", utc_now()}};
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
    std::vector<Columns> columns{measured_data_columns()};
    if (compared || format == TableFormat::json) {
        columns.push_back(compared_data_columns());
    }
    ResultTable table = table_of(with_optional(first_data_columns(), columns), rows);
    table.notes = report.notes;
    return render(table, format, head_of(report));
}

// --- how far off ---

std::vector<std::string> error_notes(const std::vector<AllReduceRow>& rows) {
    struct Comparison {
        const char* what;
        ValueOf value;
        ValueOf truth;
    };
    std::vector<std::string> notes;
    for (const auto& [what, value, truth] :
         {Comparison{"time, simulated to measured", simulated_us, measured_us},
          Comparison{"time, simulated to published", simulated_us, published_us},
          Comparison{"memory, simulated to measured", simulated_peak, measured_peak},
          Comparison{"memory, simulated to published", simulated_peak, published_peak}}) {
        double sum = 0;
        double most = 0;
        int count = 0;
        for (const AllReduceRow& row : rows) {
            if (const std::optional<double> off = error_in(row, value, truth)) {
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

std::string message_text(Bytes size) {
    if (size.count % 1000 != 0) {
        return text_of(size);
    }
    std::int64_t number = size.count;
    std::string_view unit;
    for (const std::string_view larger : {"kB", "MB", "GB"}) {
        if (number % 1000 == 0) {
            number /= 1000;
            unit = larger;
        }
    }
    return fmt::format("{}{}", number, unit);
}

const EnvironmentRecord* environment_of(const std::vector<Measurement>& records) {
    for (const Measurement& record : records) {
        if (const auto* environment = std::get_if<EnvironmentRecord>(&record)) {
            return environment;
        }
    }
    return nullptr;
}

double algorithm_gb_per_s(const AllReduceRow& row) {
    return row.measured->median_us > 0
               ? static_cast<double>(row.place.size.count) / row.measured->median_us / 1e3
               : 0.0;
}

double bus_gb_per_s(const AllReduceRow& row) {
    return bus_factor(CollectiveKind::all_reduce, row.place.ranks) * algorithm_gb_per_s(row);
}

std::string bench_allreduce_report(const AllReduceReport& report,
                                   const std::vector<AllReduceRow>& rows, BenchFormat format) {
    if (format == BenchFormat::nccl_tests) {
        return nccl_tests_report(report.environment, rows);
    }
    const std::vector<AllReduceRow> sorted = by_size(rows);
    AllReduceReport full = report;
    const std::vector<std::string> errors = error_notes(sorted);
    full.notes.insert(full.notes.end(), errors.begin(), errors.end());
    switch (format) {
        case BenchFormat::csv:
            return data_report(full, sorted, TableFormat::csv);
        case BenchFormat::json:
            return data_report(full, sorted, TableFormat::json);
        default:
            return text_report(full, sorted);
    }
}

}  // namespace bucketwise
