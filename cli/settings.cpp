// bucketwise settings check FILE [SCENARIO]: the buckets that a typed bucket size gives.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/python_script.h"
#include "cli/shell/csv.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/scenario_document.h"
#include "import/settings/settings_file.h"
#include "sim/base/json_input.h"
#include "sim/base/json_output.h"
#include "sim/base/transformed.h"
#include "sim/frameworks/framework_advice.h"
#include "sim/predict/prediction.h"
#include "sim/report/knobs_text.h"
#include "sim/report/misfit.h"
#include "sim/report/number_text.h"
#include "sim/report/sharding_text.h"
#include "sim/scenario/recompute_input.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/sharding_input.h"
#include "sim/workload/models/models.h"

namespace bucketwise {
namespace {

constexpr std::string_view settings_check_text = R"(
examples:
  bucketwise settings check ds_config.json
  bucketwise settings check ds_config.json scenarios/gpt2_xl_32xh100.json
  bucketwise settings check train.py scenarios/resnet50_8xh100.json --value 50 --json -

FILE is a DeepSpeed JSON; TrainingArguments of transformers as JSON or YAML; the YAML or TOML of Accelerate, axolotl,
LLaMA-Factory, GPT-NeoX or torchtitan; a shell script or command line of Megatron-LM, Trainer, accelerate launch or
fairseq; or a Python script that calls DistributedDataParallel, FSDP, DeepSpeed or a wrapper. Python is parsed, not run.
Prints the strategy that runs, its buckets or groups in the scenario's model, their cost over the best, suspicious
settings, and what was not understood.
)";

struct SettingsOptions {
    std::vector<std::string> files;
    std::optional<std::string> json;
    std::optional<std::string> value;
    ScenarioOptions scenario;
};

// The file as settings_to_json.py gives it. Strict JSON needs no Python.
Json source_of(const std::string& file) {
    const std::string text = read_text_file(file);
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first != std::string::npos && text[first] == '{') {
        try {
            Json source;
            source["document"] = parse_json(text, file);
            return source;
        } catch (const InputError&) {  // DeepSpeed allows more than JSON does.
        }
    }
    if (first == std::string::npos) {
        throw InputError(file, "", "settings", "an empty file");
    }
    const ScriptRun read = run_script("import/settings/settings_to_json.py", {file}, text);
    if (read.failure) {
        const std::size_t why = read.failure->rfind("exit code 1: ");
        throw InputError(file, "", "settings that python3 can read",
                         why == std::string::npos ? *read.failure : read.failure->substr(why + 13));
    }
    return parse_json(read.output, file);
}

std::optional<double> value_of(const SettingsOptions& options) {
    if (!options.value) {
        return std::nullopt;
    }
    const auto value = number_in(*options.value);
    if (!value || *value <= 0) {
        throw InputError("--value", "", "a number above 0, in the framework's unit",
                         "\"" + *options.value + "\"");
    }
    return value;
}

// The step that the file asks for.
struct Question {
    Scenario scenario;
    SyncRequest request;
    std::optional<Bytes> limit;
    std::vector<std::string> notes;
};

// transformers fills "auto" in from the model's hidden size.
void fill_in_sizes(const Scenario& scenario, TypedSettings& typed, Question& question) {
    const auto* workload = std::get_if<ModelWorkload>(&scenario.workload);
    if (workload == nullptr || !typed.auto_sizes.any()) {
        return;
    }
    std::optional<TransformerShape> shape;
    if (const auto* own = std::get_if<TransformerShape>(&workload->model)) {
        shape = *own;
    } else if (const auto* name = std::get_if<std::string>(&workload->model)) {
        shape = transformer_shape(*name);
    }
    if (!shape) {
        return;
    }
    const std::int64_t square = shape->hidden * shape->hidden;
    if (typed.auto_sizes.reduce_bucket && !typed.sharding) {
        typed.value = static_cast<double>(square);
    }
    if (typed.sharding) {
        Zero3Settings& zero3 = typed.sharding->zero3;
        const AutoSizes& is_auto = typed.auto_sizes;
        zero3.reduce_bucket_elements =
            is_auto.reduce_bucket ? square : zero3.reduce_bucket_elements;
        zero3.prefetch_elements = is_auto.prefetch ? square * 9 / 10 : zero3.prefetch_elements;
        zero3.persistence_threshold =
            is_auto.persistence ? 10 * shape->hidden : zero3.persistence_threshold;
    }
    question.notes.push_back(
        fmt::format("\"auto\" is filled in from the hidden size {}", shape->hidden));
}

