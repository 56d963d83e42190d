// bucketwise bench compare-ddp: PyTorch's benchmarks/distributed/ddp/compare,
// DistributedDataParallel beside Python reductions that do and do not overlap.
#include <array>
#include <string>
#include <string_view>
#include <utility>
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

std::vector<StepVariant> variants_of(const po::variables_map& values, const Scenario& scenario,
                                     const std::string& /*file*/) {
    std::vector<StepVariant> variants;
    for (const std::string& text : split_at_commas(values["buffers"].as<std::string>())) {
        const std::int64_t n = whole_number(text, "--buffers", {1, most_units});
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

using Numbers = std::array<double, statistics.size()>;  // in ms

struct Place {
    std::int64_t n = 0;
    bool backward = false;
    std::size_t option = 0;

    [[nodiscard]] const char* phase() const { return backward ? "backward" : "forward"; }
};

std::optional<Numbers> published_numbers(const CsvFile& file, const Place& place) {
    for (std::size_t row = 0; row < file.rows(); ++row) {
        if (file.number(row, "buffer_m") == static_cast<double>(place.n) &&
            file.text(row, "phase") == place.phase() &&
            file.text(row, "option") == ddp_options.at(place.option).name) {
            Numbers numbers{};
            for (std::size_t i = 0; i < statistics.size(); ++i) {
                numbers.at(i) = file.number(row, fmt::format("{}_ms", statistics.at(i).name));
            }
            return numbers;
        }
    }
    return std::nullopt;
}

Numbers numbers_of(const StepSamples& samples, bool backward) {
    std::vector<double> ms =
        each(samples, backward ? &StepSample::backward_us : &StepSample::forward_us);
    for (double& value : ms) {
        value /= 1e3;
    }
    Numbers numbers{};
    for (std::size_t i = 0; i < statistics.size(); ++i) {
        numbers.at(i) = statistics.at(i).of(ms);
    }
    return numbers;
}

class Rows {
  public:
    Rows(const std::vector<StepVariant>& variants, const std::vector<VariantSource>& sources,
         const std::optional<CsvFile>& published)
        : variants_(variants), sources_(sources), published_(published) {
        table_.columns = {{.key = "buffer_m", .heading = "N"},
                          {.key = "phase", .heading = "phase"},
                          {.key = "option", .heading = "option"},
                          {.key = "source", .heading = "source"}};
        for (const Statistic& statistic : statistics) {
            table_.columns.push_back({.key = fmt::format("{}_ms", statistic.name),
                                      .heading = fmt::format("{}\nms", statistic.name)});
            table_.columns.push_back({.key = fmt::format("{}_delta_percent", statistic.name),
                                      .heading = "delta\n%",
                                      .decimals = 1});
        }
        table_.columns.push_back(
            {.key = "mean_error_percent", .heading = "mean\nerror %", .decimals = 2});
        table_.columns.push_back(
            {.key = "p50_error_percent", .heading = "p50\nerror %", .decimals = 2});
    }

    ResultTable build() {
        for (std::size_t i = 0; i < variants_.size(); i += ddp_options.size()) {
            const std::int64_t n = variants_[i].cap->count / ddp_options.front().bytes_per_unit;
            for (const bool backward : {false, true}) {
                for (std::size_t option = 0; option < ddp_options.size(); ++option) {
                    add({n, backward, option}, i);
                }
            }
        }
        add_notes();
        return std::move(table_);
    }

  private:
    // Measured numbers, else published ones.
    void add(const Place& place, std::size_t first_variant) {
        const std::optional<Numbers> published =
            published_ ? published_numbers(*published_, place) : std::nullopt;
        std::optional<Numbers> actual = published;
        if (published) {
            Place core = place;
            core.option = 0;
            add_row(place, from_publication, *published,
                    published_numbers(*published_, core).value_or(*published), std::nullopt);
        }
        for (const VariantSource& source : sources_) {
            const Numbers numbers =
                numbers_of(source.by_variant[first_variant + place.option], place.backward);
            const Numbers core = numbers_of(source.by_variant[first_variant], place.backward);
            add_row(place, source.name(), numbers, core,
                    source.is_simulated ? actual : std::nullopt);
            if (!source.is_simulated) {
                actual = numbers;
            }
        }
    }

    void add_row(const Place& place, const char* source, const Numbers& numbers,
                 const Numbers& core, const std::optional<Numbers>& actual) {
        std::vector<Cell> row{place.n, std::string(place.phase()),
                              std::string(ddp_options.at(place.option).name), std::string(source)};
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            row.emplace_back(numbers.at(i));
            row.push_back(error_percent(numbers.at(i), core.at(i)));
        }
        for (const std::size_t statistic : {std::size_t{0}, std::size_t{1}}) {
            const Cell error = actual ? error_percent(numbers.at(statistic), actual->at(statistic))
                                      : Cell{std::monostate{}};
            if (const auto* value = std::get_if<double>(&error)) {
                errors_[place.backward ? 1 : 0][place.option][statistic].push_back(
                    std::abs(*value));
            }
            row.push_back(error);
        }
        table_.rows.push_back(std::move(row));
    }

    void add_notes() {
        for (const bool backward : {false, true}) {
            for (std::size_t option = 0; option < ddp_options.size(); ++option) {
                const auto& errors = errors_[backward ? 1 : 0][option];
                if (!errors[0].empty()) {
                    table_.notes.push_back(
                        fmt::format("mean absolute error, {} {}: {:.2f} % of the means, {:.2f} % "
                                    "of the medians",
                                    backward ? "backward" : "forward", ddp_options.at(option).name,
                                    mean(errors[0]), mean(errors[1])));
                }
            }
        }
    }

    const std::vector<StepVariant>& variants_;
    const std::vector<VariantSource>& sources_;
    const std::optional<CsvFile>& published_;
    ResultTable table_;
    // By phase, option and statistic.
    std::array<std::array<std::array<std::vector<double>, 2>, ddp_options.size()>, 2> errors_;
};

StepTable step_table() {
    return {
        .name = "compare-ddp",
        .explanation = explanation,
        .add_options =
            [](po::options_description& options) {
                options.add_options()(
                    "buffers", po::value<std::string>()->default_value("3,6,9,12,15,18,21,24,27"),
                    "sizes N of the buffer");
            },
        .variants = variants_of,
        .rows = [](const auto& variants, const auto& sources,
                   const auto& published) { return Rows(variants, sources, published).build(); }};
}

}  // namespace

CommandHelp bench_compare_ddp_help() {
    return help_of(step_table());
}

int run_bench_compare_ddp(const std::vector<std::string>& arguments) {
    return run_step_table(step_table(), arguments);
}

}  // namespace bucketwise
