#include "bench/batch_norm/bench_syncbn_report.h"

#include <array>
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
struct Numbers {
    double seconds = 0;
    double memory_bytes = 0;
};

struct Row {
    BatchNormLayer layer = {};
    std::optional<MeasuredLayer> measured = {};
    std::optional<Numbers> simulated = {};
    std::optional<Numbers> published = {};
    std::string published_as = {};

    // What the row is about: measured if it was, else simulated.
    [[nodiscard]] std::optional<Numbers> main() const {
        if (!measured) {
            return simulated;
        }
        return Numbers{median(measured->samples_us) * 1e-6,
                       static_cast<double>(measured->peak_memory_bytes)};
    }
};

Numbers simulated_numbers(const BatchNormLayer& layer, const SimulatedMachine& machine) {
    const std::vector<LayerEvent> events = events_of(layer);
    constexpr double us = 1e-6;
    return {to_us(time_of(events, machine.device, machine.group, machine.link)) * us,
            static_cast<double>(memory_peak(events).size.count)};
}

// --- published -----------------------------------------------------------------------------------

// The published system that does the same: gather is PyTorch's way, fused the hand-made one's.
std::string_view published_name(BatchNormSystem system) {
    switch (system) {
        case BatchNormSystem::gather:
        case BatchNormSystem::pytorch:
            return name_of(BatchNormSystem::pytorch);
        case BatchNormSystem::fused:
        case BatchNormSystem::selfmade:
            return name_of(BatchNormSystem::selfmade);
    }
    return {};
}

bool is_row_of(const CsvFile& file, std::size_t row, std::string_view name,
               const BatchNormLayer& layer) {
    return file.text(row, "implementation") == name &&
           file.number(row, "batch_size") == static_cast<double>(layer.rows) &&
           file.number(row, "hidden_dim") == static_cast<double>(layer.channels);
}

// The row of the layer's own name, or else of the system that does the same.
void add_published(const CsvFile& file, Row& row) {
    for (const std::string_view name :
         {name_of(row.layer.system), published_name(row.layer.system)}) {
        for (std::size_t i = 0; i < file.rows(); ++i) {
            if (is_row_of(file, i, name, row.layer)) {
                row.published =
                    Numbers{file.number(i, "median_s"), file.number(i, "max_memory_bytes")};
                row.published_as = name;
                return;
            }
        }
    }
}

