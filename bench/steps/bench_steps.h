// What the benches that set ways to synchronise side by side have in common: options, running every
// variant simulated and on real ranks, and printing one table of it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/program_options.hpp>

#include "bench/steps/step_variants.h"
#include "cli/shell/command_help.h"
#include "cli/shell/csv.h"
#include "cli/shell/result_table.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// Where the numbers of a row are from, as tables name it.
constexpr const char* from_simulation = "simulated";
constexpr const char* from_measurement = "measured";
constexpr const char* from_publication = "published";

// One source's samples of every variant.
struct VariantSource {
    bool is_simulated = false;
    std::vector<StepSamples> by_variant = {};

    [[nodiscard]] const char* name() const {
        return is_simulated ? from_simulation : from_measurement;
    }
};

struct StepTable {
    std::string_view name;         // of the subcommand: "compare-ddp"
    std::string_view explanation;  // examples and how to read it, for --help
    std::function<void(boost::program_options::options_description&)> add_options;
    // Throws InputError; `file` is the scenario's.
    std::function<std::vector<StepVariant>(const boost::program_options::variables_map& values,
                                           const Scenario& scenario, const std::string& file)>
        variants;
    // Columns and rows. Measured before simulated, where both are there.
    std::function<ResultTable(const std::vector<StepVariant>& variants,
                              const std::vector<VariantSource>& sources,
                              const std::optional<CsvFile>& published)>
        rows;
    std::map<std::string, Completions> values = {};  // of its own options, as CommandHelp has them
};

CommandHelp help_of(const StepTable& table);

int run_step_table(const StepTable& table, const std::vector<std::string>& arguments);

// One number of every sample.
std::vector<double> each(const StepSamples& samples, double StepSample::*number);
std::vector<double> steps_us(const StepSamples& samples);

// predicted / actual - 1 in percent; nothing without an actual value.
Cell error_percent(double predicted, const std::optional<double>& actual);

}  // namespace bucketwise
