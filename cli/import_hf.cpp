// bucketwise import hf CONFIG.json: a model of Hugging Face as a scenario.
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/described_model.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/file_kind.h"
#include "cli/shell/files.h"
#include "cli/shell/scenario_document.h"
#include "import/hugging_face/hf_config.h"
#include "sim/base/json_input.h"
#include "sim/link/link_input.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/model.h"

namespace bucketwise {
namespace {

constexpr std::int64_t default_batch = 8;
constexpr std::int64_t default_images = 32;
constexpr std::int64_t longest_default_sequence = 1024;
constexpr std::int64_t default_ranks = 8;

constexpr std::string_view import_hf_examples = R"(
examples:
  bucketwise import hf config.json -o scenario.json
  bucketwise import hf my-model/ -o scenario.json
  bucketwise import hf config.json -o scenario.json --batch 4 --sequence-length 2048 --device A100
  bucketwise import hf config.json -o scenario.json --ranks 32 --link link.json --set /step/accumulation=4
  bucketwise predict scenario.json

config.json, or its folder. gpt2, llama, mistral, qwen2, mixtral (--dense-only), qwen3, gemma, gemma2, gemma3_text, olmo2,
phi3, smollm3, gpt_neox, falcon, opt, t5, mt5, bert with its heads, and vit are known. Any other model is described by
PyTorch and transformers, where python3 has them (python -m bucketwise.torch.describe); mixtral with all its experts, too.
A configuration describes the model alone. Everything else comes from options, or is assumed and printed.
)";

struct HfOptions {
    std::string file;
    std::string output;
    std::optional<std::int64_t> sequence_length;
    std::optional<std::string> arithmetic;
    std::optional<std::int64_t> ranks;
    bool dense_only = false;
    ScenarioOptions scenario;
};

// A model as a scenario has it.
struct ImportedModel {
    std::string architecture;
    Json model;
    std::int64_t batch = default_batch;  // where no option says it
    std::optional<std::int64_t> sequence_length = {};
    std::optional<std::int64_t> image_size = {};
    std::vector<std::string> assumed = {};
    bool has_experts = false;  // left out, or to be
};

ImportedModel imported(const HfModel& model) {
    ImportedModel imported{.architecture = model.architecture,
                           .model = shape_json(model.shape),
                           .assumed = model.assumed};
    if (const TransformerShape* shape = model.transformer()) {
        imported.sequence_length = std::min(shape->context, longest_default_sequence);
        imported.has_experts = shape->experts > 0;
    } else {
        imported.batch = default_images;
        imported.image_size = model.image_size;
    }
    return imported;
}

ImportedModel imported(const Json& described) {
    const Json& workload = described.at("workload");
    ImportedModel imported{.architecture = described.at("architecture"),
                           .model = workload.at("model"),
                           .batch = workload.at("batch")};
    if (workload.contains("sequence_length")) {
        imported.sequence_length = workload.at("sequence_length").get<std::int64_t>();
    }
    for (const Json& caveat : described.value("caveats", Json::array())) {
        imported.assumed.push_back(caveat);
    }
    return imported;
}

ImportedModel read_or_describe(const std::string& file, const HfOptions& options) {
    try {
        return imported(reading({file}, FileKind::model_config, [&] {
            return read_hf_config(parse_json(read_text_file(file), file), file,
                                  options.dense_only ? HfExperts::left_out : HfExperts::refused);
        }));
    } catch (const UnknownFamily& unknown) {
        return imported(described_scenario(file,
                                           {.batch = options.scenario.batch,
                                            .sequence_length = options.sequence_length,
                                            .dtype = options.scenario.dtype.value_or("float32")},
                                           unknown));
    }
}

// Values of options, or else assumed values, which the report lists.
class Choices {
  public:
    std::int64_t number(const std::optional<std::int64_t>& typed, const char* option,
                        std::int64_t otherwise, const char* what) {
        if (!typed) {
            assume_unnamed(option, std::to_string(otherwise), what);
        }
        return typed.value_or(otherwise);
    }

    std::string text(const std::optional<std::string>& typed, const char* option,
                     const char* otherwise, const char* what) {
        if (!typed) {
            assume_unnamed(option, otherwise, what);
        }
        return typed.value_or(otherwise);
    }

