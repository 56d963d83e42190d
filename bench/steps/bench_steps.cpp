// bucketwise bench ddp-strategies, bucketed and compare-ddp: the tables of Stanford CS336's second
// assignment, and of PyTorch's benchmarks/distributed/ddp/compare.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "bench/benches.h"
#include "bench/steps/step_table.h"
#include "cli/shell/size.h"
#include "sim/base/error.h"
#include "sim/base/statistics.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

// A statistic of one number of every sample, in seconds; published, too, unless it is only ours.
template <typename Number>
StepColumn seconds(Column column, double (*statistic)(const std::vector<double>&),
                   Number StepSample::*number, bool is_published = true) {
    return {{std::move(column)},
            [=](const StepSamples& samples, const StepPlace&) {
                return statistic(transformed(samples, number)) / 1e6;
            },
            is_published};
}

StepColumn ratio(Column column, std::string of, std::string against) {
    return {{.column = std::move(column),
             .of = std::move(of),
             .show = Show::ratio,
             .against = std::move(against)}};
}

// Against the measured or published number, and against the base's, in percent.
StepColumn actual_error(Column column, const std::string& of) {
    return {error_column(std::move(column), of, "actual " + of)};
}
StepColumn base_delta(Column column, const std::string& of) {
    return {error_column(std::move(column), of, "base " + of)};
}

// The absolute errors, in percent, of rows whose cells are as `where` says.
std::vector<double> absolute_errors(const BenchRows& rows, const std::string& key,
                                    const Json& where = Json::object()) {
    std::vector<double> errors;
    for (const BenchRow& row : rows) {
        const auto error = error_in(row, key, "actual " + key);
        if (error && std::ranges::all_of(where.items(), [&](const auto& cell) {
                return row[cell.key()] == cell.value();
            })) {
            errors.push_back(std::abs(100 * *error));
        }
    }
    return errors;
}

// --- ddp-strategies: synchronising naively, flat or overlapped -----------------------------------

constexpr std::string_view strategies_explanation = R"(
examples:
  bucketwise bench ddp-strategies scenarios/cs336_ddp.json --simulate --published scenarios/published/cs336_ddp.csv
  bucketwise bench ddp-strategies scenarios/transformer_small.json --backend gloo --link-rate 1gbit
  bucketwise bench ddp-strategies scenarios/gpt2_h200.json --backend nccl --strategies naive,flat,overlap,bucketed,ddp

sync is the host's wall time in the call that finishes synchronisation. On a GPU the host only launches work and enqueues
waits there, however long the wire takes. exposed is the time that a device synchronisation before and after that call
would see: from the end of backward on the device until every gradient is reduced and back in place. wire is the time of
the collectives, hidden or not.
)";

StepCases strategy_cases(const StepOptions& o, const Scenario& scenario) {
    StepCases cases;
    for (const Strategy strategy : o.strategies) {
        StepVariant variant{.label = std::string(name_of(strategy)), .scenario = scenario};
        variant.scenario.sync.strategy = strategy;
        variant.cap = cap_of(variant.scenario.sync);
        cases.places.push_back({.variant = cases.variants.size(), .keys = {variant.label}});
        cases.variants.push_back(std::move(variant));
    }
    return cases;
}

StepTable strategy_table() {
    constexpr int digits = 6;
    return {
        .name = "ddp-strategies",
        .text = strategies_explanation,
        .options = [](StepOptions& o) -> std::vector<OptionText> {
            return {{"strategies",
                     "strategies to compare, by their names in scenarios",
                     {o.strategies, ListOf{Choice{every<Strategy>}}, "naive,flat,overlap,bucketed"},
                     some_of(every<Strategy>)}};
        },
        .cases = strategy_cases,
        .keys = {{"strategy", "strategy"}},
        .columns = {
            seconds({"step_s", "step\ns", digits}, mean, &StepSample::step_us),
            seconds({"std_step_s", "std\ns", digits}, standard_deviation, &StepSample::step_us),
            seconds({"sync_s", "sync\ns", digits}, mean, &StepSample::finishing_host_us),
            seconds({"std_sync_s", "std\ns", digits}, standard_deviation,
                    &StepSample::finishing_host_us),
            ratio({"fraction_sync", "sync\nof step", 4}, "sync_s", "step_s"),
            seconds({"exposed_s", "exposed\ns", digits}, mean, &StepSample::finishing_us, false),
            seconds({"wire_s", "wire\ns", digits}, mean, &StepSample::wire_us, false),
            actual_error({"step_error_percent", "step\nerror %", 2}, "step_s"),
            actual_error({"sync_error_percent", "sync\nerror %", 1}, "sync_s")}};
}

// --- bucketed: bucket sizes by sequence lengths by batch sizes -----------------------------------