std::vector<Row> rows_of(const BenchSyncBnOptions& options, const MeasuredLayers& measured) {
    std::vector<Row> rows;
    for (std::size_t i = 0; i < options.layers.size(); ++i) {
        Row row{.layer = options.layers[i]};
        const auto found = measured.layers.find(i);
        if (found != measured.layers.end() && !found->second.samples_us.empty()) {
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

double error_of(double ours, double theirs) {
    return theirs > 0 ? 100 * (ours / theirs - 1) : std::nan("");
}

Cell bytes_cell(double bytes) {
    return std::int64_t{std::llround(bytes)};
}

class TableMaker {
  public:
    TableMaker(const BenchSyncBnOptions& options, std::vector<Row> rows)
        : options_(options), rows_(std::move(rows)) {}

    ResultTable make() && {
        add("implementation", "implementation",
            [](const Row& row) { return std::string(name_of(row.layer.system)); });
        add("batch_size", "batch", [](const Row& row) { return row.layer.rows; });
        add("hidden_dim", "width", [](const Row& row) { return row.layer.channels; });
        add("median_s", "median\ns", [](const Row& row) { return row.main()->seconds; });
        add("max_memory_bytes", "memory\nbytes",
            [](const Row& row) { return bytes_cell(row.main()->memory_bytes); });
        if (options_.backend != nullptr) {
            add_scatter();
        }
        if (options_.backend != nullptr && options_.machine) {
            add_simulated();
        }
        if (options_.published) {
            add_published_columns();
        }
        add("passes", "passes",
            [](const Row& row) { return std::string(name_of(row.layer.passes)); });
        add("ranks", "ranks", [](const Row& row) { return row.layer.ranks; });
        return std::move(table_);
    }

  private:
    static constexpr int significant = -4;  // digits of a time

    template <typename Make>
    void add(const char* key, const char* heading, const Make& make, int decimals = significant) {
        table_.columns.push_back({.key = key, .heading = heading, .decimals = decimals});
        table_.rows.resize(rows_.size());
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            table_.rows[i].emplace_back(make(rows_[i]));
        }
    }

    void add_scatter() {
        const auto quantile_of = [](double q) {
            return [q](const Row& row) -> Cell {
                if (!row.measured) {
                    return std::monostate{};
                }
                return quantile(row.measured->samples_us, q) * 1e-6;
            };
        };
        add("p10_s", "p10\ns", quantile_of(0.1));
        add("p90_s", "p90\ns", quantile_of(0.9));
        add("samples", "samples", [](const Row& row) -> Cell {
            return row.measured ? std::ssize(row.measured->samples_us) : std::int64_t{0};
        });
    }

    void add_simulated() {
        add("simulated_s", "simulated\ns", [](const Row& row) { return row.simulated->seconds; });
        add(
            "simulated_error_percent", "error\n%",
            [](const Row& row) { return error_of(row.simulated->seconds, row.main()->seconds); },
            1);
        add("simulated_memory_bytes", "simulated\nbytes",
            [](const Row& row) { return bytes_cell(row.simulated->memory_bytes); });
    }

    // Errors are of the row's own time and memory against the published ones.
    void add_published_columns() {
        const auto number = [](double Numbers::*which, bool error) {
            return [which, error](const Row& row) -> Cell {
                if (!row.published) {
                    return std::monostate{};
                }
                const double theirs = (*row.published).*which;
                return error ? error_of((*row.main()).*which, theirs) : theirs;
            };
        };
        add("published_implementation", "published\nas", [](const Row& row) -> Cell {
            return row.published_as.empty() ? Cell{} : Cell{row.published_as};
        });
        add("published_median_s", "published\ns", number(&Numbers::seconds, false));
        add("median_error_percent", "error\n%", number(&Numbers::seconds, true), 1);
        add("published_max_memory_bytes", "published\nbytes", [](const Row& row) -> Cell {
            return row.published ? bytes_cell(row.published->memory_bytes) : Cell{};
        });
        add("max_memory_error_percent", "error\n%", number(&Numbers::memory_bytes, true), 2);
    }

    const BenchSyncBnOptions& options_;
    std::vector<Row> rows_;
    ResultTable table_;
};

std::string title_of(const BenchSyncBnOptions& options, const MeasuredLayers& measured) {
    std::string title = fmt::format("SyncBatchNorm layer, float32, {} {}", options.ranks,
                                    options.ranks == 1 ? "rank" : "ranks");
    if (options.backend != nullptr) {
        title += fmt::format("\nmeasured over {}; {}; the slowest rank's times", measured.libraries,
                             measured.hardware);
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
        found += row.published ? std::size_t{1} : 0;
        other = other || (row.published && row.published_as != name_of(row.layer.system));
        other_passes = other_passes || (row.published && row.layer.passes == BatchNormPasses::both);
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

std::string bench_syncbn_report(const BenchSyncBnOptions& options, const MeasuredLayers& measured) {
    std::vector<Row> rows = rows_of(options, measured);
    const std::vector<std::string> notes = notes_of(options, rows);
    ResultTable table = TableMaker(options, std::move(rows)).make();
    table.title = title_of(options, measured);
    table.notes = notes;
    Json head{{"date", utc_now()}, {"ranks", options.ranks}};
    if (options.backend != nullptr) {
        head["hardware"] = measured.hardware;
        head["libraries"] = measured.libraries;
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
