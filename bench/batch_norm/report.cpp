#include "bench/batch_norm/report.h"

#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "hw/record/environment.h"
#include "sim/base/error.h"
#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

// A time and a peak of memory, wherever they came from.
struct LayerNumbers {
    double seconds = 0;
    double memory_bytes = 0;
};

struct Row {
    BatchNormLayer layer = {};
    std::optional<MeasuredLayer> measured = {};
    std::optional<LayerNumbers> simulated = {};
    std::optional<LayerNumbers> published = {};
    std::string published_as = {};

    // What the row is about: measured if it was, else simulated.
    [[nodiscard]] std::optional<LayerNumbers> main() const {
        if (!measured) {
            return simulated;
        }
        return LayerNumbers{median(measured->samples_us) * 1e-6,
                            static_cast<double>(measured->peak_memory_bytes)};
    }
};

LayerNumbers simulated_numbers(const BatchNormLayer& layer, const SimulatedMachine& machine) {
    const std::vector<LayerEvent> events = events_of(layer);
    constexpr double us = 1e-6;
    return {to_us(time_of(events, machine.device, machine.group, machine.link)) * us,
            static_cast<double>(memory_peak(events).size.count)};
}

// --- published -----------------------------------------------------------------------------------

// The row of the layer's own name, or else of the published system that does the same: gather is
// PyTorch's way, fused the hand-made one's.
void add_published(const CsvFile& file, Row& row) {
    using enum BatchNormSystem;
    const BatchNormSystem own = row.layer.system;
    for (const std::string_view name :
         {name_of(own), name_of(own == gather || own == pytorch ? pytorch : selfmade)}) {
        if (const auto found = find_row(file, {{"implementation", std::string(name)},
                                               {"batch_size", row.layer.rows},
                                               {"hidden_dim", row.layer.channels}})) {
            row.published = LayerNumbers{file.number(*found, "median_s"),
                                         file.number(*found, "max_memory_bytes")};
            row.published_as = name;
            return;
        }
    }
}

std::vector<Row> rows_of(const BenchSyncBnOptions& options, const MeasuredLayers& measured) {
    std::vector<Row> rows;
    for (std::size_t i = 0; i < options.layers.size(); ++i) {
        Row row{.layer = options.layers[i]};
        const auto found = measured.find(i);
        if (found != measured.end() && !found->second.samples_us.empty()) {
            row.measured = found->second;
        }
        if (options.machine) {
            row.simulated = simulated_numbers(row.layer, *options.machine);
        }
        if (options.published) {
            add_published(*options.published, row);
        }
        if (row.main()) {
            rows.push_back(std::move(row));
        }
    }
    return rows;
}

// --- the table -----------------------------------------------------------------------------------

using Columns = std::vector<ColumnOf<Row>>;

double percent_off(double ours, double theirs) {
    return theirs > 0 ? 100 * (ours / theirs - 1) : std::nan("");
}

Cell bytes_cell(double bytes) {
    return std::int64_t{std::llround(bytes)};
}

constexpr int digits = -4;  // of a time

Columns scatter_columns() {
    const auto quantile_of = [](double q) {
        return [q](const Row& row) {
            return row.measured ? Cell(quantile(row.measured->samples_us, q) * 1e-6) : Cell();
        };
    };
    return {{{"p10_s", "p10\ns", digits}, quantile_of(0.1)},
            {{"p90_s", "p90\ns", digits}, quantile_of(0.9)},
            {{"samples", "samples"}, [](const Row& row) {
                 return row.measured ? std::ssize(row.measured->samples_us) : std::int64_t{0};
             }}};
}

Columns simulated_columns() {
    return {
        {{"simulated_s", "simulated\ns", digits},
         [](const Row& row) { return row.simulated->seconds; }},
        {{"simulated_error_percent", "error\n%", 1},
         [](const Row& row) { return percent_off(row.simulated->seconds, row.main()->seconds); }},
        {{"simulated_memory_bytes", "simulated\nbytes"},
         [](const Row& row) { return bytes_cell(row.simulated->memory_bytes); }}};
}