    void assume(const char* option, const std::string& value, const char* what) {
        assumed_ += fmt::format("  {:<16} {:<10} {}\n", option, value, what);
    }

    [[nodiscard]] const std::string& assumed() const { return assumed_; }
    // The values that no option named, as one phrase.
    [[nodiscard]] const std::string& unnamed() const { return unnamed_; }

  private:
    void assume_unnamed(const char* option, const std::string& value, const char* what) {
        assume(option, value, what);
        unnamed_ += fmt::format("{}{} {}", unnamed_.empty() ? "" : ", ", option, value);
    }

    std::string assumed_;
    std::string unnamed_;
};

// Measured on 4 H100 of one node with NCCL 2.29.2 (scenarios/links/nccl_h100_nvlink.json, which an
// installed program could not find), for any number of ranks.
Json assumed_link() {
    return parse_json(R"({
        "name": "NVLink of H100, assumed", "algorithm": "ring", "launch_us": 19.9,
        "caveats": ["nobody named a link: this one was measured on 4 H100 of one node"],
        "segments": [
            { "up_to_bytes": 65536, "latency_us": 0.595, "bandwidth_gb_per_s": 26.11 },
            { "up_to_bytes": 1048576, "latency_us": 1.22, "bandwidth_gb_per_s": 3251.0 },
            { "up_to_bytes": 134217728, "latency_us": 0.501, "bandwidth_gb_per_s": 328.7 },
            { "latency_us": 10.6, "bandwidth_gb_per_s": 364.8 } ] })",
                      "the assumed link");
}

Json scenario_of(const ImportedModel& model, const std::string& name, Choices& choices,
                 const HfOptions& options) {
    const ScenarioOptions& typed = options.scenario;
    Json document{{"name", name}};
    Json& workload = document["workload"];
    workload["model"] = model.model;
    workload["batch"] =
        choices.number(typed.batch, "batch", model.batch,
                       model.sequence_length ? "sequences per rank" : "images per rank");
    if (model.sequence_length) {
        workload["sequence_length"] = choices.number(options.sequence_length, "sequence-length",
                                                     *model.sequence_length, "tokens");
    }
    if (model.image_size) {
        workload["image_size"] = *model.image_size;
    }
    workload["dtype"] =
        choices.text(typed.dtype, "dtype", "float32", "of parameters and gradients");
    workload["arithmetic"] = choices.text(options.arithmetic, "arithmetic", "bfloat16",
                                          "of matrix products: mixed precision");
    workload["device"] = choices.text(typed.device, "device", "H100", "what a rank computes on");
    document["cluster"]["ranks"] = choices.number(options.ranks, "ranks", default_ranks, "GPUs");
    document["cluster"]["link"] = assumed_link();
    if (!typed.link) {
        choices.assume("link", "NVLink",
                       "as 4 H100 of one node were measured: a prior, not your cluster");
    }
    document["sync"] = {{"strategy", "ddp"}, {"pytorch_version", "2.4"}};
    document["step"] = {{"optimizer", "adam"}};
    choices.assume("set", "", "/sync/pytorch_version=\"2.4\", /step/optimizer=\"adam\"");
    return document;
}

// Replaces other spellings ("bf16", "h100") by names.
void write_names(const ModelWorkload& workload, Json& document) {
    Json& written = document["workload"];
    written["dtype"] = name_of(workload.dtype);
    written["arithmetic"] = name_of(workload.arithmetic);
    if (written["device"].is_string() && workload.device) {
        written["device"] = workload.device->name;
    }
}

std::int64_t flops_of(const Model& model) {
    std::int64_t flops = 0;
    for (const Operation& operation : model.operations) {
        flops += operation.forward.flops + operation.input_gradient.flops +
                 operation.weight_gradient.flops;
    }
    return flops;
}

// The next command, and the options without which it is not the user's cluster.
std::string advice_on(const HfOptions& options) {
    std::vector<std::string> missing;
    const ScenarioOptions& typed = options.scenario;
    for (const auto& [option, is_typed] : {std::pair{"--link", typed.link.has_value()},
                                           {"--device", typed.device.has_value()},
                                           {"--batch", typed.batch.has_value()}}) {
        if (!is_typed) {
            missing.emplace_back(option);
        }
    }
    const std::string predict =
        "bucketwise predict " + (options.output == "-" ? std::string("FILE") : options.output);
    if (missing.empty()) {
        return fmt::format("Ready to predict: {}\n\n", predict);
    }
    return fmt::format("Ready to predict: {}\nIt is not your cluster yet, as nobody gave {}.\n\n",
                       predict, fmt::join(missing, ", "));
}

