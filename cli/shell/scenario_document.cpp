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

namespace po = boost::program_options;

namespace {

// Its reader knows better.
constexpr std::int64_t most_batch = std::int64_t{1} << 40;
constexpr WholeNumbers ranks_read{1, 1'000'000};

// What /cluster/link is where an option names the link: a preset's name or a file's; or, of a pipe,
// which can be read once, and of a file whose name no document can have, what it holds. What is
// wrong with a file is said of the option's own.
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

// "gpt2xl" of "GPT2-XL" and "gpt2_xl".
std::string without_joints(std::string_view name) {
    std::string text;
    for (const char c : name) {
        if (c != '-' && c != '_') {
            text += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
        }
    }
    return text;
}

// The model that ships and is meant, however its name is joined, where no file of that name is
// here; else none.
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

Json model_document(const po::variables_map& values, const std::string& model) {
    const Json usual = usual_scenario(model, {.ranks = optional_number(values, "ranks", ranks_read),
                                              .device = text_or_empty(values, "device"),
                                              .link = text_or_empty(values, "link"),
                                              .dtype = text_or_empty(values, "dtype")});
    Json document = usual;
    change_document(values, model, document);
    std::set<std::string> said;
    for (const auto& [option, value] : values) {
        said.insert(option);
    }
    complete_usual(usual, said, read_text_file, document);
    return document;
}

}  // namespace

void add_scenario_options(po::options_description& options) {
    add_options(
        options,
        {{"link", "link file, or preset (bucketwise link list), to use instead of the scenario's"},
         {"strategy", "strategy to use instead of the scenario's, such as ddp, overlap or naive"}});
    add_set_option(options);
}

void add_set_option(po::options_description& options) {
    add_options(options,
                {{"set", "change a value of the scenario, /json/pointer=value; may be repeated",
                  many_values}});
}

void add_workload_options(po::options_description& options) {
    add_options(options, {{"device", "device preset to use instead of the scenario's"},
                          {"batch", "images or sequences per rank, instead of the scenario's"},
                          {"dtype", "of parameters and gradients, instead of the scenario's"}});
}

Json read_scenario_document(const po::variables_map& values, const std::string& file) {
    if (const std::optional<std::string> model = named_model(file)) {
        return model_document(values, *model);
    }
    Json document = reading({file}, FileKind::scenario, [&] {
        const std::string text = read_text_file(file);
        refuse_other_kind(kind_of_text(text, file), file, FileKind::scenario);
        return parse_json(text, file);
    });
    change_document(values, file, document);
    return document;
}

Json read_simulated_document(const po::variables_map& values, const std::string& file) {
    Json document = read_scenario_document(values, file);
    if (const auto ranks = optional_number(values, "ranks", ranks_read)) {
        set_at(document, "/cluster/ranks", *ranks, "--ranks");
        Json& cluster = document["cluster"];
        const auto per_node = cluster.find("ranks_per_node");
        if (per_node != cluster.end() && per_node->is_number_integer()) {
            *per_node = std::min(per_node->get<std::int64_t>(), *ranks);
        }
    }
    return document;
}

void change_document(const po::variables_map& values, const std::string& file, Json& document) {
    if (values.count("link") != 0) {
        const std::string& link = text_value(values, "link");
        set_at(document, "/cluster/link", link_to_set(link), "--link");
    }
    if (values.count("strategy") != 0) {
        set_at(document, "/sync/strategy", text_value(values, "strategy"), "--strategy");
    }
    for (const char* key : {"device", "dtype"}) {
        if (values.count(key) != 0) {
            set_at(document, std::string("/workload/") + key, text_value(values, key),
                   std::string("--") + key);
        }
    }
    if (const auto batch = optional_number(values, "batch", {1, most_batch})) {
        set_at(document, "/workload/batch", *batch, "--batch");
    }
    for (const std::string& assignment : texts_value(values, "set")) {
        if (assignment.rfind("/cluster/link/", 0) == 0) {
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

void change_nccl_version(const po::variables_map& values, LinkParameters& link) {
    if (values.count("nccl-version") == 0) {
        return;
    }
    const auto version = choice_value(values, "nccl-version", every<NcclVersion>);
    if (link.algorithm != Algorithm::nccl) {
        throw InputError("--nccl-version", "", "a link whose algorithm is nccl",
                         std::string(name_of(link.algorithm)));
    }
    link.topology->nccl->version = version;
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

std::string scenario_file(const po::variables_map& values, const std::string& command) {
    if (values.count("scenario") == 0) {
        throw UsageError{fmt::format(
            "{0}: expected a scenario file or a model's name, got none; see bucketwise {0} --help",
            command)};
    }
    return text_value(values, "scenario");
}

void refuse_scenario(const po::variables_map& values, const std::string& command) {
    if (values.count("scenario") != 0) {
        throw UsageError{
            fmt::format("{0}: expected options, got \"{1}\"; see bucketwise {0} --help", command,
                        text_value(values, "scenario"))};
    }
}

}  // namespace bucketwise
