// Tables that set ways to synchronise side by side, each described as data. A way has one row for
// each source: published, measured, simulated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bench.h"
#include "bench/steps/step_variants.h"

namespace bucketwise {

struct StepOptions : BenchOptions {
    std::int64_t steps = 1;  // of a row in each round
    std::vector<Strategy> strategies;
    std::vector<Bytes> caps;
    std::optional<std::vector<std::int64_t>> sequence_lengths;
    std::optional<std::vector<std::int64_t>> batches;
    std::vector<std::int64_t> buffers;
};

// The subject of a row.
struct StepPlace {
    std::size_t variant = 0;
    std::vector<Json> keys;  // the table's first columns
    std::size_t base = 0;    // the place that deltas are against, if the table has any
};

struct StepCases {
    std::vector<StepVariant> variants;
    std::vector<StepPlace> places;
};

using StepNumber = std::function<double(const StepSamples& samples, const StepPlace& place)>;

// A number of the samples, or, without `number`, of other columns. Columns may name another row's
// cell: "actual KEY" (in a simulated row the measured number, else the published one) and
// "base KEY" (the base's).
struct StepColumn {
    NamedColumn shown;
    StepNumber number = {};
    bool is_published = false;  // by the column's own key
};

struct StepTable {
    const char* name;       // of the subcommand: "compare-ddp"
    std::string_view text;  // examples and how to read it, for --help
    std::vector<OptionText> (*options)(StepOptions& options);
    // Throws InputError.
    StepCases (*cases)(const StepOptions& options, const Scenario& scenario);
    std::vector<Column> keys;  // by which the published table's rows are found
    std::vector<StepColumn> columns;
    std::vector<std::string> (*notes)(const BenchRows& rows) = nullptr;
};

CommandHelp step_table_help(const StepTable& table);

}  // namespace bucketwise
