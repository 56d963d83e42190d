#include "bench/all_reduce/result.h"

#include <algorithm>

#include <fmt/format.h>

#include "bench/all_reduce/report.h"
#include "bench/all_reduce/rows.h"
#include "bench/all_reduce/simulation.h"

namespace bucketwise {
namespace {

// Where only published rows are asked for, every size on every number of ranks would be too many.
bool follows_published(const BenchAllReduceOptions& options) {
    return !options.published.empty() && !options.measure;
}

void add_simulated_rows(std::vector<AllReduceRow>& rows, const BenchAllReduceOptions& options) {
    for (const std::int64_t ranks : options.simulated_ranks) {
        for (const Bytes size : options.sizes) {
            for (const SimulatedAlgorithm& algorithm : options.simulation->algorithms) {
                const AllReducePlace place{ranks, size, algorithm.name};
                const bool is_there =
                    std::any_of(rows.begin(), rows.end(),
                                [&](const AllReduceRow& row) { return row.place == place; });
                if (!is_there) {
                    rows.push_back({.place = place, .dtype = options.dtype});
                }
            }
        }
    }
}

// Published rows of ranks and sizes that were not asked for stay out.
bool is_asked_for(const BenchAllReduceOptions& options, const PublishedAllReduce& row) {
    const auto& ranks = options.simulated_ranks;
    return std::find(ranks.begin(), ranks.end(), row.place.ranks) != ranks.end() &&
           std::find(options.sizes.begin(), options.sizes.end(), row.place.size) !=
               options.sizes.end();
}

std::vector<PublishedAllReduce> published_rows(const BenchAllReduceOptions& options) {
    std::vector<PublishedAllReduce> rows;
    std::copy_if(options.published.begin(), options.published.end(), std::back_inserter(rows),
                 [&](const PublishedAllReduce& row) { return is_asked_for(options, row); });
    return rows;
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
    std::vector<AllReduceRow> rows = measured_rows(records);
    AllReduceReport report{.command = options.command, .environment = environment_of(records)};
    if (options.simulation && !follows_published(options)) {
        add_simulated_rows(rows, options);
    }
    add_published(rows, published_rows(options), options.dtype);
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
    return bench_allreduce_report(report, rows, options.format);
}

}  // namespace bucketwise
