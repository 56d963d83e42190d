// What the benches that set ways to synchronise side by side have in common: options, running every
// variant simulated and on real ranks, and printing one table of it.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <boost/program_options.hpp>

#include "bench/steps/step_variants.h"
#include "cli/shell/command_help.h"
#include "cli/shell/option_values.h"
#include "cli/shell/result_table.h"
#include "sim/base/transformed.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// What a row is about; where it was published, measured and simulated, it is a row each.
struct StepPlace {
    std::size_t variant = 0;
    std::vector<Cell> keys;  // as the table's first columns
    // What deltas are against, if the table has any.
    std::size_t base_variant = 0;
    std::vector<Cell> base_keys = {};
};

using StepNumbers = std::map<std::string, double>;  // by column

struct StepRow {
    StepPlace place;
    const char* source = "";
    StepNumbers numbers;
    StepNumbers base = {};    // those that deltas are against
    StepNumbers actual = {};  // of a simulated row: what was measured, or else published

    // How much too large a number is, in percent; nothing without an actual one.
    [[nodiscard]] Cell error_percent(const std::string& key) const;
};

// A column of a number of the samples, or, without `number`, of what follows from other columns.
struct StepColumn {
    Column column;
    std::function<double(const StepSamples& samples, const StepPlace& place)> number = {};
    bool is_published = false;  // by the column's own key
    std::function<Cell(const StepRow& row)> derived = {};
};

StepColumn ratio_column(Column column, const std::string& part, const std::string& whole);
StepColumn delta_column(Column column, const std::string& of);  // against the base, in percent
StepColumn error_column(Column column, const std::string& of);  // against the actual, in percent

struct StepTable {
    std::string_view name;         // of the subcommand: "compare-ddp"
    std::string_view explanation;  // examples and how to read it, for --help
    std::vector<OptionText> options;
    // Throws InputError; `file` is the scenario's.
    std::function<std::vector<StepVariant>(const boost::program_options::variables_map& values,
                                           const Scenario& scenario, const std::string& file)>
        variants;
    std::vector<Column> keys;         // what rows are about, to be found by in the published table
    std::vector<StepColumn> columns;  // after the keys and the source
    std::function<std::vector<StepPlace>(const std::vector<StepVariant>& variants)> places;
    std::function<std::vector<std::string>(const std::vector<StepRow>& rows)> notes = {};
    std::map<std::string, Completions> values = {};  // of its own options, as CommandHelp has them
};

CommandHelp help_of(const StepTable& table);

int run_step_table(const StepTable& table, const CommandLine& line);

// A statistic of one number of every sample, in seconds, as a column takes it.
template <typename Number>
auto seconds(double (*statistic)(const std::vector<double>&), Number StepSample::*number) {
    return [=](const StepSamples& samples, const StepPlace&) {
        return statistic(transformed(samples, number)) / 1e6;
    };
}

// How far those rows that have an error of this column are off, in percent.
template <typename Rows>
std::vector<double> absolute_errors(const Rows& rows, const std::string& key) {
    std::vector<double> errors;
    for (const StepRow& row : rows) {
        const Cell error = row.error_percent(key);
        if (const auto* value = std::get_if<double>(&error)) {
            errors.push_back(std::abs(*value));
        }
    }
    return errors;
}

}  // namespace bucketwise