// Micro-steps from the batch of all ranks and that of one.
void set_accumulation(const TypedSettings& typed, Question& question) {
    Scenario& scenario = question.scenario;
    const auto [global, micro] = typed.batches;
    const std::int64_t copies = scenario.group.ranks / typed.parallel.context;
    if (typed.accumulation) {
        scenario.step.accumulation = *typed.accumulation;
    } else if (global && micro && copies > 0 && *global % (*micro * copies) == 0) {
        scenario.step.accumulation = *global / (*micro * copies);
        question.notes.push_back(fmt::format("{} micro-steps: a batch of {} on {} ranks, {} each",
                                             scenario.step.accumulation, *global, copies, *micro));
    }
}

// Adds the file's words on computing. Measured times have it in them.
void add_computing(const TypedSettings& typed, const ModelWorkload* model, Json& workload,
                   std::vector<std::string>& notes) {
    const bool has_blocks = model != nullptr && count_of_blocks(model_of(*model)) > 0;
    Json keys = Json::object();
    if (typed.recompute && has_blocks) {
        keys["activation_checkpointing"] = recompute_type().write(typed.recompute);
    } else if (typed.recompute && model != nullptr) {
        notes.emplace_back("the scenario's model has no repeated blocks: nothing is recomputed");
    }
    if (typed.compiles_blocks) {
        keys["execution"] = "compiled";
    }
    if (typed.arithmetic) {
        keys["arithmetic"] = name_of(*typed.arithmetic);
    }
    if (workload.contains("device")) {
        workload.update(keys);
    } else if (!keys.empty()) {
        notes.emplace_back(
            "recomputing, compiling and FP8 are taken to be in the scenario's measured times");
    }
}

// The scenario with what the file says of computing, dtype and sharding.
Json document_with(const ScenarioOptions& options, const std::string& file,
                   const TypedSettings& typed, Question& question) {
    Json document = read_simulated_document(options, file);
    const bool is_model = document.contains(Json::json_pointer("/workload/model"));
    if (typed.dtype && is_model && document["workload"].value("dtype", "float32") == "float32") {
        document["workload"]["dtype"] = name_of(*typed.dtype);
        question.notes.push_back(fmt::format(
            "the scenario's float32 is taken as {}, as the settings say", name_of(*typed.dtype)));
    }
    if (typed.recompute || typed.compiles_blocks || typed.arithmetic) {
        const Scenario plain = parse_scenario(document, file, read_text_file, StrategyKinds::all);
        add_computing(typed, std::get_if<ModelWorkload>(&plain.workload), document["workload"],
                      question.notes);
    }
    if (typed.sharding) {
        Json& sync = document["sync"] = Json::object();
        sync["strategy"] = name_of(typed.sharding->strategy);
        sync["sharding"] = sharding_json(*typed.sharding);
    }
    return document;
}

Question question_of(const ScenarioOptions& options, const std::string& file,
                     TypedSettings& typed) {
    Question question;
    Json document = document_with(options, file, typed, question);
    question.scenario = parse_scenario(document, file, read_text_file, StrategyKinds::all);
    fill_in_sizes(question.scenario, typed, question);
    if (typed.sharding && typed.auto_sizes.any()) {
        document["sync"]["sharding"] = sharding_json(*typed.sharding);
        question.scenario = parse_scenario(document, file, read_text_file, StrategyKinds::all);
    }
    set_accumulation(typed, question);
    SyncRequest& request = question.request = question.scenario.sync;
    request.views = typed.views.value_or(request.views);
    request.find_unused_parameters =
        typed.find_unused_parameters.value_or(request.find_unused_parameters);
    request.static_graph = typed.static_graph.value_or(request.static_graph);
    request.compiled = typed.compiled.value_or(request.compiled);
    request.comm_hook = typed.comm_hook.value_or(request.comm_hook);
    request.first_bucket.reset();
    const auto size = [](double mib) {
        return Bytes{static_cast<std::int64_t>(mib * static_cast<double>(bytes_per_mib))};
    };
    request.bucket_cap_list = transformed(typed.list, size);
    if (typed.value) {
        question.limit = typed.use.framework == Framework::pytorch_ddp
                             ? size(*typed.value)
                             : Bytes{static_cast<std::int64_t>(*typed.value)};
    }
    return question;
}

