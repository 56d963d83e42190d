// The table of bench allreduce and its like: rows measured, simulated and published.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/all_reduce/options.h"
#include "bench/all_reduce/rows.h"
#include "cli/shell/size.h"
#include "hw/record/environment.h"
#include "sim/base/statistics.h"
#include "sim/link/collective.h"
#include "sim/text/passed_on.h"

namespace bucketwise {
namespace {

// --- rows ----------------------------------------------------------------------------------------

// Adds a round to the rounds before it.
void add_record(AllReduceRow& row, const CollectiveRecord& record) {
    const Transport& transport = record.transport;
    if (!row.measured) {
        const bool library = transport.implementation == "library";
        row.place = {transport.ranks, record.size,
                     library ? transport.implementation : transport.algorithm};
        row.dtype = record.dtype;
        row.measured = record;
        return;
    }
    CollectiveRecord& all = *row.measured;
    all.samples_us.insert(all.samples_us.end(), record.samples_us.begin(), record.samples_us.end());
    all.largest_difference = std::max(all.largest_difference, record.largest_difference);
    if (record.peak_memory_bytes >= all.peak_memory_bytes) {
        all.peak_memory_bytes = record.peak_memory_bytes;
        all.memory_before_bytes = record.memory_before_bytes;
    }
}

// Null: it is of another kind.
const CollectiveRecord* record_of(CollectiveKind kind, const Measurement& measurement) {
    const auto* record = std::get_if<CollectiveRecord>(&measurement);
    return record != nullptr && record->kind == kind ? record : nullptr;
}

// Worlds in the order they ran; within each, by size.
std::vector<AllReduceRow> measured_rows(CollectiveKind kind,
                                        const std::vector<Measurement>& records) {
    std::vector<Transport> worlds;
    std::map<std::pair<std::ptrdiff_t, Bytes>, AllReduceRow> rows;
    for (const Measurement& measurement : records) {
        if (const CollectiveRecord* record = record_of(kind, measurement)) {
            const auto world = std::ranges::find(worlds, record->transport);
            const std::ptrdiff_t number = world - worlds.begin();
            if (world == worlds.end()) {
                worlds.push_back(record->transport);
            }
            add_record(rows[{number, record->size}], *record);
        }
    }
    std::vector<AllReduceRow> list;
    for (auto& [key, row] : rows) {
        list.push_back(std::move(row));
    }
    return list;
}

void add_simulated_rows(std::vector<AllReduceRow>& rows, const AllReduceOptions& options) {
    for (const std::int64_t ranks : options.simulated_ranks) {
        for (const Bytes size : options.sizes) {
            for (const SimulatedAlgorithm& algorithm : options.simulation->algorithms) {
                const AllReducePlace place{ranks, whole_parts(options, size, ranks),
                                           algorithm.name};
                if (std::ranges::find(rows, place, &AllReduceRow::place) == rows.end()) {
                    rows.push_back({.place = place, .dtype = options.dtype});
                }
            }
        }
    }
}

// Published rows of the requested ranks and sizes join the row of the same place, or stand alone.
void add_published(std::vector<AllReduceRow>& rows, const AllReduceOptions& options) {
    for (const PublishedAllReduce& entry : options.published) {
        if (std::ranges::count(options.simulated_ranks, entry.place.ranks) == 0 ||
            std::ranges::count(options.sizes, entry.place.size) == 0) {
            continue;
        }
        const auto is_same = [&](const AllReduceRow& row) {
            return row.place == entry.place && row.dtype == options.dtype;
        };
        const auto found = std::ranges::find_if(
            rows, [&](const AllReduceRow& row) { return is_same(row) && !row.published; });
        if (found != rows.end()) {
            found->published = entry;
            continue;
        }
        // Two tables may hold the same place; our own measurement stands beside both.
        const auto twin = std::ranges::find_if(rows, is_same);
        AllReduceRow row =
            twin == rows.end() ? AllReduceRow{.place = entry.place, .dtype = options.dtype} : *twin;
        row.published = entry;
        rows.push_back(std::move(row));
    }
}

// --- cells ---------------------------------------------------------------------------------------

constexpr double bytes_per_kib = 1024;

// Times in microseconds and memory in bytes, unless a name ends in another unit.
BenchRow cells_of(const AllReduceRow& row) {
    BenchRow cells{{"world_size", row.place.ranks},
                   {"tensor_elements", row.place.size.count / element_size(row.dtype).count},
                   {"bytes", row.place.size.count},
                   {"message", message_text(row.place.size)},
                   {"dtype", std::string(name_of(row.dtype))},
                   {"algorithm", row.place.algorithm}};
    const auto set = [&](const char* name, const auto& value, double factor = 1) {
        cells[name] = cell_of(std::optional<double>(value), factor);
    };
    if (const auto& from = row.measured) {
        const std::vector<double>& us = from->samples_us;
        cells["samples"] = std::ssize(us);
        set("measured", median(us));
        set("p90", quantile(us, 0.9));
        set("std_s", standard_deviation(us) / 1e6);
        set("min_s", std::ranges::min(us) / 1e6);
        set("max_s", std::ranges::max(us) / 1e6);
        if (row.place.ranks > 1) {  // a single rank moves nothing
            set("algorithm GB/s", algorithm_gb_per_s(row));
            set("bus GB/s", bus_gb_per_s(row));
        }
        set("measured peak", static_cast<double>(from->peak_memory_bytes));
        if (from->memory_before_bytes) {
            set("measured added",
                static_cast<double>(from->peak_memory_bytes - *from->memory_before_bytes));
        }
        cells["max_memory_kib"] = from->peak_memory_bytes / 1024;
        set("difference", from->largest_difference);
        cells["backend"] = from->transport.backend;
    }
    if (const auto& from = row.simulated) {
        set("simulated", from->time_us);
        set("simulated peak", from->peak_memory_bytes);
        set("simulated added", from->added_memory_bytes);
        set("simulated_difference", from->largest_difference);
        // The process's own memory is measured, and the message's part simulated.
        if (from->added_memory_bytes && row.measured && row.measured->memory_before_bytes) {
            set("simulated peak", static_cast<double>(*from->added_memory_bytes +
                                                      *row.measured->memory_before_bytes));
        }
    }
    if (const auto& from = row.published) {
        set("published", from->time_s, 1e6);
        set("published_time_s", from->time_s);
        set("published_std_s", from->std_s);
        set("published peak", from->peak_memory_kib, bytes_per_kib);
        set("published_memory_kib", from->peak_memory_kib);
        set("published_difference", from->largest_difference);
    }
    return cells;
}

void add_library(std::vector<BenchRow>& rows) {
    std::map<std::pair<Cell, Cell>, Cell> library;
    for (const BenchRow& row : rows) {
        if (row.contains("measured") && row.at("algorithm") == Cell("library")) {
            library.insert({{row.at("world_size"), row.at("bytes")}, row.at("measured")});
        }
    }
    for (BenchRow& row : rows) {
        const auto found = library.find({row.at("world_size"), row.at("bytes")});
        if (found != library.end() && std::get<double>(found->second) > 0) {
            row["library"] = found->second;
        }
    }
}

// --- columns -------------------------------------------------------------------------------------

BenchColumn share_column(Column column, const char* of, const char* against) {
    BenchColumn share = error_column(std::move(column), of, against);
    share.factor = 1;
    return share;
}

std::vector<BenchColumn> text_columns() {
    constexpr double mib = 1.0 / bytes_per_mib;
    return {{{"world_size", "ranks"}},
            {{"message", "message"}},
            {{"algorithm", "algorithm"}},
            {{"samples", "samples"}},
            {{"measured", "median us", 1}},
            {{"p90", "p90 us", 1}},
            {{"algorithm GB/s", "alg GB/s", 3}},
            {{"bus GB/s", "bus GB/s", 3}},
            {{"", "time/\nlibrary", 2}, "measured", 1, Show::ratio, "library"},
            {{"", "peak MiB", 1}, "measured peak", mib},
            {{"", "added MiB", 2}, "measured added", mib},
            {{"difference", "difference", -2}},
            {{"simulated", "simulated\nus", 1}},
            error_column({"", "to measured\n%", 1}, "simulated", "measured"),
            {{"", "simulated\npeak MiB", 1}, "simulated peak", mib},
            error_column({"", "to measured\n%", 2}, "simulated peak", "measured peak"),
            {{"", "simulated\nadded MiB", 2}, "simulated added", mib},
            {{"simulated_difference", "simulated\ndifference", -2}},
            {{"published", "published\nus", 1}},
            {{"", "+- us", 1}, "published_std_s", 1e6},
            error_column({"", "simulated to\npublished %", 1}, "simulated", "published"),
            error_column({"", "measured to\npublished %", 1}, "measured", "published"),
            {{"", "published\npeak MiB", 1}, "published peak", mib},
            error_column({"", "simulated to\npublished %", 2}, "simulated peak", "published peak"),
            {{"published_difference", "published\ndifference", -2}}};
}

// Readers of the CSV count on these columns alone where nothing is compared.
std::vector<BenchColumn> data_columns() {
    return {{{"world_size", ""}},     {{"tensor_elements", ""}}, {{"bytes", ""}},
            {{"dtype", ""}},          {{"algorithm", ""}},       {{"time_s", ""}, "measured", 1e-6},
            {{"std_s", ""}},          {{"min_s", ""}},           {{"max_s", ""}},
            {{"max_memory_kib", ""}}, {{"difference", ""}},      {{"backend", ""}}};
}

// Errors are shares: 0.01 is 1 % too much.
std::vector<BenchColumn> compared_data_columns() {
    constexpr double kib = 1 / bytes_per_kib;
    return {
        {{"added_memory_kib", ""}, "measured added", kib},
        {{"simulated_time_s", ""}, "simulated", 1e-6},
        share_column({"simulated_time_error", ""}, "simulated", "measured"),
        {{"simulated_added_memory_kib", ""}, "simulated added", kib},
        {{"simulated_memory_kib", ""}, "simulated peak", kib},
        share_column({"simulated_memory_error", ""}, "simulated peak", "measured peak"),
        {{"simulated_difference", ""}},
        {{"published_time_s", ""}},
        {{"published_std_s", ""}},
        {{"published_memory_kib", ""}},
        {{"published_difference", ""}},
        share_column({"simulated_to_published_time", ""}, "simulated", "published"),
        share_column({"measured_to_published_time", ""}, "measured", "published"),
        share_column({"simulated_to_published_memory", ""}, "simulated peak", "published peak")};
}

// --- notes ---------------------------------------------------------------------------------------

// Algorithms of one link in one sentence.
std::vector<std::string> link_notes(const std::vector<SimulatedAlgorithm>& algorithms) {
    const auto source_of = [](const LinkParameters& link) {
        const Provenance& from = link.provenance;
        return fmt::format("{}{}{}", link.name, from.source.empty() ? "" : "; " + from.source,
                           from.hardware.empty() ? "" : "; " + from.hardware);
    };
    std::vector<std::string> sentences;
    for (std::size_t i = 0; i < algorithms.size();) {
        const std::string source = source_of(algorithms[i].link);
        std::string names;
        for (; i < algorithms.size() && source_of(algorithms[i].link) == source; ++i) {
            const std::string_view own = name_of(algorithms[i].link.algorithm);
            names += (names.empty() ? "" : ", ") + algorithms[i].name;
            names += algorithms[i].name == own ? "" : fmt::format(" (a {})", own);
        }
        sentences.push_back(fmt::format("simulated {}: {}", names, source));
    }
    return sentences;
}

// A link that is asked for more ranks than it was measured on extrapolates.
void add_extrapolations(const AllReduceOptions& options, std::vector<std::string>& notes) {
    for (const SimulatedAlgorithm& algorithm : options.simulation->algorithms) {
        const LinkParameters& link = algorithm.link;
        const std::optional<std::int64_t> measured_on = link.provenance.ranks;
        if (measured_on && options.simulated_ranks.back() > *measured_on) {
            notes.push_back(fmt::format(
                "simulated {}: beyond {} ranks an extrapolation{}", algorithm.name, *measured_on,
                link.algorithm == Algorithm::direct && link.message == Duration{0}
                    ? "; its link has no message_us, so a step of many messages costs as one of one"
                    : ""));
        }
    }
}

void add_errors(const std::vector<BenchRow>& rows, std::vector<std::string>& notes) {
    for (const auto& [text, of, against] :
         {std::array{"time, simulated to measured", "simulated", "measured"},
          std::array{"time, simulated to published", "simulated", "published"},
          std::array{"memory, simulated to measured", "simulated peak", "measured peak"},
          std::array{"memory, simulated to published", "simulated peak", "published peak"}}) {
        double sum = 0;
        double most = 0;
        int count = 0;
        for (const BenchRow& row : rows) {
            if (const std::optional<double> off = error_in(row, of, against)) {
                sum += std::abs(*off);
                most = std::max(most, std::abs(*off));
                ++count;
            }
        }
        if (count > 0) {
            notes.push_back(fmt::format("{}: {:.2f} % off on average, {:.2f} % at most ({} rows)",
                                        text, 100 * sum / count, 100 * most, count));
        }
    }
}

// --- text, CSV and JSON --------------------------------------------------------------------------

std::string title_of(const AllReduceOptions& options, const EnvironmentRecord* environment,
                     bool empty) {
    const std::string dtype = empty ? "" : fmt::format("{} ", name_of(options.dtype));
    if (environment == nullptr) {
        return fmt::format("{}{}, {}", dtype, name_of(options.kind),
                           options.simulation ? "simulated" : "published");
    }
    const std::string& rate = environment->link_rate;
    return fmt::format(
        "{}{} over {}{}; {}\n"
        "times of the slowest rank; the rank with most memory, and the part that messages and sums "
        "added to it;\nthe element furthest from the exact mean",
        dtype, name_of(options.kind), environment->libraries, rate.empty() ? "" : " at " + rate,
        hardware_of(*environment));
}

Json head_of(const AllReduceOptions& options, const EnvironmentRecord* environment,
             const std::vector<std::string>& links) {
    Json head{{"command", passed_on_command(options.command)}, {"date", utc_now()}};
    if (environment != nullptr) {
        const std::string& rate = environment->link_rate;
        head["hardware"] = hardware_of(*environment);
        head["libraries"] = environment->libraries;
        head["link_rate"] = rate.empty() ? Json(nullptr) : Json(rate);
        head["date"] = environment->date;
    }
    if (!links.empty()) {
        head["links"] = links;
    }
    return head;
}

// Columns but those of a row's place are left out where no row has a cell.
std::vector<BenchColumn> columns_of(BenchFormat format, bool compared) {
    const bool text = format == BenchFormat::text;
    std::vector<BenchColumn> columns = text ? text_columns() : data_columns();
    if (!text && (compared || format == BenchFormat::json)) {
        const std::vector<BenchColumn> more = compared_data_columns();
        columns.insert(columns.end(), more.begin(), more.end());
    }
    for (std::size_t i = text ? 3 : 5; i < columns.size(); ++i) {
        columns[i].always = false;
    }
    return columns;
}

std::string table_report(const AllReduceOptions& options, const EnvironmentRecord* environment,
                         std::vector<AllReduceRow> rows) {
    // Algorithms of one size stand one below the other.
    std::ranges::stable_sort(rows, {}, [](const AllReduceRow& row) {
        return std::pair(row.place.ranks, row.place.size);
    });
    const bool compared = std::ranges::any_of(
        rows, [](const AllReduceRow& row) { return row.simulated || row.published; });
    std::vector<BenchRow> cells = transformed(rows, cells_of);
    add_library(cells);
    std::vector<std::string> links;
    std::vector<std::string> notes;
    if (options.simulation) {
        links = link_notes(options.simulation->algorithms);
        notes = crossovers(*options.simulation, options.sizes);
        add_extrapolations(options, notes);
    }
    add_errors(cells, notes);
    ResultTable table = table_of(columns_of(options.format, compared), cells);
    table.notes = notes;
    if (options.format == BenchFormat::text) {
        table.title = title_of(options, environment, rows.empty());
        table.notes.insert(table.notes.begin(), links.begin(), links.end());
        return render(table, TableFormat::text, {});
    }
    return render(table, options.format == BenchFormat::csv ? TableFormat::csv : TableFormat::json,
                  head_of(options, environment, links));
}

}  // namespace

double algorithm_gb_per_s(const AllReduceRow& row) {
    const double us = median(row.measured->samples_us);
    return us > 0 ? static_cast<double>(row.place.size.count) / us / 1e3 : 0.0;
}

double bus_gb_per_s(const AllReduceRow& row) {
    return bus_factor(row.kind, row.place.ranks) * algorithm_gb_per_s(row);
}

std::string all_reduce_report(const AllReduceOptions& options,
                              const std::vector<Measurement>& records) {
    std::vector<AllReduceRow> rows = measured_rows(options.kind, records);
    // With published rows alone, every size on every number of ranks would be too many.
    if (options.simulation && (options.published.empty() || options.backend != nullptr)) {
        add_simulated_rows(rows, options);
    }
    add_published(rows, options);
    for (AllReduceRow& row : rows) {
        row.kind = options.kind;
        if (options.simulation) {
            row.simulated = simulate_all_reduce(*options.simulation, row.place, row.dtype);
        }
    }
    const EnvironmentRecord* environment = nullptr;  // of the machine that measured, if one did
    for (const Measurement& record : records) {
        environment =
            environment == nullptr ? std::get_if<EnvironmentRecord>(&record) : environment;
    }
    return options.format == BenchFormat::nccl_tests
               ? nccl_tests_report(environment, rows)
               : table_report(options, environment, std::move(rows));
}

}  // namespace bucketwise
