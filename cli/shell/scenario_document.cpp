#include "cli/shell/scenario_document.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/shell/exit_codes.h"
#include "cli/shell/file_kind.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/shipped_files.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/link/link_input.h"
#include "sim/link/link_presets.h"
#include "sim/scenario/document_edit.h"
#include "sim/scenario/usual_scenario.h"
#include "sim/text/foreign_text.h"
#include "sim/workload/models/models.h"

namespace bucketwise {

namespace {

constexpr WholeNumbers batches{1, std::int64_t{1} << 40};  // the scenario's reader knows better
constexpr WholeNumbers ranks_read{1, 1'000'000};

// The value of /cluster/link where an option names the link: the name of a preset or of a file; or
// the content, for a pipe, which can be read once, and for a file whose name is not UTF-8. Errors
// name the file as it was typed.
Json link_to_set(const std::string& link) {
    const std::string text = read_link_text(link);
    if (looks_like_preset(link) && find_preset(link) != nullptr) {
        return link;
    }
    std::error_code error;
    const std::filesystem::path file = std::filesystem::absolute(here_or_shipped(link), error);
    if (error || !is_utf8(file.string()) || !std::filesystem::is_regular_file(file, error)) {
        return parse_json(text, link);
    }
    return file.string();
}

// "gpt2xl" for "GPT2-XL" and "gpt2_xl".
std::string without_joints(std::string_view name) {
    std::string text;
    for (const char c : name) {
        if (c != '-' && c != '_') {
            text += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
        }
    }
    return text;
}

// The model of that name, however it is joined, unless there is a file of that name.
std::optional<std::string> named_model(const std::string& scenario) {
    std::error_code error;
    if (std::filesystem::exists(scenario, error) &&
        !std::filesystem::is_directory(scenario, error)) {
        return std::nullopt;
    }
    const std::vector<std::string_view>& names = model_names();
    const auto found = std::ranges::find(names, without_joints(scenario), without_joints);
    return found == names.end() ? std::nullopt : std::optional<std::string>(*found);
}

Json model_document(const ScenarioOptions& options, const std::string& model) {
    const Json usual = usual_scenario(model, {.ranks = options.ranks,
                                              .device = options.device.value_or(""),
                                              .link = options.link.value_or(""),
                                              .dtype = options.dtype.value_or("")});
    Json document = usual;
    change_document(options, model, document);
    std::set<std::string> typed;
    const auto note = [&](const char* key, const auto& option) {
        if (option) {
            typed.insert(key);
        }
    };
    note("ranks", options.ranks);
    note("device", options.device);
    note("link", options.link);
    note("dtype", options.dtype);
    note("batch", options.batch);
    note("sequence_length", options.sequence);
    complete_usual(usual, typed, read_text_file, document);
    return document;
}

}  // namespace

std::vector<OptionText> scenario_rows(ScenarioOptions& options) {
    return {
        {"link", "link file or preset (bucketwise link list) instead of the scenario's",
         options.link},
        {"strategy", "strategy instead of the scenario's, such as ddp, overlap or naive",
         options.strategy},
        {"device", "device preset instead of the scenario's", options.device},
        {"batch",
         "images or sequences per rank, instead of the scenario's",
         {options.batch, batches}},
        {"sequence",
         "tokens of a sequence, instead of the scenario's",
         {options.sequence, batches}},
        {"dtype", "dtype of parameters and gradients, instead of the scenario's", options.dtype},
        {"set", "change a value of the scenario, /json/pointer=value; may be repeated",
         options.set}};
}

std::vector<OptionText> simulated_rows(ScenarioOptions& options) {
    std::vector<OptionText> rows = scenario_rows(options);
    rows.push_back(
        {"ranks", "number of ranks, instead of the scenario's", {options.ranks, ranks_read}});
    return rows;
}

Json read_scenario_document(const ScenarioOptions& options, const std::string& file) {
    if (const std::optional<std::string> model = named_model(file)) {
        return model_document(options, *model);
    }
    Json document = reading({file}, FileKind::scenario, [&] {
        const std::string text = read_text_file(file);
        refuse_other_kind(kind_of_text(text, file), file, FileKind::scenario);
        return parse_json(text, file);
    });
    change_document(options, file, document);
    return document;
}

Json read_simulated_document(const ScenarioOptions& options, const std::string& file) {
    Json document = read_scenario_document(options, file);
    if (options.ranks) {
        set_at(document, "/cluster/ranks", *options.ranks, "--ranks");
        Json& cluster = document["cluster"];
        const auto per_node = cluster.find("ranks_per_node");
        if (per_node != cluster.end() && per_node->is_number_integer()) {
            *per_node = std::min(per_node->get<std::int64_t>(), *options.ranks);
        }
    }
    return document;
}

void change_document(const ScenarioOptions& options, const std::string& file, Json& document) {
    if (options.link) {
        set_at(document, "/cluster/link", link_to_set(*options.link), "--link");
    }
    const auto set = [&](const char* pointer, const auto& value, const char* option) {
        if (value) {
            set_at(document, pointer, *value, option);
        }
    };
    set("/sync/strategy", options.strategy, "--strategy");
    set("/workload/device", options.device, "--device");
    set("/workload/dtype", options.dtype, "--dtype");
    set("/workload/batch", options.batch, "--batch");
    set("/workload/sequence_length", options.sequence, "--sequence");
    for (const std::string& assignment : options.set) {
        if (assignment.starts_with("/cluster/link/")) {
            inline_link(document, file, read_text_file);
        }
        apply_override(document, assignment);
    }
}

void apply_override(Json& document, const std::string& assignment) {
    const std::string option = "--set";
    const std::size_t equals = assignment.find('=');
    if (equals == std::string::npos) {
        throw InputError(option, "", "/json/pointer=value", "\"" + assignment + "\"");
    }
    const std::string text = assignment.substr(equals + 1);
    Json value = Json::parse(text, nullptr, false);
    if (value.is_discarded()) {
        value = text;
        if (!is_utf8(text)) {
            throw InputError(option, assignment.substr(0, equals), "UTF-8 text", "other bytes");
        }
    }
    set_at(document, assignment.substr(0, equals), std::move(value), option);
}

OptionText nccl_version_row(std::optional<NcclVersion>& version) {
    return {"nccl-version",
            "NCCL version whose cost model a topology's link follows; default: the link's, or 2.28",
            {version, Choice{every<NcclVersion>}}};
}

void change_nccl_version(const std::optional<NcclVersion>& version, LinkParameters& link) {
    if (version && link.algorithm != Algorithm::nccl) {
        throw InputError("--nccl-version", "", "a link whose algorithm is nccl",
                         std::string(name_of(link.algorithm)));
    }
    if (version) {
        link.topology->nccl->version = *version;
    }
}

std::string read_link_text(const std::string& link) {
    if (const LinkPreset* preset = looks_like_preset(link) ? find_preset(link) : nullptr) {
        return json_text(preset_document(*preset));
    }
    try {
        return read_text_file(link);
    } catch (const InputError& error) {
        if (!looks_like_preset(link)) {
            throw;
        }
        throw InputError(link, "",
                         fmt::format("{}, or a preset such as {}; bucketwise link list names all",
                                     error.expected(), fmt::join(nearest_presets(link), ", ")),
                         error.got());
    }
}

}  // namespace bucketwise
