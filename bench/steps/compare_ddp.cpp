// bucketwise bench compare-ddp: PyTorch's benchmarks/distributed/ddp/compare,
// DistributedDataParallel beside Python reductions that do and do not overlap.
#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/benches.h"
#include "bench/steps/step_table.h"
#include "cli/shell/option_values.h"
#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::string_view ddp_compare_explanation = R"(
examples:
  bucketwise bench compare-ddp scenarios/compare_ddp_core.json --simulate
  bucketwise bench compare-ddp scenarios/compare_ddp_core.json --simulate --published scenarios/published/compare_ddp.csv
  bucketwise bench compare-ddp scenarios/resnet_small.json --buffers 3,9,27 --backend gloo --link-rate 1gbit
  bucketwise bench compare-ddp scenarios/resnet50_8xh100.json --backend nccl --ranks 2

N is the size of the buffer: 2^20 bytes for DDP_CPP_CORE, 2^20 elements for the Python reductions, as in that benchmark.
Each delta is 100 (x - core) / core; error is 100 (x / actual - 1) of a simulated row, against what was measured or else
published.
)";

struct Option {
    std::string_view name;
    Strategy strategy;
    std::int64_t bytes_per_unit;  // of N
};

constexpr std::array<Option, 3> ddp_options{
    {{"DDP_CPP_CORE", Strategy::ddp, bytes_per_mib},
     {"PYTHON_DDP_ASYNC_REDUCTION", Strategy::python_async, 4 * bytes_per_mib},
     {"PYTHON_DDP_SYNC_REDUCTION", Strategy::python_sync, 4 * bytes_per_mib}}};

constexpr std::int64_t most_units = std::int64_t{1} << 20U;

std::vector<StepVariant> ddp_compare_variants(const po::variables_map& values,
                                              const Scenario& scenario,
                                              const std::string& /*file*/) {
    std::vector<StepVariant> variants;
    for (const std::int64_t n : whole_numbers(values, "buffers", {1, most_units})) {
        for (const Option& option : ddp_options) {
            StepVariant variant{.label = fmt::format("{} at N = {}", option.name, n),
                                .scenario = scenario,
                                .cap = Bytes{n * option.bytes_per_unit}};
            variant.scenario.sync.strategy = option.strategy;
            variant.scenario.sync = without_list(variant.scenario.sync);
            variants.push_back(std::move(variant));
        }
    }
    return variants;
}

struct Statistic {
    const char* name;
    double (*of)(const std::vector<double>& samples);
};

constexpr std::array<Statistic, 5> statistics{
    {{"mean", mean},
     {"p50", [](const std::vector<double>& samples) { return quantile(samples, 0.5); }},
     {"p90", [](const std::vector<double>& samples) { return quantile(samples, 0.9); }},
     {"p95", [](const std::vector<double>& samples) { return quantile(samples, 0.95); }},
     {"p99", [](const std::vector<double>& samples) { return quantile(samples, 0.99); }}}};

// Each buffer's options, forward and backward; deltas are against the first option.
std::vector<StepPlace> ddp_compare_places(const std::vector<StepVariant>& variants) {
    std::vector<StepPlace> places;
    for (std::size_t first = 0; first < variants.size(); first += ddp_options.size()) {
        const std::int64_t n =
            variants[first].cap.named()->count / ddp_options.front().bytes_per_unit;
        for (const std::string phase : {"forward", "backward"}) {
            const auto keys = [&](const Option& option) {
                return std::vector<Cell>{n, phase, std::string(option.name)};
            };
            for (std::size_t i = 0; i < ddp_options.size(); ++i) {
                places.push_back({.variant = first + i,
                                  .keys = keys(ddp_options.at(i)),
                                  .base_variant = first,
                                  .base_keys = keys(ddp_options.front())});
            }
        }
    }
    return places;
}

bool is_of(const StepPlace& place, std::string_view phase) {
    return std::get<std::string>(place.keys[1]) == phase;
}

std::vector<StepColumn> columns_of_statistics() {
    std::vector<StepColumn> columns;
    for (const auto& [name, statistic] : statistics) {
        const std::string key = fmt::format("{}_ms", name);
        const auto number = [of = statistic](const StepSamples& samples, const StepPlace& place) {
            const auto part =
                is_of(place, "backward") ? &StepSample::backward_us : &StepSample::forward_us;
            return of(transformed(samples, [part](const StepSample& s) { return s.*part / 1e3; }));
        };
        columns.push_back({{key, fmt::format("{}\nms", name)}, number, true});
        columns.push_back(
            delta_column({fmt::format("{}_delta_percent", name), "delta\n%", 1}, key));
    }
    columns.push_back(error_column({"mean_error_percent", "mean\nerror %", 2}, "mean_ms"));
    columns.push_back(error_column({"p50_error_percent", "p50\nerror %", 2}, "p50_ms"));
    return columns;
}

std::vector<std::string> ddp_compare_notes(const std::vector<StepRow>& rows) {
    std::vector<std::string> notes;
    for (const char* phase : {"forward", "backward"}) {
        for (const Option& option : ddp_options) {
            std::vector<StepRow> some;
            std::copy_if(rows.begin(), rows.end(), std::back_inserter(some), [&](const auto& row) {
                return is_of(row.place, phase) &&
                       std::get<std::string>(row.place.keys[2]) == option.name;
            });
            const std::vector<double> errors = absolute_errors(some, "mean_ms");
            if (!errors.empty()) {
                notes.push_back(fmt::format(
                    "mean absolute error, {} {}: {:.2f} % of the means, {:.2f} % of the medians",
                    phase, option.name, mean(errors), mean(absolute_errors(some, "p50_ms"))));
            }
        }
    }
    return notes;
}

StepTable ddp_compare_table() {
    return {.name = "compare-ddp",
            .explanation = ddp_compare_explanation,
            .options = {{"buffers", "sizes N of the buffer", "3,6,9,12,15,18,21,24,27"}},
            .variants = ddp_compare_variants,
            .keys = {{"buffer_m", "N"}, {"phase", "phase"}, {"option", "option"}},
            .columns = columns_of_statistics(),
            .places = ddp_compare_places,
            .notes = ddp_compare_notes};
}

}  // namespace

CommandHelp bench_compare_ddp_help() {
    return help_of(ddp_compare_table());
}

int run_bench_compare_ddp(const CommandLine& line) {
    return run_step_table(ddp_compare_table(), line);
}

}  // namespace bucketwise