constexpr std::string_view bucketed_explanation = R"(
examples:
  bucketwise bench bucketed scenarios/cs336_bucketed.json --simulate --published scenarios/published/cs336_bucketed.csv
  bucketwise bench bucketed scenarios/transformer_small.json --backend gloo --link-rate 1gbit --bucket-cap 1MiB,10MiB,100MiB
  bucketwise bench bucketed scenarios/gpt2_h200.json --backend nccl --sequence-lengths 128,256,512 --batches 2,8

wait is the time from the end of backward until every gradient is reduced and back in place, as a host that synchronises
with the device sees it. sync is the host's own time in that call. Sizes are decimal with MB, binary with MiB.
)";

// Times that were measured for one batch and length say nothing about another.
ModelInput checked_input(const Scenario& scenario, const std::string& file) {
    const auto* model = std::get_if<ModelWorkload>(&scenario.workload);
    if (model == nullptr) {
        throw InputError(file, "/workload", "a model", "gradients listed one by one");
    }
    if (model->forward || !model->forward_operations.empty()) {
        throw InputError(
            file, model->forward ? "/workload/forward_ms" : "/workload/forward_operations_us",
            "a model whose times follow from a device", "measured times");
    }
    return model->input;
}

// The number of MB that was most likely typed: the published tables do not say which MB they mean.
double size_in_mb(Bytes cap) {
    return cap.count % bytes_per_mib == 0 ? to_mib(cap) : static_cast<double>(cap.count) / 1e6;
}

StepCases bucketed_cases(const StepOptions& o, const Scenario& scenario) {
    const ModelInput own = checked_input(scenario, o.file);
    if (own.sequence_length == 0 && o.sequence_lengths) {
        throw InputError("--sequence-lengths", "", "a model of sequences", "one of images");
    }
    StepCases cases;
    for (const std::int64_t batch : o.batches.value_or(std::vector{own.batch})) {
        for (const std::int64_t length :
             o.sequence_lengths.value_or(std::vector{own.sequence_length})) {
            for (const Bytes cap : o.caps) {
                StepVariant variant{
                    .label = fmt::format("{}, batch {}, length {}", text_of(cap), batch, length),
                    .scenario = scenario,
                    .cap = cap};
                ModelInput& input = std::get<ModelWorkload>(variant.scenario.workload).input;
                input.batch = batch;
                input.sequence_length = length;
                variant.scenario.sync.strategy = Strategy::bucketed;
                variant.scenario.sync = without_list(variant.scenario.sync);
                cases.places.push_back(
                    {.variant = cases.variants.size(), .keys = {batch, length, size_in_mb(cap)}});
                cases.variants.push_back(std::move(variant));
            }
        }
    }
    return cases;
}

std::vector<std::string> bucketed_notes(const BenchRows& rows) {
    const std::vector<double> errors = absolute_errors(rows, "train_s");
    if (errors.empty()) {
        return {};
    }
    return {
        fmt::format("mean absolute error of the simulated train times: {:.2f} %", mean(errors))};
}

constexpr ListOf counts{WholeNumbers{1, std::int64_t{1} << 20U}};

StepTable bucketed_table() {
    return {
        .name = "bucketed",
        .text = bucketed_explanation,
        .options = [](StepOptions& o) -> std::vector<OptionText> {
            return {
                {"bucket-cap", "bucket sizes", {o.caps, parse_sizes, "1MiB,10MiB,100MiB,1000MiB"}},
                {"sequence-lengths",
                 "tokens per sequence, such as 128,256,512; default: the scenario's",
                 {o.sequence_lengths, counts}},
                {"batches",
                 "sequences or images per rank; default: the scenario's",
                 {o.batches, counts}}};
        },
        .cases = bucketed_cases,
        .keys = {{"local_batch", "batch"},
                 {"seq_len", "length"},
                 {"bucket_size_mb", "bucket\nMB", -6}},
        .columns = {seconds({"train_s", "train\ns", 4}, mean, &StepSample::step_us),
                    seconds({"grad_all_reduce_s", "wait\ns", 4}, mean, &StepSample::finishing_us),
                    ratio({"ratio", "wait\nof train", 4}, "grad_all_reduce_s", "train_s"),
                    seconds({"sync_host_s", "sync\ns", 4}, mean, &StepSample::finishing_host_us,
                            false),
                    actual_error({"train_error_percent", "train\nerror %", 2}, "train_s"),
                    actual_error({"wait_error_percent", "wait\nerror %", 1}, "grad_all_reduce_s")},
        .notes = bucketed_notes};
}

// --- compare-ddp: DistributedDataParallel beside Python reductions -------------------------------

