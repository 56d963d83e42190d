// The table of bench allreduce and its like: rows measured, simulated and published.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "bench/all_reduce/all_reduce.h"
#include "cli/shell/files.h"
#include "cli/shell/size.h"
#include "sim/base/json_output.h"
#include "sim/base/statistics.h"
#include "sim/base/transformed.h"
#include "sim/link/collective.h"

namespace bucketwise {
namespace {

// --- rows ----------------------------------------------------------------------------------------

void add_places_to_simulate(const AllReduceOptions& options, BenchRows& rows) {
    for (const std::int64_t ranks : options.simulated_ranks) {
        for (const Bytes size : options.sizes) {
            for (const SimulatedAlgorithm& algorithm : options.simulation->algorithms) {
                const BenchRow place =
                    row_at(ranks, whole_parts(options, size, ranks), algorithm.name, options.dtype);
                if (std::ranges::none_of(
                        rows, [&](const BenchRow& row) { return is_same_place(row, place); })) {
                    rows.push_back(place);
                }
            }
        }
    }
}

// Published rows of the requested ranks and sizes join the row of the same place, or stand alone.
void add_published_rows(const AllReduceOptions& options, BenchRows& rows) {
    for (const BenchRow& entry : options.published_rows) {
        if (std::ranges::count(options.simulated_ranks, entry["world_size"].get<std::int64_t>()) ==
                0 ||
            std::ranges::count(options.sizes, Bytes{entry["bytes"].get<std::int64_t>()}) == 0) {
            continue;
        }
        const auto twin = std::ranges::find_if(
            rows, [&](const BenchRow& row) { return is_same_place(row, entry); });
        // Two tables may hold the same place; our own measurement stands beside both.
        BenchRow row = twin == rows.end() ? BenchRow(Json::object()) : *twin;
        const bool joins = twin != rows.end() && !twin->contains("is_published");
        row.update(entry);
        row["is_published"] = true;
        if (joins) {
            *twin = row;
        } else {
            rows.push_back(row);
        }
    }
}

// Beside every row the measured time of the library at its place.
void add_library(BenchRows& rows) {
    for (const BenchRow& library : rows) {
        if (library["algorithm"] != "library" || number_in(library, "time_s").value_or(0) <= 0) {
            continue;
        }
        for (BenchRow& row : rows) {
            if (row["world_size"] == library["world_size"] && row["bytes"] == library["bytes"]) {
                row["library_s"] = library["time_s"];
            }
        }
    }
}

// --- columns -------------------------------------------------------------------------------------

NamedColumn share_column(std::string key, const char* of, const char* against) {
    NamedColumn share = error_column({std::move(key), ""}, of, against);
    share.factor = 1;
    return share;
}

std::vector<NamedColumn> text_columns() {
    constexpr double mib = 1.0 / 1024;
    constexpr double us = 1e6;
    return {
        {{"world_size", "ranks"}},
        {{"message", "message"}},
        {{"algorithm", "algorithm"}},
        {{"samples", "samples"}},
        {{"", "median us", 1}, "time_s", us},
        {{"", "p90 us", 1}, "p90_s", us},
        {{"algorithm_gb_per_s", "alg GB/s", 3}},
        {{"bus_gb_per_s", "bus GB/s", 3}},
        {{"", "time/\nlibrary", 2}, "time_s", 1, Show::ratio, "library_s"},
        {{"", "peak MiB", 1}, "peak_kib", mib},
        {{"", "added MiB", 2}, "added_memory_kib", mib},
        {{"difference", "difference", -2}},
        {{"", "simulated\nus", 1}, "simulated_time_s", us},
        error_column({"", "to measured\n%", 1}, "simulated_time_s", "time_s"),
        {{"", "simulated\npeak MiB", 1}, "simulated_memory_kib", mib},
        error_column({"", "to measured\n%", 2}, "simulated_memory_kib", "peak_kib"),
        {{"", "simulated\nadded MiB", 2}, "simulated_added_memory_kib", mib},
        {{"simulated_difference", "simulated\ndifference", -2}},
        {{"", "published\nus", 1}, "published_time_s", us},
        {{"", "+- us", 1}, "published_std_s", us},
        error_column({"", "simulated to\npublished %", 1}, "simulated_time_s", "published_time_s"),
        error_column({"", "measured to\npublished %", 1}, "time_s", "published_time_s"),
        {{"", "published\npeak MiB", 1}, "published_max_memory_kib", mib},
        error_column({"", "simulated to\npublished %", 2}, "simulated_memory_kib",
                     "published_max_memory_kib"),
        {{"published_difference", "published\ndifference", -2}}};
}

// Readers of the CSV count on these columns alone where nothing is compared. Errors are shares:
// 0.01 is 1 % too much.
std::vector<NamedColumn> data_columns(bool compared) {
    std::vector<NamedColumn> columns;
    for (const char* key :
         {"world_size", "tensor_elements", "bytes", "dtype", "algorithm", "time_s", "std_s",
          "min_s", "max_s", "max_memory_kib", "difference", "backend"}) {
        columns.push_back({{key, ""}});
    }
    const std::vector<NamedColumn> more{
        {{"added_memory_kib", ""}},
        {{"simulated_time_s", ""}},
        share_column("simulated_time_error", "simulated_time_s", "time_s"),
        {{"simulated_added_memory_kib", ""}},
        {{"simulated_memory_kib", ""}},
        share_column("simulated_memory_error", "simulated_memory_kib", "peak_kib"),
        {{"simulated_difference", ""}},
        {{"published_time_s", ""}},
        {{"published_std_s", ""}},
        {{"published_memory_kib", ""}, "published_max_memory_kib"},
        {{"published_difference", ""}},
        share_column("simulated_to_published_time", "simulated_time_s", "published_time_s"),
        share_column("measured_to_published_time", "time_s", "published_time_s"),
        share_column("simulated_to_published_memory", "simulated_memory_kib",
                     "published_max_memory_kib")};
    columns.insert(columns.end(), more.begin(), compared ? more.end() : more.begin());
    return columns;
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

void add_errors(const BenchRows& rows, std::vector<std::string>& notes) {
    for (const auto& [text, of, against] :
         {std::array{"time, simulated to measured", "simulated_time_s", "time_s"},
          std::array{"time, simulated to published", "simulated_time_s", "published_time_s"},
          std::array{"memory, simulated to measured", "simulated_memory_kib", "peak_kib"},
          std::array{"memory, simulated to published", "simulated_memory_kib",
                     "published_max_memory_kib"}}) {
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

// --- the report ----------------------------------------------------------------------------------

std::string title_of(const AllReduceOptions& options, bool measured) {
    return fmt::format("{} {}{}", name_of(options.dtype), name_of(options.kind),
                       measured ? ": times of the slowest rank; the rank with most memory, and the "
                                  "part that messages and sums added\nto it; the element furthest "
                                  "from the exact mean"
                       : options.simulation ? ", simulated"
                                            : ", published");
}

BenchReport report_of(const AllReduceOptions& options, bool measured, BenchRows rows) {
    const bool text = options.table == BenchFormat::text;
    // Algorithms of one size stand one below the other.
    std::ranges::stable_sort(
        rows, {}, [](const BenchRow& row) { return std::pair(row["world_size"], row["bytes"]); });
    add_library(rows);
    const bool compared =
        options.table == BenchFormat::json || options.simulation || !options.published_rows.empty();
    BenchReport report{.title = title_of(options, measured),
                       .columns = text ? text_columns() : data_columns(compared),
                       .rows = rows};
    // Columns but those of a row's place are left out where no row has a cell.
    for (std::size_t i = text ? 3 : 5; i < report.columns.size(); ++i) {
        report.columns[i].always = false;
    }
    std::vector<std::string> links;
    if (options.simulation) {
        links = link_notes(options.simulation->algorithms);
        report.notes = crossovers(*options.simulation, options.sizes);
        add_extrapolations(options, report.notes);
    }
    add_errors(rows, report.notes);
    if (text) {
        report.notes.insert(report.notes.begin(), links.begin(), links.end());
    }
    add_unless_empty(report.head, "links", links);
    return report;
}

}  // namespace

BenchRow row_at(std::int64_t ranks, Bytes size, const std::string& algorithm, DType dtype) {
    return {{"world_size", ranks},     {"tensor_elements", size.count / element_size(dtype).count},
            {"bytes", size.count},     {"message", message_text(size)},
            {"dtype", name_of(dtype)}, {"algorithm", algorithm}};
}

bool is_same_place(const BenchRow& one, const BenchRow& other) {
    return one["world_size"] == other["world_size"] && one["bytes"] == other["bytes"] &&
           one["algorithm"] == other["algorithm"];
}

double gb_per_s_of(const BenchRow& row) {
    const double s = row["time_s"];
    return s > 0 ? row["bytes"].get<double>() / s / 1e9 : 0.0;
}

BenchRow measured_row(const CollectiveRecord& record) {
    const Transport& transport = record.transport;
    const bool library = transport.implementation == "library";
    BenchRow row = row_at(transport.ranks, record.size,
                          library ? transport.implementation : transport.algorithm, record.dtype);
    const std::vector<double>& us = record.samples_us;
    row.update(
        {{"samples", us.size()},
         {"time_s", median(us) * 1e-6},
         {"p90_s", quantile(us, 0.9) / 1e6},
         {"std_s", standard_deviation(us) / 1e6},
         {"min_s", std::ranges::min(us) / 1e6},
         {"max_s", std::ranges::max(us) / 1e6},
         {"peak_kib", in_kib(record.peak_memory_bytes)},
         {"max_memory_kib", record.peak_memory_bytes / 1024},
         {"difference", record.largest_difference},
         {"backend", transport.backend},
         {"implementation", fmt::format("{} {}", transport.implementation, transport.algorithm)}});
    if (transport.ranks > 1) {  // a single rank moves nothing
        const double gb_per_s = gb_per_s_of(row);
        row["algorithm_gb_per_s"] = gb_per_s;
        row["bus_gb_per_s"] = gb_per_s * bus_factor(record.kind, transport.ranks);
    }
    if (record.memory_before_bytes) {
        row["memory_before_kib"] = in_kib(*record.memory_before_bytes);
        row["added_memory_kib"] = in_kib(record.peak_memory_bytes - *record.memory_before_bytes);
    }
    return row;
}

void print_all_reduces(const AllReduceOptions& options, const EnvironmentRecord* environment,
                       BenchRows rows) {
    if (options.table == BenchFormat::nccl_tests) {
        write_output("-", nccl_tests_report(options.kind, *environment, rows));
        return;
    }
    // With published rows alone, every size on every number of ranks would be too many.
    if (options.simulation && (options.published_rows.empty() || options.measures)) {
        add_places_to_simulate(options, rows);
    }
    add_published_rows(options, rows);
    for (BenchRow& row : rows) {
        if (options.simulation) {
            add_simulated(*options.simulation, options.dtype, row);
        }
    }
    print_report(options, environment, report_of(options, environment != nullptr, rows));
}

}  // namespace bucketwise