// Errors are those of the row's own time and memory against the published ones.
Columns published_columns() {
    const auto error = [](double LayerNumbers::*which) {
        return [which](const Row& row) {
            return row.published ? Cell(percent_off((*row.main()).*which, (*row.published).*which))
                                 : Cell();
        };
    };
    return {
        {{"published_implementation", "published\nas"},
         [](const Row& row) { return row.published_as.empty() ? Cell() : Cell(row.published_as); }},
        {{"published_median_s", "published\ns", digits},
         [](const Row& row) { return row.published ? Cell(row.published->seconds) : Cell(); }},
        {{"median_error_percent", "error\n%", 1}, error(&LayerNumbers::seconds)},
        {{"published_max_memory_bytes", "published\nbytes"},
         [](const Row& row) {
             return row.published ? bytes_cell(row.published->memory_bytes) : Cell();
         }},
        {{"max_memory_error_percent", "error\n%", 2}, error(&LayerNumbers::memory_bytes)}};
}

Columns columns_of(const BenchSyncBnOptions& options) {
    Columns columns{
        {{"implementation", "implementation"},
         [](const Row& row) { return std::string(name_of(row.layer.system)); }},
        {{"batch_size", "batch"}, [](const Row& row) { return row.layer.rows; }},
        {{"hidden_dim", "width"}, [](const Row& row) { return row.layer.channels; }},
        {{"median_s", "median\ns", digits}, [](const Row& row) { return row.main()->seconds; }},
        {{"max_memory_bytes", "memory\nbytes"},
         [](const Row& row) { return bytes_cell(row.main()->memory_bytes); }}};
    if (options.backend != nullptr) {
        append(columns, scatter_columns());
    }
    if (options.backend != nullptr && options.machine) {
        append(columns, simulated_columns());
    }
    if (options.published) {
        append(columns, published_columns());
    }
    columns.push_back({{"passes", "passes"},
                       [](const Row& row) { return std::string(name_of(row.layer.passes)); }});
    columns.push_back({{"ranks", "ranks"}, [](const Row& row) { return row.layer.ranks; }});
    return columns;
}

std::string title_of(const BenchSyncBnOptions& options, const EnvironmentRecord& environment) {
    std::string title =
        fmt::format("SyncBatchNorm layer, float32, {}", text_of_ranks(options.ranks));
    if (options.backend != nullptr) {
        title += fmt::format("\nmeasured over {}; {}; the slowest rank's times",
                             environment.libraries, hardware_of(environment));
    }
    if (options.machine) {
        const SimulatedMachine& machine = *options.machine;
        title += fmt::format("\nsimulated: {} over {} ({})", machine.device.name, machine.link.name,
                             machine.scenario);
    }
    return title;
}

std::vector<std::string> notes_of(const BenchSyncBnOptions& options, const std::vector<Row>& rows) {
    std::vector<std::string> notes;
    std::size_t found = 0;
    bool other = false;
    bool other_passes = false;
    for (const Row& row : rows) {
        if (row.published) {
            ++found;
            other = other || row.published_as != name_of(row.layer.system);
            other_passes = other_passes || row.layer.passes == BatchNormPasses::both;
        }
    }
    if (options.published && found < options.published->rows()) {
        notes.push_back(fmt::format("{} of {} published rows have a row here.", found,
                                    options.published->rows()));
    }
    if (other) {
        notes.emplace_back(
            "gather stands beside the published pytorch, fused beside selfmade: the same "
            "collectives, but other code on another machine.");
    }
    if (other_passes) {
        notes.emplace_back(
            "The published numbers are of forward alone (--passes forward), these of forward and "
            "backward.");
    }
    return notes;
}

}  // namespace

std::string bench_syncbn_report(const BenchSyncBnOptions& options,
                                const EnvironmentRecord& environment,
                                const MeasuredLayers& measured) {
    const std::vector<Row> rows = rows_of(options, measured);
    ResultTable table = table_of(columns_of(options), rows);
    table.title = title_of(options, environment);
    table.notes = notes_of(options, rows);
    Json head{{"date", utc_now()}, {"ranks", options.ranks}};
    if (options.backend != nullptr) {
        head["hardware"] = hardware_of(environment);
        head["libraries"] = environment.libraries;
        head["rounds"] = options.rounds;
        head["iterations"] = options.iterations;
    }
    if (options.machine) {
        head["simulated"] = {{"scenario", options.machine->scenario},
                             {"device", options.machine->device.name},
                             {"link", options.machine->link.name}};
    }
    return render(table, options.format, head);
}

}  // namespace bucketwise
