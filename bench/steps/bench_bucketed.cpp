// bucketwise bench bucketed: bucket sizes by sequence lengths by batch sizes of a language model,
// as Stanford CS336's second assignment asks.
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "bench/benches.h"
#include "bench/steps/bench_steps.h"
#include "cli/shell/option_values.h"
#include "cli/shell/size.h"
#include "sim/base/error.h"
#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::string_view explanation = R"(
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
    if (values.count(option) == 0) {
        return {own};
    }
    constexpr std::int64_t most = std::int64_t{1} << 20U;
    std::vector<std::int64_t> numbers;
    for (const std::string& text : split_at_commas(values[option].as<std::string>())) {
        numbers.push_back(whole_number(text, fmt::format("--{}", option), {1, most}));
    }
    return numbers;
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

std::vector<StepVariant> variants_of(const po::variables_map& values, const Scenario& scenario,
                                     const std::string& file) {
    check_workload(scenario, file);
    const ModelInput& own = model_workload(scenario).input;
    const auto caps = parse_sizes(values["bucket-cap"].as<std::string>(), "--bucket-cap");
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

struct Numbers {
    double train_s = 0;
    double wait_s = 0;
    std::optional<double> sync_host_s = {};
};

Numbers numbers_of(const StepSamples& samples) {
    return {.train_s = mean(steps_us(samples)) / 1e6,
            .wait_s = mean(each(samples, &StepSample::finishing_us)) / 1e6,
            .sync_host_s = mean(each(samples, &StepSample::finishing_host_us)) / 1e6};
}

std::optional<Numbers> published_numbers(const CsvFile& file, const ModelInput& input, Bytes cap) {
    for (std::size_t row = 0; row < file.rows(); ++row) {
        if (file.number(row, "local_batch") == static_cast<double>(input.batch) &&
            file.number(row, "seq_len") == static_cast<double>(input.sequence_length) &&
            file.number(row, "bucket_size_mb") == size_in_mb(cap)) {
            return Numbers{.train_s = file.number(row, "train_s"),
                           .wait_s = file.number(row, "grad_all_reduce_s")};
        }
    }
    return std::nullopt;
}

std::vector<Cell> row_of(const StepVariant& variant, const char* source, const Numbers& numbers,
                         const std::optional<Numbers>& actual) {
    const ModelInput& input = model_workload(variant.scenario).input;
    return {input.batch,
            input.sequence_length,
            size_in_mb(*variant.cap),
            std::string(source),
            numbers.train_s,
            numbers.wait_s,
            numbers.wait_s / numbers.train_s,
            numbers.sync_host_s ? Cell{*numbers.sync_host_s} : Cell{std::monostate{}},
            error_percent(numbers.train_s, actual ? std::optional(actual->train_s) : std::nullopt),
            error_percent(numbers.wait_s, actual ? std::optional(actual->wait_s) : std::nullopt)};
}

ResultTable rows_of(const std::vector<StepVariant>& variants,
                    const std::vector<VariantSource>& sources,
                    const std::optional<CsvFile>& published) {
    ResultTable table;
    table.columns = {{.key = "local_batch", .heading = "batch"},
                     {.key = "seq_len", .heading = "length"},
                     {.key = "bucket_size_mb", .heading = "bucket\nMB", .decimals = -6},
                     {.key = "source", .heading = "source"},
                     {.key = "train_s", .heading = "train\ns", .decimals = 4},
                     {.key = "grad_all_reduce_s", .heading = "wait\ns", .decimals = 4},
                     {.key = "ratio", .heading = "wait\nof train", .decimals = 4},
                     {.key = "sync_host_s", .heading = "sync\ns", .decimals = 4},
                     {.key = "train_error_percent", .heading = "train\nerror %", .decimals = 2},
                     {.key = "wait_error_percent", .heading = "wait\nerror %", .decimals = 1}};
    std::vector<double> errors;
    for (std::size_t i = 0; i < variants.size(); ++i) {
        const ModelInput& input = model_workload(variants[i].scenario).input;
        std::optional<Numbers> actual =
            published ? published_numbers(*published, input, *variants[i].cap) : std::nullopt;
        if (actual) {
            table.rows.push_back(row_of(variants[i], from_publication, *actual, std::nullopt));
        }
        for (const VariantSource& source : sources) {
            const Numbers numbers = numbers_of(source.by_variant[i]);
            table.rows.push_back(row_of(variants[i], source.name(), numbers,
                                        source.is_simulated ? actual : std::nullopt));
            if (source.is_simulated && actual) {
                errors.push_back(100 * std::abs(numbers.train_s / actual->train_s - 1));
            }
            if (!source.is_simulated) {
                actual = numbers;
            }
        }
    }
    if (!errors.empty()) {
        table.notes.push_back(fmt::format(
            "mean absolute error of the simulated train times: {:.2f} %", mean(errors)));
    }
    return table;
}

StepTable step_table() {
    return {.name = "bucketed",
            .explanation = explanation,
            .add_options =
                [](po::options_description& options) {
                    options.add_options()  //
                        ("bucket-cap",
                         po::value<std::string>()->default_value("1MiB,10MiB,100MiB,1000MiB"),
                         "bucket sizes")  //
                        ("sequence-lengths", po::value<std::string>(),
                         "tokens per sequence, such as 128,256,512; default: the scenario's")  //
                        ("batches", po::value<std::string>(),
                         "sequences or images per rank; default: the scenario's");
                },
            .variants = variants_of,
            .rows = rows_of};
}

}  // namespace

CommandHelp bench_bucketed_help() {
    return help_of(step_table());
}

int run_bench_bucketed(const std::vector<std::string>& arguments) {
    return run_step_table(step_table(), arguments);
}

}  // namespace bucketwise
