// Tables that set ways to synchronise side by side, each described as data. A way has one row for
// each source: published, measured, simulated.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bench.h"
#include "bench/steps/step_variants.h"

namespace bucketwise {

// The subject of a row.
struct StepPlace {
    std::size_t variant = 0;
    std::vector<Cell> keys;  // the table's first columns
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
    BenchColumn shown;
    StepNumber number = {};
    bool is_published = false;  // by the column's own key
};

struct StepTable {
    std::string_view name;         // of the subcommand: "compare-ddp"
    std::string_view explanation;  // examples and how to read it, for --help
    std::vector<OptionText> options;
    // Throws InputError; `file` is the scenario's.
    std::function<StepCases(const boost::program_options::variables_map& values,
                            const Scenario& scenario, const std::string& file)>
        cases;
    std::vector<Column> keys;  // by which the published table's rows are found
    std::vector<StepColumn> columns;
    std::function<std::vector<std::string>(const std::vector<BenchRow>& rows)> notes = {};
    std::map<std::string, Completions> values = {};  // of its own options, as in CommandHelp
};

CommandHelp help_of(const StepTable& table);
int run_step_table(const StepTable& table, const CommandLine& line);

// A statistic of one number of every sample, in seconds.
template <typename Number>
StepNumber seconds(double (*statistic)(const std::vector<double>&), Number StepSample::*number) {
    return [=](const StepSamples& samples, const StepPlace&) {
        return statistic(transformed(samples, number)) / 1e6;
    };
}

// Against the actual and against the base, in percent.
StepColumn actual_error(Column column, const std::string& of);
StepColumn base_delta(Column column, const std::string& of);

// The absolute errors, in percent, of rows whose cells are as `where` says.
std::vector<double> absolute_errors(const std::vector<BenchRow>& rows, const std::string& key,
                                    const BenchRow& where = {});

}  // namespace bucketwise
