// bucketwise import hf CONFIG.json: a model of Hugging Face as a scenario.
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/file_kind.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/scenario_document.h"
#include "import/hugging_face/hf_config.h"
#include "sim/base/json_input.h"
#include "sim/link/link_input.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/model.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

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

gpt2, llama, mistral, qwen2, mixtral (--dense-only), t5, bert with its heads, and vit; config.json, or the folder
that it lies in. What the configuration does not say, which is all but the model, is assumed unless an option says
it, and printed.
)";

po::options_description import_hf_options() {
    po::options_description options("options", 100);
    add_options(
        options,
        {{"output,o", "scenario file to write, - for standard output"},
         {"batch", "sequences per rank, 8 unless given, or images, 32"},
         {"sequence-length", "tokens; the model's longest, at most 1024, unless given"},
         {"dtype", "of parameters and gradients; float32 unless given"},
         {"arithmetic",
          "of matrix products; bfloat16 unless given, which is mixed precision with float32"},
         {"device", "a preset; H100 unless given"},
         {"ranks", "8 unless given"},
         {"dense-only",
          "of a mixture of experts, the gradients that all ranks reduce: all but the experts'",
          no_value},
         help_option});
    add_scenario_options(options);
    return options;
}

// What an option says, or else what is assumed, which the report then lists.
class Choices {
  public:
    explicit Choices(const po::variables_map& values) : values_(values) {}

    std::int64_t number(const char* option, std::int64_t otherwise, const char* what) {
        constexpr std::int64_t most = std::int64_t{1} << 40;
        if (const auto number = optional_number(values_, option, {1, most})) {
            return *number;
        }
        assume(option, std::to_string(otherwise), what);
        name(option, std::to_string(otherwise));
        return otherwise;
    }

    std::string text(const char* option, const char* otherwise, const char* what) {
        if (values_.count(option) != 0) {
            return text_value(values_, option);
        }
        assume(option, otherwise, what);
        name(option, otherwise);
        return otherwise;
    }

    void assume(const char* option, const std::string& value, const char* what) {
        assumed_ += fmt::format("  {:<16} {:<10} {}\n", option, value, what);
    }

    [[nodiscard]] const std::string& assumed() const { return assumed_; }
    // The values that no option named, as one phrase.
    [[nodiscard]] const std::string& unnamed() const { return unnamed_; }

  private:
    void name(const char* option, const std::string& value) {
        unnamed_ += fmt::format("{}{} {}", unnamed_.empty() ? "" : ", ", option, value);
    }

    const po::variables_map& values_;
    std::string assumed_;
    std::string unnamed_;
};

// As measured on 4 H100 of one node with NCCL 2.29.2 (scenarios/links/nccl_h100_nvlink.json, which
// is not where an installed program could find it), for any number of ranks.
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

Json scenario_of(const HfModel& model, const std::string& name, Choices& choices,
                 const po::variables_map& values) {
    Json document{{"name", name}};
    Json& workload = document["workload"];
    workload["model"] = shape_json(model.shape);
    if (const TransformerShape* shape = model.transformer()) {
        workload["batch"] = choices.number("batch", default_batch, "sequences per rank");
        workload["sequence_length"] = choices.number(
            "sequence-length", std::min(shape->context, longest_default_sequence), "tokens");
    } else {
        workload["batch"] = choices.number("batch", default_images, "images per rank");
        workload["image_size"] = model.image_size;
    }
    workload["dtype"] = choices.text("dtype", "float32", "of parameters and gradients");
    workload["arithmetic"] =
        choices.text("arithmetic", "bfloat16", "of matrix products: mixed precision");
    workload["device"] = choices.text("device", "H100", "what a rank computes on");
    document["cluster"]["ranks"] = choices.number("ranks", default_ranks, "GPUs");
    document["cluster"]["link"] = assumed_link();
    if (values.count("link") == 0) {
        choices.assume("link", "NVLink",
                       "as 4 H100 of one node were measured: a prior, not your cluster");
    }
    document["sync"] = {{"strategy", "ddp"}, {"pytorch_version", "2.4"}};
    document["step"] = {{"optimizer", "adam"}};
    choices.assume("set", "", "/sync/pytorch_version=\"2.4\", /step/optimizer=\"adam\"");
    return document;
}

// What was typed in another spelling ("bf16", "h100"), by its own name.
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

// What to do with it, first.
std::string advice_on(const po::variables_map& values) {
    std::string missing;
    for (const char* option : {"link", "device", "batch"}) {
        if (values.count(option) == 0) {
            missing.append(missing.empty() ? "--" : ", --").append(option);
        }
    }
    const std::string& output = text_value(values, "output");
    const std::string predict =
        "bucketwise predict " + (output == "-" ? std::string("FILE") : output);
    if (missing.empty()) {
        return fmt::format("Ready to predict: {}\n\n", predict);
    }
    return fmt::format("Ready to predict: {}\nIt is not your cluster yet, as nobody gave {}.\n\n",
                       predict, missing);
}

std::string report_of(const HfModel& imported, const Scenario& scenario, const Choices& choices) {
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

// The name of the folder that configurations lie in tells more than config.json.
std::string name_of_model(const std::string& file, const HfModel& model) {
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

}  // namespace

CommandHelp import_hf_help() {
    return {.usage = {"bucketwise import hf CONFIG.json|FOLDER -o FILE [OPTIONS]"},
            .options = import_hf_options(),
            .text = import_hf_examples,
            .values = {{"arithmetic", one_of(every<Arithmetic>)}},
            .positional = {"config"},
            .required = {"config", "output"},
            .wants = "a config.json, and -o with a file to write"};
}

int run_import_hf(const CommandLine& line) {
    const po::variables_map& values = line.values;
    const std::string file = config_of_folder(text_value(values, "config"));
    const HfModel model = reading({file}, FileKind::model_config, [&] {
        return read_hf_config(
            parse_json(read_text_file(file), file), file,
            values.count("dense-only") != 0 ? HfExperts::left_out : HfExperts::refused);
    });
    const TransformerShape* shape = model.transformer();
    if (values.count("dense-only") != 0 && (shape == nullptr || shape->experts == 0)) {
        throw UsageError{"--dense-only: expected a mixture of experts, got " + model.architecture};
    }
    if (values.count("sequence-length") != 0 && shape == nullptr) {
        throw UsageError{"--sequence-length: expected a model of sequences, got " +
                         model.architecture};
    }
    Choices choices(values);
    Json document = scenario_of(model, name_of_model(file, model), choices, values);
    for (const std::string& assumed : model.assumed) {
        add_caveat(document, {.text = assumed});
    }
    if (!choices.unnamed().empty()) {
        add_caveat(document, {.text = "assumed when it was imported, as no option said it: " +
                                      choices.unnamed()});
    }
    change_document(values, file, document);
    inline_link(document, file, read_text_file);
    const Scenario scenario = parse_scenario(document, file, read_text_file);
    write_names(std::get<ModelWorkload>(scenario.workload), document);
    write_outputs({{text_value(values, "output"), json_text(document)}},
                  advice_on(values) + report_of(model, scenario, choices));
    return exit_done;
}

}  // namespace bucketwise
