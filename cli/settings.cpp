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
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/scenario_document.h"
#include "import/settings/settings_file.h"
#include "sim/base/json_output.h"
#include "sim/base/transformed.h"
#include "sim/frameworks/framework_advice.h"
#include "sim/report/misfit.h"
#include "sim/report/number_text.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {
namespace {

constexpr std::string_view settings_check_text = R"(
examples:
  bucketwise settings check ds_config.json
  bucketwise settings check ds_config.json scenarios/gpt2_xl_32xh100.json
  bucketwise settings check train.py scenarios/resnet50_8xh100.json --json -

FILE is a DeepSpeed JSON, TrainingArguments of transformers as JSON, a file with Megatron-LM's arguments, or a script
that calls DistributedDataParallel or a wrapper of it with a bucket size. Prints the buckets of the scenario's model,
their cost over the best, and suspicious settings in the file.
)";

struct SettingsOptions {
    std::vector<std::string> files;
    std::optional<std::string> json;
    ScenarioOptions scenario;
};

// The step that the file asks for.
struct Question {
    Scenario scenario;
    SyncRequest request;
    std::optional<Bytes> limit;
};

Question question_of(const ScenarioOptions& options, const std::string& file,
                     const TypedSettings& typed) {
    Question question;
    question.scenario =
        parse_scenario(read_simulated_document(options, file), file, read_text_file);
    if (typed.accumulation) {
        question.scenario.step.accumulation = *typed.accumulation;
    }
    SyncRequest& request = question.request = question.scenario.sync;
    request.views = typed.views.value_or(request.views);
    request.find_unused_parameters =
        typed.find_unused_parameters.value_or(request.find_unused_parameters);
    request.compiled = typed.compiled.value_or(request.compiled);
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

int check_settings(const SettingsOptions& options) {
    const std::vector<std::string>& files = options.files;
    const std::string& file = files.front();
    const TypedSettings typed = read_typed_settings(read_text_file(file), file);
    const SettingPlace place = typed.place;
    std::string text = fmt::format("{}: {}, {}\n", file, name_of(place), what_is_set(typed));
    Json json{{"place", name_of(place)},
              {"value", typed.value ? Json(*typed.value) : Json(nullptr)},
              {"suspicious", typed.suspicious}};
    if (files.size() > 1) {
        const Question question = question_of(options.scenario, files.back(), typed);
        if (is_refused(question, typed)) {
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
    text += typed.suspicious.empty() ? "  Nothing in it is suspicious.\n" : "  Suspicious:\n";
    for (const std::string& one : typed.suspicious) {
        std::string lines = wrapped("- " + one + ".", 104);
        for (std::size_t at = 0; (at = lines.find('\n', at)) != std::string::npos; ++at) {
            lines.replace(at, 1, "\n      ");
        }
        text += "    " + lines + "\n";
    }
    write_outputs(options.json ? std::vector<OutputText>{{*options.json, json_text(json)}}
                               : std::vector<OutputText>{},
                  text);
    return exit_done;
}

}  // namespace

CommandHelp settings_check_help() {
    const auto o = std::make_shared<SettingsOptions>();
    return {.usage = {"bucketwise settings check FILE [SCENARIO] [OPTIONS]"},
            .options =
                options_of(simulated_rows(o->scenario),
                           {{"json", "write the result as JSON; - is standard output", o->json}}),
            .text = settings_check_text,
            .positional = {"operand", 2, o->files},
            .required = {"operand"},
            .wants = "a file with settings, got none",
            .run = [o](const CommandLine&) { return check_settings(*o); }};
}

}  // namespace bucketwise
