// What the report is of: rows measured, simulated and published, and where they come from.
#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "bench/all_reduce/report.h"
#include "bench/all_reduce/rows.h"
#include "bench/all_reduce/simulation.h"
#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

// The machine that measured; nothing: none did.
const EnvironmentRecord* first_environment(const std::vector<Measurement>& records) {
    for (const Measurement& record : records) {
        if (const auto* environment = std::get_if<EnvironmentRecord>(&record)) {
            return environment;
        }
    }
    return nullptr;
}

std::string algorithm_of(const Transport& transport) {
    return transport.implementation == "library" ? transport.implementation : transport.algorithm;
}

void add_record(AllReduceRow& row, const AllReduceRecord& record) {
    row.place = {record.transport.ranks, record.size, algorithm_of(record.transport)};
    row.dtype = record.dtype;
    MeasuredAllReduce& measured =
        row.measured ? *row.measured : row.measured.emplace(MeasuredAllReduce{});
    measured.transport = record.transport;
    measured.samples_us.insert(measured.samples_us.end(), record.samples_us.begin(),
                               record.samples_us.end());
    measured.largest_difference = std::max(measured.largest_difference, record.largest_difference);
    if (record.peak_memory_bytes >= measured.peak_memory_bytes) {
        measured.peak_memory_bytes = record.peak_memory_bytes;
        measured.memory_before_bytes = record.memory_before_bytes;
    }
}

// Nothing: it is of another kind.
const AllReduceRecord* record_of(CollectiveKind kind, const Measurement& measurement) {
    if (kind == CollectiveKind::all_reduce) {
        return std::get_if<AllReduceRecord>(&measurement);
    }
    const auto* other = std::get_if<CollectiveRecord>(&measurement);
    return other != nullptr && other->kind == kind ? &other->measured : nullptr;
}

// Worlds in the order they ran; within each, by size.
std::vector<AllReduceRow> measured_rows(CollectiveKind kind,
                                        const std::vector<Measurement>& records) {
    std::vector<Transport> worlds;
    std::map<std::pair<std::size_t, Bytes>, AllReduceRow> rows;
    for (const Measurement& measurement : records) {
        const AllReduceRecord* record = record_of(kind, measurement);
        if (record == nullptr) {
            continue;
        }
        const auto world = std::find(worlds.begin(), worlds.end(), record->transport);
        const auto number = static_cast<std::size_t>(world - worlds.begin());
        if (world == worlds.end()) {
            worlds.push_back(record->transport);
        }
        add_record(rows[{number, record->size}], *record);
    }
    std::vector<AllReduceRow> list;
    for (auto& [key, row] : rows) {
        row.measured->median_us = median(row.measured->samples_us);
        list.push_back(std::move(row));
    }
    return list;
}

// Where only published rows are asked for, every size on every number of ranks would be too many.
bool follows_published(const BenchAllReduceOptions& options) {
    return !options.published.empty() && !options.measure;
}

void add_simulated_rows(std::vector<AllReduceRow>& rows, const BenchAllReduceOptions& options) {
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

// Published rows of ranks and sizes that were not asked for stay out.
bool is_asked_for(const BenchAllReduceOptions& options, const PublishedAllReduce& row) {
    return std::ranges::count(options.simulated_ranks, row.place.ranks) > 0 &&
           std::ranges::count(options.sizes, row.place.size) > 0;
}

// Published values beside what was measured of the same; what was not has a row of its own.
void add_published(std::vector<AllReduceRow>& rows, const BenchAllReduceOptions& options) {
    const DType dtype = options.dtype;
    for (const PublishedAllReduce& entry : options.published) {
        if (!is_asked_for(options, entry)) {
            continue;
        }
        const auto found = std::find_if(rows.begin(), rows.end(), [&](const AllReduceRow& row) {
            return row.place == entry.place && row.dtype == dtype && !row.published;
        });
        if (found != rows.end()) {
            found->published = entry;
            continue;
        }
        AllReduceRow row{.place = entry.place, .dtype = dtype, .published = entry};
        // Two tables may tell of the same, and our own measurement stands beside both.
        const auto twin = std::find_if(rows.begin(), rows.end(), [&](const AllReduceRow& other) {
            return other.place == entry.place && other.dtype == dtype;
        });
        if (twin != rows.end()) {
            row.measured = twin->measured;
            row.simulated = twin->simulated;
        }
        rows.push_back(std::move(row));
    }
}

std::string source_of(const LinkParameters& link) {
    const Provenance& from = link.provenance;
    return fmt::format("{}{}{}", link.name, from.source.empty() ? "" : "; " + from.source,
                       from.hardware.empty() ? "" : "; " + from.hardware);
}

// Algorithms of one link in one sentence.
std::vector<std::string> sentences_of(const std::vector<SimulatedAlgorithm>& algorithms) {
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

// Where a link is asked for more than it was measured on.
std::vector<std::string> extrapolations(const std::vector<SimulatedAlgorithm>& algorithms,
                                        std::int64_t most_ranks) {
    std::vector<std::string> notes;
    for (const SimulatedAlgorithm& algorithm : algorithms) {
        const LinkParameters& link = algorithm.link;
        const std::optional<std::int64_t> measured_on = link.provenance.ranks;
        if (!measured_on || most_ranks <= *measured_on) {
            continue;
        }
        notes.push_back(fmt::format(
            "simulated {}: beyond {} ranks an extrapolation{}", algorithm.name, *measured_on,
            link.algorithm == Algorithm::direct && link.message == Duration{0}
                ? "; its link has no message_us, so a step of many messages costs as one of one"
                : ""));
    }
    return notes;
}

}  // namespace

std::string bench_allreduce_result(const BenchAllReduceOptions& options,
                                   const std::vector<Measurement>& records) {
    std::vector<AllReduceRow> rows = measured_rows(options.kind, records);
    AllReduceReport report{.kind = options.kind,
                           .command = options.command,
                           .environment = first_environment(records)};
    if (options.simulation && !follows_published(options)) {
        add_simulated_rows(rows, options);
    }
    add_published(rows, options);
    if (options.simulation) {
        for (AllReduceRow& row : rows) {
            row.simulated = simulate_all_reduce(*options.simulation, row.place, row.dtype);
        }
        report.links = sentences_of(options.simulation->algorithms);
        report.notes = crossovers(*options.simulation, options.sizes);
        const std::vector<std::string> notes =
            extrapolations(options.simulation->algorithms, options.simulated_ranks.back());
        report.notes.insert(report.notes.end(), notes.begin(), notes.end());
    }
    for (AllReduceRow& row : rows) {
        row.kind = options.kind;
    }
    return bench_allreduce_report(std::move(report), std::move(rows), options.format);
}

}  // namespace bucketwise