std::string report_of(const ImportedModel& imported, const Scenario& scenario,
                      const Choices& choices) {
    const auto& workload = std::get<ModelWorkload>(scenario.workload);
    const Model model = model_of(workload);
    std::int64_t elements = 0;
    for (const Parameter& parameter : model.parameters) {
        elements += parameter.numel();
    }
    const Bytes gradients = elements * element_size(workload.dtype);
    std::string text = fmt::format(
        "{}: {} parameters in {} tensors, {:.1f} MiB of {} gradients, {:.4g} Tflop per step of a "
        "rank\n",
        imported.architecture, elements, model.parameters.size(), to_mib(gradients),
        name_of(workload.dtype), static_cast<double>(flops_of(model)) / 1e12);
    text += "Assumed, unless an option says otherwise:\n" + choices.assumed();
    for (const std::string& assumed : imported.assumed) {
        text += fmt::format("Note: {}.\n", assumed);
    }
    return text;
}

// A configuration's folder has a better name than config.json.
std::string name_of_model(const std::string& file, const ImportedModel& model) {
    const std::filesystem::path path(file);
    const std::string folder = path.parent_path().filename().string();
    const std::string stem = path.stem().string();
    const std::string& name = stem != "config" ? stem : folder;
    constexpr std::size_t longest = 150;
    const bool plain =
        !name.empty() && name != "." && name != ".." && name.size() <= longest &&
        std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; });
    return plain ? fmt::format("{} ({})", name, model.architecture) : model.architecture;
}

int run_import_hf(const HfOptions& options) {
    const std::string file = config_of_folder(options.file);
    const ImportedModel model = read_or_describe(file, options);
    if (options.dense_only && !model.has_experts) {
        throw UsageError{"--dense-only: expected Mixtral, got " + model.architecture};
    }
    if (options.sequence_length && !model.sequence_length) {
        throw UsageError{"--sequence-length: expected a model of sequences, got " +
                         model.architecture};
    }
    Choices choices;
    Json document = scenario_of(model, name_of_model(file, model), choices, options);
    for (const std::string& assumed : model.assumed) {
        add_caveat(document, {.text = assumed});
    }
    if (!choices.unnamed().empty()) {
        add_caveat(document, {.text = "assumed when it was imported, as no option said it: " +
                                      choices.unnamed()});
    }
    change_document(options.scenario, file, document);
    inline_link(document, file, read_text_file);
    const Scenario scenario = parse_scenario(document, file, read_text_file);
    write_names(std::get<ModelWorkload>(scenario.workload), document);
    write_outputs({{options.output, json_text(document)}},
                  advice_on(options) + report_of(model, scenario, choices));
    return exit_done;
}

}  // namespace

CommandHelp import_hf_help() {
    const auto o = std::make_shared<HfOptions>();
    constexpr WholeNumbers counts{1, std::int64_t{1} << 40};
    return {.usage = {"bucketwise import hf CONFIG.json|FOLDER -o FILE [OPTIONS]"},
            .options = options_of(
                {{"output,o", "scenario file to write; - is standard output", o->output},
                 {"sequence-length",
                  "tokens; default: the model's longest, at most 1024",
                  {o->sequence_length, counts}},
                 {"arithmetic",
                  "dtype of matrix products; default: bfloat16, mixed precision with float32",
                  o->arithmetic, one_of(every<Arithmetic>)},
                 {"ranks", "number of ranks; default: 8", {o->ranks, counts}},
                 {"dense-only",
                  "of Mixtral, only the gradients that all ranks reduce: all but the experts'",
                  o->dense_only}},
                scenario_rows(o->scenario)),
            .text = import_hf_examples,
            .positional = {"config", 1, o->file},
            .required = {"config", "output"},
            .wants = "a config.json, and -o with a file to write",
            .run = [o](const CommandLine&) { return run_import_hf(*o); }};
}

}  // namespace bucketwise
