#include "bench/training/options.h"

#include <variant>

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "bench/benches.h"
#include "cli/ranks/backends.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/scenario_document.h"
#include "cli/shell/size.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/document_edit.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

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

// What is run when no scenario is named; scenarios/training_small.json is the same.
constexpr std::string_view standard_scenario = R"({
  "name": "training a small perceptron",
  "workload": {
    "model": { "family": "mlp", "layers": [768, 512, 512, 10] },
    "batch": 16,
    "device": { "name": "one core", "peak_tflop_per_s": { "float32": 0.04 }, "memory_bandwidth_gb_per_s": 10,
                "host_is_device": true }
  },
  "cluster": {
    "ranks": 2,
    "link": { "name": "1 Gbit/s Ethernet", "algorithm": "ring",
              "segments": [{ "latency_us": 100, "bandwidth_gb_per_s": 0.12 }] }
  },
  "sync": { "strategy": "ddp", "bucket_cap_mib": 0.5 },
  "step": { "accumulation": 4, "optimizer": "sgd_momentum" }
})";

po::options_description described_options() {
    po::options_description options("options", 100);
    add_options(options,
                {{"simulate", "only predict, from the scenario's device and link", no_value},
                 {"ranks", "how many ranks; default: the scenario's"},
                 {"layers", "widths of an image and of each hidden layer: 768,512,512"},
                 {"classes", "how many there are to tell apart"},
                 {"batch", "samples per rank and micro-step"},
                 {"accumulation", "micro-steps of a step; only the last synchronises"},
                 {"bucket-cap", "of the buckets; default: the scenario's"},
                 {"epochs", "how often each sample is seen", "4"},
                 {"samples", "images to train on", "2048"},
                 {"test-samples", "images that the accuracy is of", "512"},
                 {"learning-rate", "of stochastic gradient descent; momentum is 0.9", "0.05"},
                 {"seed", "of images, first parameters and the order of samples", "1"},
                 {"implementations", "which to train, each an epoch in turn", "ddp,reference"},
                 {"published", "a CSV file of published results to print beside"},
                 {"format", "text, csv or json", "text"}});
    add_backend_options(options);
    add_scenario_options(options);
    add_network_options(options, deadline_text);
    add_options(options, {{"help,h", "show this", no_value}});
    return options;
}

// --- the scenario ---

constexpr std::int64_t most_accumulation = 10'000;
constexpr std::int64_t most_batch = 1 << 16;

void set_number(const po::variables_map& values, const char* option, const std::string& pointer,
                WholeNumbers range, Json& document) {
    if (values.count(option) != 0) {
        set_at(document, pointer, whole_number(values, option, range), fmt::format("--{}", option));
    }
}

void set_layers(const po::variables_map& values, Json& document) {
    const bool widths = values.count("layers") != 0;
    const bool classes = values.count("classes") != 0;
    if (!widths && !classes) {
        return;
    }
    constexpr WholeNumbers range{1, 1 << 18};
    const Json::json_pointer place("/workload/model/layers");
    if (!document.contains(place) || !document[place].is_array() || document[place].empty()) {
        throw InputError(widths ? "--layers" : "--classes", "",
                         "a scenario whose model is a perceptron", "another one");
    }
    Json& layers = document[place];
    if (widths) {
        Json last = layers.back();
        layers = whole_numbers(values, "layers", range);
        layers.push_back(std::move(last));
    }
    if (classes) {
        layers.back() = whole_number(values, "classes", range);
    }
}

Json requested_document(const po::variables_map& values,
                        const std::optional<RankIdentity>& identity, std::string& file) {
    Json document;
    if (values.count("scenario") != 0) {
        file = text_value(values, "scenario");
        document = scenario_for_ranks(values, identity, file);
    } else {
        file = "standard scenario";
        document = parse_json(standard_scenario, file);
        change_document(values, file, document);
    }
    set_number(values, "batch", "/workload/batch", {1, most_batch}, document);
    set_number(values, "accumulation", "/step/accumulation", {1, most_accumulation}, document);
    set_layers(values, document);
    if (const auto ranks = requested_ranks(values, identity, most_ranks_here)) {
        set_ranks(document, *ranks, *ranks, "--ranks");
    }
    if (values.count("bucket-cap") != 0) {
        const Bytes cap = parse_size(text_value(values, "bucket-cap"), "--bucket-cap");
        set_at(document, "/sync/bucket_cap_mib", typed_mib(cap), "--bucket-cap");
    }
    return document;
}

std::int64_t parameters_of(const MlpShape& shape) {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i + 1 < shape.layers.size(); ++i) {
        sum += (shape.layers[i] + 1) * shape.layers[i + 1];
    }
    return sum;
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
    if (parameters_of(*shape) > most_parameters) {
        throw InputError(file, "/workload/model/layers",
                         fmt::format("at most {} parameters", most_parameters),
                         std::to_string(parameters_of(*shape)));
    }
    if (workload->dtype != DType::float32 || workload->arithmetic != Arithmetic::float32) {
        throw InputError(
            file, workload->dtype != DType::float32 ? "/workload/dtype" : "/workload/arithmetic",
            "float32", "another one");
    }
}

