// bucketwise bench training: a data-parallel training run, simulated and on real ranks.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "bench/benches.h"
#include "bench/training/training.h"
#include "cli/shell/size.h"
#include "sim/base/error.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/document_edit.h"

namespace bucketwise {
namespace {

constexpr std::string_view explanation = R"(
examples:
  bucketwise bench training
  bucketwise bench training --ranks 4 --epochs 8 --samples 4096 --layers 768,1024,1024 --classes 100 --bucket-cap 1MiB
  bucketwise bench training --ranks 2 --link-rate 1gbit --format csv
  bucketwise bench training scenarios/training_small.json --simulate
  bucketwise bench training --backend nccl --ranks 8 --published scenarios/published/training_loop.csv

Ranks really train a multilayer perceptron on generated images, each implementation an epoch in turn: ddp synchronises as
the scenario says, reference with one all-reduce after backward. After every synchronisation each gradient's bits are
compared between ranks. Before and after training every operation and all-reduce is timed by itself, and from these the
run is simulated. The scenario's model is {"family": "mlp", "layers": [...]}; its device and link count with --simulate.
)";

// Runs when no scenario is named.
constexpr const char* standard_scenario = "scenarios/training_small.json";

double read_learning_rate(const std::string& text, const std::string& option) {
    const double rate = number_in(text).value_or(0);
    if (!(rate > 0 && rate <= 100)) {
        throw InputError(option, "", "a number above 0 and at most 100", "\"" + text + "\"");
    }
    return rate;
}

std::vector<OptionText> training_rows(TrainingOptions& o) {
    constexpr WholeNumbers widths{1, 1 << 18};
    constexpr WholeNumbers samples{1, 10'000'000};
    std::vector<OptionText> rows{
        {"simulate", "only predict, from the scenario's device and link", o.simulates},
        ranks_row(o, "how many ranks; default: the scenario's"),
        {"layers",
         "widths of an image and of each hidden layer: 768,512,512",
         {o.layers, ListOf{widths}}},
        {"classes", "number of classes of images", {o.classes, widths}},
        {"batch", "samples per rank and micro-step", {o.changes.batch, WholeNumbers{1, 1 << 16}}},
        {"accumulation",
         "micro-steps of a step; only the last synchronises",
         {o.accumulation, WholeNumbers{1, 10'000}}},
        {"bucket-cap", "of the buckets; default: the scenario's", {o.bucket_cap, parse_size}},
        {"epochs", "how often each sample is seen", {o.epochs, WholeNumbers{1, 100'000}, "4"}},
        {"samples", "images to train on", {o.samples, samples, "2048"}},
        {"test-samples", "images that the accuracy is of", {o.test_samples, samples, "512"}},
        {"learning-rate",
         "of stochastic gradient descent; momentum is 0.9",
         {o.learning_rate, read_learning_rate, "0.05"}},
        seed_row(o, "of images, first parameters and the order of samples"),
        {"implementations",
         "which to train, each an epoch in turn",
         {o.implementations, ListOf{Choice{every<TrainingImplementation>}}, "ddp,reference"},
         some_of(every<TrainingImplementation>)},
        published_row(o),
        format_row(o.format)};
    std::ranges::move(change_rows(o, {"link", "strategy", "set"}), std::back_inserter(rows));
    return rows;
}

// --- the scenario --------------------------------------------------------------------------------

void set_layers(const TrainingOptions& o, Json& document) {
    if (!o.layers && !o.classes) {
        return;
    }
    const Json::json_pointer place("/workload/model/layers");
    if (!document.contains(place) || !document[place].is_array() || document[place].empty()) {
        throw InputError(o.layers ? "--layers" : "--classes", "",
                         "a scenario whose model is a perceptron", "another one");
    }
    Json& layers = document[place];
    const Json classes = o.classes ? Json(*o.classes) : layers.back();
    if (o.layers) {
        layers = *o.layers;
        layers.push_back(classes);
    }
    layers.back() = classes;
}

void change_run(const TrainingOptions& o, Json& document) {
    set_layers(o, document);
    if (o.accumulation) {
        set_at(document, "/step/accumulation", *o.accumulation, "--accumulation");
    }
    if (o.bucket_cap) {
        set_at(document, "/sync/bucket_cap_mib", typed_mib(*o.bucket_cap), "--bucket-cap");
    }
}

void check_model(const Scenario& scenario, const std::string& file) {
    const auto* workload = std::get_if<ModelWorkload>(&scenario.workload);
    const auto* shape = workload == nullptr ? nullptr : std::get_if<MlpShape>(&workload->model);
    if (shape == nullptr) {
        throw InputError(file, workload == nullptr ? "/workload" : "/workload/model",
                         R"(a perceptron to train, {"family": "mlp", "layers": [...]})",
                         "another workload");
    }
    constexpr std::int64_t most_parameters = std::int64_t{1} << 28;
    std::int64_t parameters = 0;
    for (std::size_t i = 0; i + 1 < shape->layers.size(); ++i) {
        parameters += (shape->layers[i] + 1) * shape->layers[i + 1];
    }
    if (parameters > most_parameters) {
        throw InputError(file, "/workload/model/layers",
                         fmt::format("at most {} parameters", most_parameters),
                         std::to_string(parameters));
    }
}

// The training code handles float32 gradients that are copied one by one.
void check_trainable(const Scenario& scenario, const std::string& file) {
    check_model(scenario, file);
    struct Refusal {
        bool given;
        const char* pointer;
        const char* expected;
        const char* got;
    };
    const auto& workload = std::get<ModelWorkload>(scenario.workload);
    const auto* optimizer = std::get_if<Optimizer>(&scenario.step.optimizer);
    const SyncRequest& sync = scenario.sync;
    for (const auto& [given, pointer, expected, got] :
         {Refusal{workload.dtype != DType::float32, "/workload/dtype", "float32", "another one"},
          Refusal{workload.arithmetic != Arithmetic::float32, "/workload/arithmetic", "float32",
                  "another one"},
          Refusal{scenario.step.cuda_graph, "/step/cuda_graph", "false", "true"},
          Refusal{scenario.step.clip_gradients.has_value(), "/step/clip_gradients", "false",
                  "clipping"},
          Refusal{optimizer != nullptr && *optimizer == Optimizer::adam, "/step/optimizer",
                  "sgd or sgd_momentum", "adam"},
          Refusal{sync.strategy == Strategy::none, "/sync/strategy",
                  "one that synchronises, as ranks would else learn different things", "none"},
          Refusal{framework_of(sync.strategy).has_value(), "/sync/strategy", "one of PyTorch's",
                  "a framework's own"},
          Refusal{sync.fused_copies, "/sync/fused_copies", "false", "true"},
          Refusal{sync.batched_grad_copy, "/sync/batched_grad_copy", "false", "true"},
          Refusal{sync.find_unused_parameters, "/sync/find_unused_parameters",
                  "false, as all parameters are used", "true"}}) {
        if (given) {
            throw InputError(file, pointer, expected, got);
        }
    }
}

void read_scenario(TrainingOptions& o) {
    if (o.simulates && o.identity) {
        throw UsageError{
            fmt::format("{}: expected --simulate in one process, got ranks that {} "
                        "started",
                        o.name, o.identity->launcher)};
    }
    if (o.file.empty()) {
        o.file = standard_scenario;
    }
    o.scenario = read_bench_scenario(o, [&](Json& document) { change_run(o, document); });
    check_trainable(o.scenario, o.file);
    o.implementations = each_once(o.implementations);
    constexpr std::int64_t most_pixels = std::int64_t{1} << 29;  // every rank holds all images
    const ImageDataRequest data = o.data();
    if ((data.training_images + data.test_images) * data.pixels > most_pixels) {
        throw InputError(
            "--samples", "", fmt::format("images of {} pixels in all at most", most_pixels),
            fmt::format("{} of {}", data.training_images + data.test_images, data.pixels));
    }
}

// --- the table -----------------------------------------------------------------------------------

const std::vector<std::string> published_numbers{"time_s", "max_memory_bytes", "loss", "accuracy"};

std::vector<NamedColumn> columns_of(bool has_published) {
    std::vector<NamedColumn> columns{
        {{"implementation", "implementation"}},
        {{"strategy", "strategy"}},
        {{"rank", "rank"}},
        {{"time_s", "time\ns"}},
        {{"simulated_time_s", "simulated\ns"}},
        error_column({"time_error_percent", "error\n%", 1}, "simulated_time_s", "time_s"),
        {{"step_ms", "full step\nms"}, "step_s", 1e3},
        {{"simulated_step_ms", "simulated\nms"}, "simulated_step_s", 1e3},
        error_column({"step_error_percent", "error\n%", 1}, "simulated_step_s", "step_s"),
        {{"max_memory_bytes", "memory\nbytes"}},
        {{"simulated_max_memory_bytes", "simulated\nbytes"}},
        error_column({"memory_error_percent", "error\n%", 1}, "simulated_max_memory_bytes",
                     "max_memory_bytes"),
        {{"loss", "loss", 4}},
        {{"accuracy", "accuracy", 4}},
        {{"process_peak_bytes", "process\nbytes", 3, false}}};
    if (has_published) {
        columns.insert(columns.end(), {{{"published_implementation", "published\nas"}},
                                       {{"published_time_s", "published\ns"}},
                                       {{"published_max_memory_bytes", "published\nbytes", 0}},
                                       {{"published_loss", "published\nloss", 4}},
                                       {{"published_accuracy", "published\naccuracy", 4}}});
    }
    return columns;
}

// "selfmade" all-reduces after backward; "pytorch" is DistributedDataParallel. Returns whether any
// row was published.
bool add_published_rows(const CsvFile& file, BenchRows& rows) {
    bool any = false;
    for (BenchRow& row : rows) {
        const Json name = row["implementation"];
        any |= add_published(file, {"implementation", "rank"}, published_numbers, row,
                             {name, name == "ddp" ? "pytorch" : "selfmade"});
    }
    return any;
}

// The most of any rank; 0: no rank has it.
double most(const BenchRows& rows, TrainingImplementation implementation, const std::string& key) {
    double value = 0;
    for (const BenchRow& row : rows) {
        if (row["implementation"] == name_of(implementation)) {
            value = std::max(value, number_in(row, key).value_or(0));
        }
    }
    return value;
}

// How the two implementations compare: simulated, measured, published.
std::vector<std::string> comparison_notes(const BenchRows& rows, Bytes gradients) {
    using enum TrainingImplementation;
    std::string time = "time of reference over ddp, slowest ranks:";
    std::string memory = "memory of ddp less reference, ranks with most:";
    const char* before = "";
    double simulated = 0;
    for (const std::string source : {"simulated", "measured", "published"}) {
        const std::string prefix = source == "measured" ? "" : source + "_";
        const double own_s = most(rows, ddp, prefix + "time_s");
        const double other_s = most(rows, reference, prefix + "time_s");
        if (own_s <= 0 || other_s <= 0) {
            continue;
        }
        const double ratio = other_s / own_s;
        simulated = source == "simulated" ? ratio : simulated;
        time += fmt::format("{} {} {:.3f}", before, source, ratio);
        time += source == "measured"
                    ? fmt::format(" (error {:+.1f} %)", 100 * (simulated / ratio - 1))
                    : "";
        memory += fmt::format("{} {} {:.0f} bytes", before, source,
                              most(rows, ddp, prefix + "max_memory_bytes") -
                                  most(rows, reference, prefix + "max_memory_bytes"));
        before = ",";
    }
    if (simulated == 0) {
        return {};
    }
    return {time, memory + fmt::format("; a copy of all gradients is {} bytes", gradients.count)};
}

void print_training(const TrainingOptions& o, const EnvironmentRecord* environment,
                    const std::optional<CsvFile>& published, BenchRows rows) {
    const TrainingSchedule schedule = o.task_of(o.implementations.front()).schedule;
    BenchReport report{
        .title = fmt::format("{}: {} epochs of {} samples, batch {} on {}, accumulation {}",
                             o.scenario.name, o.epochs, o.samples, schedule.batch,
                             text_of_ranks(schedule.ranks), schedule.accumulation),
        .simulated = o.measures ? "" : o.scenario.link.name,
        .columns = columns_of(published.has_value()),
        .notes = caveats(o.scenario)};
    Json& losses = report.head["epoch_losses"] = Json::object();
    for (const BenchRow& row : rows) {
        if (row.contains("losses")) {
            losses[row["implementation"].get<std::string>()] = row["losses"];
        }
    }
    if (environment != nullptr) {
        report.head["backend"] = environment->transport.backend;
        report.head["shared_gpu"] = environment->transport.shared_gpu;
    }
    if (published) {
        add_published_rows(*published, rows);
    }
    for (std::string& note :
         comparison_notes(rows, step_input(o.scenario).workload.gradient_bytes())) {
        report.notes.push_back(std::move(note));
    }
    if (published) {
        report.notes.emplace_back(
            "published is another model on other hardware: only how the two implementations "
            "compare can be set beside ours, no time, memory, loss or accuracy by itself");
    }
    report.rows = std::move(rows);
    print_report(o, environment, report);
}

// --- running -------------------------------------------------------------------------------------

BenchRows simulated_rows(const TrainingOptions& o) {
    // The alignment and workspace of a GPU's memory and cuBLAS in hw/nccl; on a CPU blocks start on
    // cache lines.
    const auto& device = std::get<ModelWorkload>(o.scenario.workload).device;
    const bool is_cpu = device && device->host_is_device;
    const Bytes alignment{is_cpu ? 64 : 256};
    const Bytes workspace = is_cpu ? Bytes{} : 32 * Bytes{bytes_per_mib};
    BenchRows rows;
    for (const TrainingImplementation implementation : o.implementations) {
        const TrainingTask task = o.task_of(implementation);
        const TrainingTime time = predict_training(task, o.scenario);
        for (const std::int64_t bytes :
             predict_memory(task, o.test_samples, alignment, workspace)) {
            rows.push_back(simulated_row(o, implementation, std::ssize(rows) % o.job.ranks, time,
                                         time.full_step, bytes));
        }
    }
    return rows;
}

// Throws InputError for a table without a row of ours.
std::optional<CsvFile> read_published_runs(const TrainingOptions& o) {
    std::optional<CsvFile> file = read_published(o, {"implementation", "rank"}, published_numbers);
    BenchRows rows;
    for (const TrainingImplementation implementation : o.implementations) {
        rows.push_back({{"implementation", name_of(implementation)}, {"rank", 0}});
    }
    if (file && !add_published_rows(*file, rows)) {
        throw InputError(*o.published, "",
                         "a row of an implementation ddp, pytorch, reference or selfmade on rank 0",
                         "none");
    }
    return file;
}

int run_training(TrainingOptions& o) {
    read_scenario(o);
    const std::optional<CsvFile> published = read_published_runs(o);
    return run_bench(
        o, [&](const RankJob&, RankSession& session) { return train_on_ranks(o, session); },
        [&](const EnvironmentRecord* environment, const BenchRows& measured) {
            print_training(o, environment, published,
                           environment == nullptr ? simulated_rows(o) : measured);
        });
}

}  // namespace

SyncRequest TrainingOptions::sync_of(TrainingImplementation implementation) const {
    if (implementation == TrainingImplementation::ddp) {
        return scenario.sync;
    }
    SyncRequest flat;
    flat.strategy = Strategy::flat;
    flat.comm_hook = scenario.sync.comm_hook;
    return flat;
}

TrainingTask TrainingOptions::task_of(TrainingImplementation implementation) const {
    const auto* optimizer = std::get_if<Optimizer>(&scenario.step.optimizer);
    return {.shape = shape(),
            .schedule = {.samples = samples,
                         .ranks = scenario.group.ranks,
                         .accumulation = scenario.step.accumulation,
                         .batch = std::get<ModelWorkload>(scenario.workload).input.batch},
            .sync = sync_of(implementation),
            .optimizer = optimizer == nullptr ? Optimizer::sgd : *optimizer,
            .learning_rate = static_cast<float>(learning_rate),
            .seed = seed};
}

ImageDataRequest TrainingOptions::data() const {
    return {.pixels = shape().layers.front(),
            .classes = shape().layers.back(),
            .training_images = samples,
            .test_images = test_samples,
            .seed = seed};
}

BenchRow simulated_row(const TrainingOptions& options, TrainingImplementation implementation,
                       std::int64_t rank, const TrainingTime& time, Duration full_step,
                       std::int64_t memory_bytes) {
    return {{"implementation", name_of(implementation)},
            {"strategy", name_of(options.sync_of(implementation).strategy)},
            {"rank", rank},
            {"simulated_time_s", to_us(time.epoch()) * 1e-6 * static_cast<double>(options.epochs)},
            {"simulated_step_s", to_us(full_step) * 1e-6},
            {"simulated_max_memory_bytes", memory_bytes}};
}

CommandHelp bench_training_help() {
    const auto o = std::make_shared<TrainingOptions>();
    o->measures_beside = false;
    return bench_command("training", " [SCENARIO]", *o, training_rows(*o), explanation,
                         [o] { return run_training(*o); });
}

}  // namespace bucketwise