bool is_refused(const Question& question, const TypedSettings& typed) {
    if (typed.use.framework != Framework::pytorch_ddp) {
        return false;
    }
    const SyncRequest request =
        question.limit ? with_cap(question.request, *question.limit) : question.request;
    const std::optional<PieceLimits> pieces = settings_for(request).policy.pieces;
    return pieces && pieces->is_refused();
}

std::string what_is_set(const TypedSettings& typed) {
    const FrameworkRule& rule = rule_of(typed.use);
    if (!typed.list.empty()) {
        return fmt::format("bucket_cap_mb_list [{}]", fmt::join(typed.list, ", "));
    }
    return typed.value
               ? fmt::format("{} {}", rule.key,
                             rule.unit == SettingUnit::mib ? fmt::format("{}", *typed.value)
                                                           : fmt::format("{:.0f}", *typed.value))
               : fmt::format("{} left at its default", rule.key);
}

std::string buckets_text(const std::vector<Bytes>& buckets) {
    if (buckets.empty()) {
        return "no bucket";
    }
    const auto [least, most] = std::ranges::minmax_element(buckets);
    return buckets.size() == 1 ? fmt::format("one bucket of {:.4g} MiB", to_mib(*least))
                               : fmt::format("{} buckets of {:.3g} to {:.4g} MiB", buckets.size(),
                                             to_mib(*least), to_mib(*most));
}

// The best setting, as one types it there.
std::string best_typed(const Question& question, const TypedSettings& typed,
                       const CheckedSettings& checked) {
    if (framework_at(typed.place)) {
        return checked.best.typed;
    }
    SyncRequest request = question.request;
    request.find_unused_parameters = false;
    return wrapper_setting(typed.place, request, checked.best).typed;
}

std::string checked_text(const Question& question, const TypedSettings& typed,
                         const CheckedSettings& checked) {
    std::string text =
        fmt::format("  {}, {} ranks: {}, {} a step\n", question.scenario.name,
                    question.scenario.group.ranks, buckets_text(checked.typed.bucket_bytes),
                    fmt::format("{} ms", three_digits(to_ms(checked.typed.step))));
    const double cost = checked.cost();
    if (cost < noticeable_gain) {
        return text + "  Nothing there is faster.\n";
    }
    return text + fmt::format("  {:.1f} % over the best there, {} ms: {}\n", 100 * cost,
                              three_digits(to_ms(checked.best.best.step)),
                              best_typed(question, typed, checked));
}

Json checked_json(const Question& question, const TypedSettings& typed,
                  const CheckedSettings& checked) {
    Json json{{"buckets", checked.typed.bucket_bytes.size()},
              {"bucket_bytes", json_list(checked.typed.bucket_bytes, byte_count)},
              {"buffer_bytes", checked.typed.buffers.count},
              {"step_ms", to_ms(checked.typed.step)},
              {"best",
               {{"typed", best_typed(question, typed, checked)},
                {"buckets", checked.best.best.bucket_bytes.size()},
                {"step_ms", to_ms(checked.best.best.step)}}},
              {"cost", checked.cost()}};
    add_optional(json, "backward_ms", checked.backward, to_ms);
    return json;
}

// How much longer the scenario's own sharding takes than the best one, as a share.
double cost_of(const Prediction& sharded) {
    const auto best = static_cast<double>(sharded.advised().step().count());
    const auto asked = static_cast<double>(sharded.configured->step().count());
    return best > 0 ? std::max(asked / best - 1, 0.0) : 0.0;
}