// What is trained knows gradients of float32, copied one by one.
void check_trainable(const Scenario& scenario, const std::string& file) {
    check_model(scenario, file);
    const auto refuse = [&file](bool given, const char* pointer, const char* expected,
                                const char* got) {
        if (given) {
            throw InputError(file, pointer, expected, got);
        }
    };
    const auto* optimizer = std::get_if<Optimizer>(&scenario.step.optimizer);
    refuse(scenario.step.cuda_graph, "/step/cuda_graph", "false", "true");
    refuse(optimizer != nullptr && *optimizer == Optimizer::adam, "/step/optimizer",
           "sgd or sgd_momentum", "adam");
    refuse(scenario.sync.strategy == Strategy::none, "/sync/strategy",
           "one that synchronises, as ranks would else learn different things", "none");
    refuse(scenario.sync.fused_copies, "/sync/fused_copies", "false", "true");
    refuse(scenario.sync.batched_grad_copy, "/sync/batched_grad_copy", "false", "true");
    refuse(scenario.sync.find_unused_parameters, "/sync/find_unused_parameters",
           "false, as all parameters are used", "true");
}

// --- the rest ---

double requested_learning_rate(const po::variables_map& values) {
    const std::string& text = text_value(values, "learning-rate");
    const std::optional<double> rate = number_in(text);
    if (!rate || !(*rate > 0 && *rate <= 100)) {
        throw InputError("--learning-rate", "", "a number above 0 and at most 100",
                         "\"" + text + "\"");
    }
    return *rate;
}

// Every rank holds all images.
void check_size(const BenchTrainingOptions& options) {
    constexpr std::int64_t most_pixels = std::int64_t{1} << 29;
    const ImageDataRequest data = options.data();
    if ((data.training_images + data.test_images) * data.pixels > most_pixels) {
        throw InputError(
            "--samples", "", fmt::format("images of {} pixels in all at most", most_pixels),
            fmt::format("{} of {}", data.training_images + data.test_images, data.pixels));
    }
}

void read_run(const po::variables_map& values, BenchTrainingOptions& options) {
    constexpr std::int64_t most_samples = 10'000'000;
    options.epochs = whole_number(values, "epochs", {1, 100'000});
    options.samples = whole_number(values, "samples", {1, most_samples});
    options.test_samples = whole_number(values, "test-samples", {1, most_samples});
    options.learning_rate = requested_learning_rate(values);
    options.seed = seed_value(values);
    for (const std::string& name : list_value(values, "implementations")) {
        options.implementations.push_back(
            choice_named(name, every<TrainingImplementation>, "--implementations"));
    }
    options.implementations = each_once(options.implementations);
    options.format = choice_value(values, "format", every<TableFormat>);
    options.published = text_or_empty(values, "published");
    check_can_be_read_again(options.published);
}

void check_simulation(const po::variables_map& values,
                      const std::optional<RankIdentity>& identity) {
    if (const auto option = first_typed(
            values, {"link-rate", "deadline", "store", "interface", "share-gpu", "ctas"})) {
        throw UsageError{fmt::format(
            "bench training: expected --{} on real ranks, got it with --simulate", *option)};
    }
    if (identity) {
        throw UsageError{fmt::format(
            "bench training: expected --simulate in one process, got ranks that {} started",
            identity->launcher)};
    }
}

}  // namespace

CommandHelp bench_training_help() {
    return {.usage = {"bucketwise bench training [SCENARIO] [OPTIONS]"},
            .options = described_options(),
            .text = explanation,
            .values = {{"implementations", some_of(every<TrainingImplementation>)}}};
}

SyncRequest BenchTrainingOptions::sync_of(TrainingImplementation implementation) const {
    if (implementation == TrainingImplementation::ddp) {
        return scenario.sync;
    }
    SyncRequest flat;
    flat.strategy = Strategy::flat;
    flat.comm_hook = scenario.sync.comm_hook;
    return flat;
}

TrainingTask BenchTrainingOptions::task_of(TrainingImplementation implementation) const {
    const auto& workload = std::get<ModelWorkload>(scenario.workload);
    const auto* optimizer = std::get_if<Optimizer>(&scenario.step.optimizer);
    return {.shape = std::get<MlpShape>(workload.model),
            .schedule = {.samples = samples,
                         .ranks = scenario.group.ranks,
                         .accumulation = scenario.step.accumulation,
                         .batch = workload.input.batch},
            .sync = sync_of(implementation),
            .optimizer = optimizer == nullptr ? Optimizer::sgd : *optimizer,
            .learning_rate = static_cast<float>(learning_rate),
            .seed = seed};
}

ImageDataRequest BenchTrainingOptions::data() const {
    const MlpShape shape = std::get<MlpShape>(std::get<ModelWorkload>(scenario.workload).model);
    return {.pixels = shape.layers.front(),
            .classes = shape.layers.back(),
            .training_images = samples,
            .test_images = test_samples,
            .seed = seed};
}

BenchTrainingOptions bench_training_options(const CommandLine& line,
                                            const std::optional<RankIdentity>& identity) {
    const po::variables_map& values = line.values;
    BenchTrainingOptions options;
    options.command = bench_command("training", line.arguments);
    options.simulate = values.count("simulate") != 0;
    const Json document = requested_document(values, identity, options.file);
    options.document = document.dump();
    options.scenario = parse_scenario(document, options.file, read_text_file);
    check_trainable(options.scenario, options.file);
    read_run(values, options);
    check_size(options);
    if (options.simulate) {
        check_simulation(values, identity);
        return options;
    }
    if (options.scenario.group.ranks > most_ranks_here && !identity) {
        throw InputError(options.file, "/cluster/ranks",
                         fmt::format("at most {} ranks on one machine", most_ranks_here),
                         std::to_string(options.scenario.group.ranks));
    }
    read_job("training", values, identity, options);
    return options;
}

}  // namespace bucketwise