constexpr std::string_view compare_explanation = R"(
examples:
  bucketwise bench compare-ddp scenarios/compare_ddp_core.json --simulate
  bucketwise bench compare-ddp scenarios/compare_ddp_core.json --simulate --published scenarios/published/compare_ddp.csv
  bucketwise bench compare-ddp scenarios/resnet_small.json --buffers 3,9,27 --backend gloo --link-rate 1gbit
  bucketwise bench compare-ddp scenarios/resnet50_8xh100.json --backend nccl --ranks 2

N is the size of the buffer: 2^20 bytes for DDP_CPP_CORE, 2^20 elements for the Python reductions, as in that benchmark.
Each delta is 100 (x - core) / core. error is 100 (x / actual - 1) of a simulated row against the measured one, or else
against the published one.
)";

struct DdpOption {
    std::string_view name;
    Strategy strategy;
    std::int64_t bytes_per_unit;  // of N
};

constexpr std::array<DdpOption, 3> ddp_options{
    {{"DDP_CPP_CORE", Strategy::ddp, bytes_per_mib},
     {"PYTHON_DDP_ASYNC_REDUCTION", Strategy::python_async, 4 * bytes_per_mib},
     {"PYTHON_DDP_SYNC_REDUCTION", Strategy::python_sync, 4 * bytes_per_mib}}};

// Each buffer's options, forward and backward; deltas are against the first option.
StepCases compare_cases(const StepOptions& o, const Scenario& scenario) {
    StepCases cases;
    for (const std::int64_t n : o.buffers) {
        const std::size_t first = cases.variants.size();
        for (const DdpOption& option : ddp_options) {
            StepVariant variant{.label = fmt::format("{} at N = {}", option.name, n),
                                .scenario = scenario,
                                .cap = Bytes{n * option.bytes_per_unit}};
            variant.scenario.sync.strategy = option.strategy;
            variant.scenario.sync = without_list(variant.scenario.sync);
            cases.variants.push_back(std::move(variant));
        }
        for (const char* phase : {"forward", "backward"}) {
            const std::size_t base = cases.places.size();
            for (std::size_t i = 0; i < ddp_options.size(); ++i) {
                cases.places.push_back({.variant = first + i,
                                        .keys = {n, phase, ddp_options.at(i).name},
                                        .base = base});
            }
        }
    }
    return cases;
}

std::vector<StepColumn> statistics_columns() {
    std::vector<StepColumn> columns;
    for (const auto& [name, share] :
         {std::pair{"mean", -1.0}, std::pair{"p50", 0.5}, std::pair{"p90", 0.9},
          std::pair{"p95", 0.95}, std::pair{"p99", 0.99}}) {
        const std::string key = fmt::format("{}_ms", name);
        const auto number = [q = share](const StepSamples& samples, const StepPlace& place) {
            const auto part =
                place.keys[1] == "backward" ? &StepSample::backward_us : &StepSample::forward_us;
            const auto ms =
                transformed(samples, [part](const StepSample& s) { return s.*part / 1e3; });
            return q < 0 ? mean(ms) : quantile(ms, q);
        };
        columns.push_back({{{key, fmt::format("{}\nms", name)}}, number, true});
        columns.push_back(base_delta({fmt::format("{}_delta_percent", name), "delta\n%", 1}, key));
    }
    columns.push_back(actual_error({"mean_error_percent", "mean\nerror %", 2}, "mean_ms"));
    columns.push_back(actual_error({"p50_error_percent", "p50\nerror %", 2}, "p50_ms"));
    return columns;
}

std::vector<std::string> compare_notes(const BenchRows& rows) {
    std::vector<std::string> notes;
    for (const char* phase : {"forward", "backward"}) {
        for (const DdpOption& option : ddp_options) {
            const Json where{{"phase", phase}, {"option", option.name}};
            const std::vector<double> errors = absolute_errors(rows, "mean_ms", where);
            if (!errors.empty()) {
                notes.push_back(fmt::format(
                    "mean absolute error, {} {}: {:.2f} % of the means, {:.2f} % of the medians",
                    phase, option.name, mean(errors),
                    mean(absolute_errors(rows, "p50_ms", where))));
            }
        }
    }
    return notes;
}

StepTable compare_table() {
    return {.name = "compare-ddp",
            .text = compare_explanation,
            .options = [](StepOptions& o) -> std::vector<OptionText> {
                return {{"buffers",
                         "sizes N of the buffer",
                         {o.buffers, counts, "3,6,9,12,15,18,21,24,27"}}};
            },
            .cases = compare_cases,
            .keys = {{"buffer_m", "N"}, {"phase", "phase"}, {"option", "option"}},
            .columns = statistics_columns(),
            .notes = compare_notes};
}

}  // namespace

CommandHelp bench_ddp_strategies_help() {
    return step_table_help(strategy_table());
}
CommandHelp bench_bucketed_help() {
    return step_table_help(bucketed_table());
}
CommandHelp bench_compare_ddp_help() {
    return step_table_help(compare_table());
}

}  // namespace bucketwise