std::string sharded_text(const Scenario& scenario, const Prediction& prediction) {
    const Evaluation& asked = *prediction.configured;
    const Evaluation& best = prediction.advised();
    std::string text =
        fmt::format("  {}, {} ranks: {}, {} a step{}\n", scenario.name, scenario.group.ranks,
                    counted(static_cast<std::int64_t>(asked.sharded->groups), "group"),
                    ms_text(asked.step()), asked.fits() ? "" : "; it does not fit");
    const double cost = cost_of(prediction);
    return text + (cost < noticeable_gain
                       ? "  Nothing there is faster.\n"
                       : fmt::format("  {:.1f} % over the best there, {}: {}\n", 100 * cost,
                                     ms_text(best.step()), setting_text(best.sharded->request)));
}

Json sharded_checked_json(const Prediction& prediction) {
    const Evaluation& asked = *prediction.configured;
    const Evaluation& best = prediction.advised();
    return {{"groups", asked.sharded->groups},
            {"step_ms", to_ms(asked.step())},
            {"best",
             {{"sharding", sharding_json(best.sharded->request)}, {"step_ms", to_ms(best.step())}}},
            {"cost", cost_of(prediction)}};
}

std::string lines_of(std::string_view heading, const std::vector<std::string>& sentences) {
    std::string text = sentences.empty() ? "" : fmt::format("  {}:\n", heading);
    for (const std::string& one : sentences) {
        std::string lines = wrapped("- " + one + ".", 104);
        for (std::size_t at = 0; (at = lines.find('\n', at)) != std::string::npos; ++at) {
            lines.replace(at, 1, "\n      ");
        }
        text += "    " + lines + "\n";
    }
    return text;
}

// The strategy that runs, and where it is typed.
std::string place_of(const TypedSettings& typed) {
    const bool is_wrapper = !framework_at(typed.place).has_value();
    return !typed.sharding                                      ? std::string(name_of(typed.place))
           : typed.sharding->strategy == ShardedStrategy::zero3 ? "deepspeed_zero3"
           : is_wrapper                                         ? std::string(name_of(typed.place))
                        : std::string(name_of(typed.sharding->strategy));
}

std::string heading_of(const TypedSettings& typed) {
    if (!typed.runs.empty()) {
        const bool counts = typed.sharding && typed.sharding->strategy == ShardedStrategy::zero3;
        return fmt::format("{}, {}{}", place_of(typed), typed.runs,
                           counts ? "" : ": DDP's bucket size counts for nothing");
    }
    return fmt::format("{}, {}", place_of(typed),
                       typed.not_simulated.empty() ? what_is_set(typed) : typed.not_simulated);
}

// Compares with the best setting, where there is one to compare with.
void compare(const ScenarioOptions& options, const std::string& file, TypedSettings& typed,
             std::string& text, Json& json) {
    if (!typed.not_simulated.empty() || typed.parallel.of_model() > 1) {
        text += fmt::format("  No step to predict: {}.\n",
                            typed.not_simulated.empty()
                                ? "the scenario's ranks hold a whole model each, the file's do not"
                                : typed.not_simulated);
        return;
    }
    const Question question = question_of(options, file, typed);
    std::ranges::copy(question.notes, std::back_inserter(typed.notes));
    if (typed.sharding) {
        const Prediction prediction =
            predict_sharded(question.scenario, sharded_input(question.scenario), [](double) {});
        text += sharded_text(question.scenario, prediction);
        json["checked"] = sharded_checked_json(prediction);
    } else if (is_refused(question, typed)) {
        text += "  torch.compile refuses a cap below 1 MiB: no step to predict.\n";
    } else {
        const CheckedSettings checked = checked_settings(
            step_input(question.scenario), question.request, typed.use, question.limit);
        text += checked_text(question, typed, checked);
        if (const std::string misfit = misfit_text(question.scenario); !misfit.empty()) {
            text = wrapped(misfit) + "\n\n" + text;
        }
        json["checked"] = checked_json(question, typed, checked);
    }
}

