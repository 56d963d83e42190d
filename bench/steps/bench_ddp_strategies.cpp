// bucketwise bench ddp-strategies: what synchronising naively, flat or overlapped costs, as
// Stanford CS336's second assignment asks.
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "bench/benches.h"
#include "bench/steps/bench_steps.h"
#include "cli/shell/option_values.h"
#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::string_view explanation = R"(
examples:
  bucketwise bench ddp-strategies scenarios/cs336_ddp.json --simulate --published scenarios/published/cs336_ddp.csv
  bucketwise bench ddp-strategies scenarios/transformer_small.json --backend gloo --link-rate 1gbit
  bucketwise bench ddp-strategies scenarios/gpt2_h200.json --backend nccl --strategies naive,flat,overlap,bucketed,ddp

sync is the host's wall time in the call that finishes synchronisation. On a GPU that is launching and enqueueing waits,
however long the wire takes. exposed is what a device synchronisation before and after that call would see: from the end of
backward on the device until every gradient is reduced and back in place. wire is what the collectives took, hidden or not.
)";

std::vector<StepVariant> variants_of(const po::variables_map& values, const Scenario& scenario,
                                     const std::string& /*file*/) {
    std::vector<StepVariant> variants;
    for (const std::string& name : split_at_commas(values["strategies"].as<std::string>())) {
        StepVariant variant{.label = name, .scenario = scenario};
        variant.scenario.sync.strategy = choice_named(name, all_strategies, "--strategies");
        variant.cap = cap_of(variant.scenario.sync).named();
        variants.push_back(std::move(variant));
    }
    return variants;
}

struct Numbers {
    double step_s = 0;
    double std_step_s = 0;
    double sync_s = 0;
    double std_sync_s = 0;
    std::optional<double> exposed_s = {};
    std::optional<double> wire_s = {};
};

double mean_s(const std::vector<double>& us) {
    return mean(us) / 1e6;
}

Numbers numbers_of(const StepSamples& samples) {
    const std::vector<double> sync = each(samples, &StepSample::finishing_host_us);
    return {.step_s = mean_s(steps_us(samples)),
            .std_step_s = standard_deviation(steps_us(samples)) / 1e6,
            .sync_s = mean_s(sync),
            .std_sync_s = standard_deviation(sync) / 1e6,
            .exposed_s = mean_s(each(samples, &StepSample::finishing_us)),
            .wire_s = mean_s(each(samples, &StepSample::wire_us))};
}

std::optional<Numbers> published_numbers(const CsvFile& file, std::string_view strategy) {
    for (std::size_t row = 0; row < file.rows(); ++row) {
        if (file.text(row, "strategy") == strategy) {
            return Numbers{.step_s = file.number(row, "step_s"),
                           .std_step_s = file.number(row, "std_step_s"),
                           .sync_s = file.number(row, "sync_s"),
                           .std_sync_s = file.number(row, "std_sync_s")};
        }
    }
    return std::nullopt;
}

Cell optional_cell(const std::optional<double>& value) {
    return value ? Cell{*value} : Cell{std::monostate{}};
}

std::vector<Cell> row_of(std::string_view strategy, const char* source, const Numbers& numbers,
                         const std::optional<Numbers>& actual) {
    return {std::string(strategy),
            std::string(source),
            numbers.step_s,
            numbers.std_step_s,
            numbers.sync_s,
            numbers.std_sync_s,
            numbers.sync_s / numbers.step_s,
            optional_cell(numbers.exposed_s),
            optional_cell(numbers.wire_s),
            error_percent(numbers.step_s, actual ? std::optional(actual->step_s) : std::nullopt),
            error_percent(numbers.sync_s, actual ? std::optional(actual->sync_s) : std::nullopt)};
}

ResultTable rows_of(const std::vector<StepVariant>& variants,
                    const std::vector<VariantSource>& sources,
                    const std::optional<CsvFile>& published) {
    ResultTable table;
    table.columns = {{.key = "strategy", .heading = "strategy"},
                     {.key = "source", .heading = "source"},
                     {.key = "step_s", .heading = "step\ns", .decimals = 6},
                     {.key = "std_step_s", .heading = "std\ns", .decimals = 6},
                     {.key = "sync_s", .heading = "sync\ns", .decimals = 6},
                     {.key = "std_sync_s", .heading = "std\ns", .decimals = 6},
                     {.key = "fraction_sync", .heading = "sync\nof step", .decimals = 4},
                     {.key = "exposed_s", .heading = "exposed\ns", .decimals = 6},
                     {.key = "wire_s", .heading = "wire\ns", .decimals = 6},
                     {.key = "step_error_percent", .heading = "step\nerror %", .decimals = 2},
                     {.key = "sync_error_percent", .heading = "sync\nerror %", .decimals = 1}};
    for (std::size_t i = 0; i < variants.size(); ++i) {
        const std::string_view strategy = name_of(variants[i].scenario.sync.strategy);
        std::optional<Numbers> actual =
            published ? published_numbers(*published, strategy) : std::nullopt;
        if (actual) {
            table.rows.push_back(row_of(strategy, from_publication, *actual, std::nullopt));
        }
        for (const VariantSource& source : sources) {
            const Numbers numbers = numbers_of(source.by_variant[i]);
            table.rows.push_back(row_of(strategy, source.name(), numbers,
                                        source.is_simulated ? actual : std::nullopt));
            if (!source.is_simulated) {
                actual = numbers;
            }
        }
    }
    return table;
}

StepTable step_table() {
    return {.name = "ddp-strategies",
            .explanation = explanation,
            .add_options =
                [](po::options_description& options) {
                    options.add_options()(
                        "strategies",
                        po::value<std::string>()->default_value("naive,flat,overlap,bucketed"),
                        "strategies to compare, as scenarios name them");
                },
            .variants = variants_of,
            .rows = rows_of,
            .values = {{"strategies", some_of(all_strategies)}}};
}

}  // namespace

CommandHelp bench_ddp_strategies_help() {
    return help_of(step_table());
}

int run_bench_ddp_strategies(const std::vector<std::string>& arguments) {
    return run_step_table(step_table(), arguments);
}

}  // namespace bucketwise
