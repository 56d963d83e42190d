// bucketwise bench bucketed: bucket sizes by sequence lengths by batch sizes of a language model,
// as Stanford CS336's second assignment asks.
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "bench/benches.h"
#include "bench/steps/step_table.h"
#include "cli/shell/option_values.h"
#include "cli/shell/size.h"
#include "sim/base/error.h"
#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::string_view bucketed_explanation = R"(
examples:
  bucketwise bench bucketed scenarios/cs336_bucketed.json --simulate --published scenarios/published/cs336_bucketed.csv
  bucketwise bench bucketed scenarios/transformer_small.json --backend gloo --link-rate 1gbit --bucket-cap 1MiB,10MiB,100MiB
  bucketwise bench bucketed scenarios/gpt2_h200.json --backend nccl --sequence-lengths 128,256,512 --batches 2,8

wait is the time from the end of backward until every gradient is reduced and back in place, which is what a host that
synchronises with the device sees; sync is the host's own time in that call. Sizes are decimal with MB, binary with MiB.
)";

// The scenario's own value where the option is left out.
std::vector<std::int64_t> numbers_asked(const po::variables_map& values, const char* option,
                                        std::int64_t own) {
    return values.count(option) == 0 ? std::vector{own}
                                     : whole_numbers(values, option, {1, std::int64_t{1} << 20U});
}

const ModelWorkload& model_workload(const Scenario& scenario) {
    return std::get<ModelWorkload>(scenario.workload);
}

// Times that were measured for one batch and length say nothing about another.
void check_workload(const Scenario& scenario, const std::string& file) {
    const auto* model = std::get_if<ModelWorkload>(&scenario.workload);
    if (model == nullptr) {
        throw InputError(file, "/workload", "a model", "gradients listed one by one");
    }
    if (model->forward || !model->forward_operations.empty()) {
        throw InputError(
            file, model->forward ? "/workload/forward_ms" : "/workload/forward_operations_us",
            "a model whose times follow from a device", "measured times");
    }
}

std::vector<StepVariant> bucketed_variants(const po::variables_map& values,
                                           const Scenario& scenario, const std::string& file) {
    check_workload(scenario, file);
    const ModelInput& own = model_workload(scenario).input;
    const auto caps = parse_sizes(text_value(values, "bucket-cap"), "--bucket-cap");
    const bool has_tokens = own.sequence_length > 0;
    if (!has_tokens && values.count("sequence-lengths") != 0) {
        throw InputError("--sequence-lengths", "", "a model of sequences", "one of images");
    }
    std::vector<StepVariant> variants;
    for (const std::int64_t batch : numbers_asked(values, "batches", own.batch)) {
        for (const std::int64_t length :
             has_tokens ? numbers_asked(values, "sequence-lengths", own.sequence_length)
                        : std::vector<std::int64_t>{0}) {
            for (const Bytes cap : caps) {
                StepVariant variant{
                    .label = fmt::format("{}, batch {}, length {}", text_of(cap), batch, length),
                    .scenario = scenario,
                    .cap = cap};
                ModelInput& input = std::get<ModelWorkload>(variant.scenario.workload).input;
                input.batch = batch;
                input.sequence_length = length;
                variant.scenario.sync.strategy = Strategy::bucketed;
                variant.scenario.sync = without_list(variant.scenario.sync);
                variants.push_back(std::move(variant));
            }
        }
    }
    return variants;
}

// The number of MB that was most likely typed; the published tables do not say which they mean.
double size_in_mb(Bytes cap) {
    return cap.count % bytes_per_mib == 0 ? to_mib(cap) : static_cast<double>(cap.count) / 1e6;
}

std::vector<StepPlace> bucketed_places(const std::vector<StepVariant>& variants) {
    std::vector<StepPlace> places;
    for (const StepVariant& variant : variants) {
        const ModelInput& input = model_workload(variant.scenario).input;
        places.push_back(
            {.variant = places.size(),
             .keys = {input.batch, input.sequence_length, size_in_mb(*variant.cap.named())}});
    }
    return places;
}

std::vector<std::string> bucketed_notes(const std::vector<StepRow>& rows) {
    const std::vector<double> errors = absolute_errors(rows, "train_s");
    if (errors.empty()) {
        return {};
    }
    return {
        fmt::format("mean absolute error of the simulated train times: {:.2f} %", mean(errors))};
}

StepTable bucketed_table() {
    return {
        .name = "bucketed",
        .explanation = bucketed_explanation,
        .options = {{"bucket-cap", "bucket sizes", "1MiB,10MiB,100MiB,1000MiB"},
                    {"sequence-lengths",
                     "tokens per sequence, such as 128,256,512; default: the scenario's"},
                    {"batches", "sequences or images per rank; default: the scenario's"}},
        .variants = bucketed_variants,
        .keys = {{"local_batch", "batch"},
                 {"seq_len", "length"},
                 {"bucket_size_mb", "bucket\nMB", -6}},
        .columns = {{{"train_s", "train\ns", 4}, seconds(mean, &StepSample::step_us), true},
                    {{"grad_all_reduce_s", "wait\ns", 4},
                     seconds(mean, &StepSample::finishing_us),
                     true},
                    ratio_column({"ratio", "wait\nof train", 4}, "grad_all_reduce_s", "train_s"),
                    {{"sync_host_s", "sync\ns", 4}, seconds(mean, &StepSample::finishing_host_us)},
                    error_column({"train_error_percent", "train\nerror %", 2}, "train_s"),
                    error_column({"wait_error_percent", "wait\nerror %", 1}, "grad_all_reduce_s")},
        .places = bucketed_places,
        .notes = bucketed_notes};
}

}  // namespace

CommandHelp bench_bucketed_help() {
    return help_of(bucketed_table());
}

int run_bench_bucketed(const CommandLine& line) {
    return run_step_table(bucketed_table(), line);
}

}  // namespace bucketwise