// Settings that change the step, beside the bucket size.
std::vector<std::string> said_of(const TypedSettings& typed) {
    std::vector<std::string> said;
    if (typed.sharding) {
        const ShardingRequest& request = *typed.sharding;
        said.push_back(setting_text(request));
        if (request.strategy == ShardedStrategy::zero3) {
            said.back() += fmt::format(", stage3_param_persistence_threshold {}",
                                       request.zero3.persistence_threshold);
        }
        if (request.parameter_dtype) {
            said.push_back(fmt::format("parameters are gathered as {} and gradients reduced as {}",
                                       name_of(*request.parameter_dtype),
                                       name_of(request.reduce_dtype.value_or(DType::float32))));
        }
    }
    if (typed.dtype) {
        said.push_back(fmt::format("gradients are {}", name_of(*typed.dtype)));
    }
    if (typed.views == true) {
        said.emplace_back("gradients are views of their buckets");
    }
    if (typed.find_unused_parameters == true && typed.static_graph != true) {
        said.emplace_back("unused parameters are looked for in every step");
    }
    if (typed.recompute) {
        said.push_back("backward computes blocks again: recompute " +
                       recompute_text(typed.recompute));
    }
    if (typed.compiles_blocks) {
        said.emplace_back("blocks are compiled");
    }
    if (typed.arithmetic) {
        said.push_back(fmt::format("products of linear layers are {}", name_of(*typed.arithmetic)));
    }
    if (typed.accumulation.value_or(1) > 1) {
        said.push_back(fmt::format("{} micro-steps a step", *typed.accumulation));
    }
    return said;
}

int check_settings(const SettingsOptions& options) {
    const std::vector<std::string>& files = options.files;
    const std::string& file = files.front();
    TypedSettings typed = read_typed_settings(source_of(file), file, value_of(options));
    std::string text = fmt::format("{}: {}\n", file, heading_of(typed));
    Json json{{"place", place_of(typed)},
              {"value", typed.value ? Json(*typed.value) : Json(nullptr)}};
    if (files.size() > 1) {
        compare(options.scenario, files.back(), typed, text, json);
    }
    std::vector<std::string> notes = said_of(typed);
    std::ranges::copy(typed.notes, std::back_inserter(notes));
    if (files.size() == 1 && !typed.not_simulated.empty() && !typed.runs.empty()) {
        text += fmt::format("  No step to predict: {}.\n", typed.not_simulated);
    }
    json.update({{"notes", notes},
                 {"suspicious", typed.suspicious},
                 {"left_out", typed.left_out},
                 {"not_simulated", typed.not_simulated}});
    if (typed.sharding) {
        json["sharding"] = sharding_json(*typed.sharding);
    }
    add_unless_empty(json, "runs", typed.runs);
    add_optional(json, "accumulation", typed.accumulation);
    text += lines_of("Read", notes) + lines_of("Left out", typed.left_out) +
            lines_of("Suspicious", typed.suspicious);
    if (typed.suspicious.empty() && typed.not_simulated.empty()) {
        text += typed.left_out.empty() ? "  Nothing in it is suspicious.\n"
                                       : "  Nothing suspicious in what was read.\n";
    }
    write_outputs(options.json ? std::vector<OutputText>{{*options.json, json_text(json)}}
                               : std::vector<OutputText>{},
                  text);
    return exit_done;
}

}  // namespace

CommandHelp settings_check_help() {
    const auto o = std::make_shared<SettingsOptions>();
    return {
        .usage = {"bucketwise settings check FILE [SCENARIO] [OPTIONS]"},
        .options = options_of(
            simulated_rows(o->scenario),
            {{"value", "the bucket size, in the framework's unit, where the file leaves it open",
              o->value},
             {"json", "write the result as JSON; - is standard output", o->json}}),
        .text = settings_check_text,
        .positional = {"operand", 2, o->files},
        .required = {"operand"},
        .wants = "a file with settings, got none",
        .run = [o](const CommandLine&) { return check_settings(*o); }};
}

}  // namespace bucketwise
