// bucketwise bench training: a data-parallel training run, simulated and on real ranks.
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/benches.h"
#include "bench/training/training.h"
#include "cli/shell/files.h"
#include "cli/shell/scenario_document.h"
#include "cli/shell/size.h"
#include "hw/record/environment.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/base/transformed.h"
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

// Runs when no scenario is named; scenarios/training_small.json is the same.
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

const std::vector<OptionText> own_options{
    {"simulate", "only predict, from the scenario's device and link", no_value},
    {"ranks", "how many ranks; default: the scenario's"},
    {"layers", "widths of an image and of each hidden layer: 768,512,512"},
    {"classes", "number of classes of images"},
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
    {"format", "text, csv or json", "text"}};

// --- options -------------------------------------------------------------------------------------

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
    const auto set_number = [&](const char* option, const char* pointer, std::int64_t most) {
        if (values.count(option) != 0) {
            set_at(document, pointer, whole_number(values, option, {1, most}),
                   fmt::format("--{}", option));
        }
    };
    set_number("batch", "/workload/batch", 1 << 16);
    set_number("accumulation", "/step/accumulation", 10'000);
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
    if (workload->dtype != DType::float32 || workload->arithmetic != Arithmetic::float32) {
        throw InputError(
            file, workload->dtype != DType::float32 ? "/workload/dtype" : "/workload/arithmetic",
            "float32", "another one");
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
    const auto* optimizer = std::get_if<Optimizer>(&scenario.step.optimizer);
    for (const auto& [given, pointer, expected, got] :
         {Refusal{scenario.step.cuda_graph, "/step/cuda_graph", "false", "true"},
          Refusal{scenario.step.clip_gradients.has_value(), "/step/clip_gradients", "false",
                  "clipping"},
          Refusal{optimizer != nullptr && *optimizer == Optimizer::adam, "/step/optimizer",
                  "sgd or sgd_momentum", "adam"},
          Refusal{scenario.sync.strategy == Strategy::none, "/sync/strategy",
                  "one that synchronises, as ranks would else learn different things", "none"},
          Refusal{framework_of(scenario.sync.strategy).has_value(), "/sync/strategy",
                  "one of PyTorch's", "a framework's own"},
          Refusal{scenario.sync.fused_copies, "/sync/fused_copies", "false", "true"},
          Refusal{scenario.sync.batched_grad_copy, "/sync/batched_grad_copy", "false", "true"},
          Refusal{scenario.sync.find_unused_parameters, "/sync/find_unused_parameters",
                  "false, as all parameters are used", "true"}}) {
        if (given) {
            throw InputError(file, pointer, expected, got);
        }
    }
}

void read_run(const po::variables_map& values, TrainingOptions& options) {
    constexpr std::int64_t most_samples = 10'000'000;
    options.epochs = whole_number(values, "epochs", {1, 100'000});
    options.samples = whole_number(values, "samples", {1, most_samples});
    options.test_samples = whole_number(values, "test-samples", {1, most_samples});
    const std::string& rate = text_value(values, "learning-rate");
    options.learning_rate = number_in(rate).value_or(0);
    if (!(options.learning_rate > 0 && options.learning_rate <= 100)) {
        throw InputError("--learning-rate", "", "a number above 0 and at most 100",
                         "\"" + rate + "\"");
    }
    for (const std::string& name : list_value(values, "implementations")) {
        options.implementations.push_back(
            choice_named(name, every<TrainingImplementation>, "--implementations"));
    }
    options.implementations = each_once(options.implementations);
    options.format = choice_value(values, "format", every<TableFormat>);
    options.published = text_or_empty(values, "published");
    check_can_be_read_again(options.published);
    constexpr std::int64_t most_pixels = std::int64_t{1} << 29;  // every rank holds all images
    const ImageDataRequest data = options.data();
    if ((data.training_images + data.test_images) * data.pixels > most_pixels) {
        throw InputError(
            "--samples", "", fmt::format("images of {} pixels in all at most", most_pixels),
            fmt::format("{} of {}", data.training_images + data.test_images, data.pixels));
    }
}

TrainingOptions read_options(const CommandLine& line, const std::optional<RankIdentity>& identity) {
    const po::variables_map& values = line.values;
    TrainingOptions options;
    read_bench("training", line, identity, {}, options, values.count("simulate") == 0);
    if (options.simulates && identity) {
        throw UsageError{fmt::format(
            "bench training: expected --simulate in one process, got ranks that {} started",
            identity->launcher)};
    }
    std::string file;
    const Json document = requested_document(values, identity, file);
    options.document = document.dump();
    options.scenario = parse_scenario(document, file, read_text_file);
    check_trainable(options.scenario, file);
    read_run(values, options);
    const std::int64_t ranks = options.scenario.group.ranks;
    if (!options.simulates && !identity && ranks > most_ranks_here) {
        throw InputError(file, "/cluster/ranks",
                         fmt::format("at most {} ranks on one machine", most_ranks_here),
                         std::to_string(ranks));
    }
    return options;
}

// --- running -------------------------------------------------------------------------------------

void print_measured(const TrainingOptions& options, EnvironmentRecord environment,
                    const std::vector<TrainedImplementation>& results) {
    environment.transport = {};  // a GPU that ranks share is mentioned apart
    const std::string backend(options.backend->name());
    const std::string& link_rate = environment.link_rate;
    print_training(
        options, results,
        fmt::format("over {}{}; {}", backend, link_rate.empty() ? "" : " at " + link_rate,
                    hardware_of(environment)),
        {{"backend", backend},
         {"hardware", hardware_of(environment)},
         {"libraries", environment.libraries},
         {"link_rate", link_rate},
         {"shared_gpu", options.request.share_gpu},
         {"date", environment.date}});
}

std::vector<TrainedImplementation> simulated_training(const TrainingOptions& options) {
    // The alignment and workspace of a GPU's memory and cuBLAS in hw/nccl; on a CPU blocks start on
    // cache lines.
    const auto& device = std::get<ModelWorkload>(options.scenario.workload).device;
    const bool is_cpu = device && device->host_is_device;
    const Bytes alignment{is_cpu ? 64 : 256};
    const Bytes workspace = is_cpu ? Bytes{} : 32 * Bytes{bytes_per_mib};
    return transformed(options.implementations, [&](TrainingImplementation implementation) {
        const TrainingTask task = options.task_of(implementation);
        const TrainingTime time = predict_training(task, options.scenario);
        return TrainedImplementation{.implementation = implementation,
                                     .simulated = time,
                                     .simulated_full_step = time.full_step,
                                     .simulated_memory_bytes = predict_memory(
                                         task, options.test_samples, alignment, workspace)};
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

ImageDataRequest TrainingOptions::data() const {
    const MlpShape shape = std::get<MlpShape>(std::get<ModelWorkload>(scenario.workload).model);
    return {.pixels = shape.layers.front(),
            .classes = shape.layers.back(),
            .training_images = samples,
            .test_images = test_samples,
            .seed = seed};
}

CommandHelp bench_training_help() {
    return {.usage = {"bucketwise bench training [SCENARIO] [OPTIONS]"},
            .options = bench_options(own_options, add_scenario_options),
            .text = explanation,
            .values = {{"implementations", some_of(every<TrainingImplementation>)}}};
}

int run_bench_training(const CommandLine& line) {
    const std::optional<RankIdentity> identity = rank_from_environment(environment_variable);
    const TrainingOptions options = read_options(line, identity);
    if (options.simulates) {
        print_training(options, simulated_training(options),
                       "simulated over " + options.scenario.link.name, {{"date", utc_now()}});
        return exit_done;
    }
    if (!identity) {
        check_published(options.published);  // fails now rather than at the end
    }
    return run_bench<std::vector<TrainedImplementation>>(
        options, options.scenario.group.ranks, identity,
        [&](RankSession& session) { return train_on_ranks(options, session); },
        [&](const EnvironmentRecord& environment, const auto& results) {
            print_measured(options, environment, results);
        });
}

}  // namespace bucketwise
