#include "cli/shell/scenario_document.h"

#include <filesystem>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/overrides.h"
#include "cli/shell/shipped_files.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/link/link_presets.h"
#include "sim/scenario/document_edit.h"

namespace bucketwise {

namespace po = boost::program_options;

void add_scenario_options(po::options_description& options) {
    add_options(
        options,
        {{"link", "link file, or preset (bucketwise link list), to use instead of the scenario's"},
         {"strategy", "strategy to use instead of the scenario's"}});
    add_set_option(options);
}

void add_set_option(po::options_description& options) {
    options.add_options()("set", po::value<std::vector<std::string>>(),
                          "change a value of the scenario, /json/pointer=value; may be repeated");
}

Json read_scenario_document(const po::variables_map& values, const std::string& file) {
    Json document = parse_json(read_text_file(file), file);
    change_document(values, file, document);
    return document;
}

void change_document(const po::variables_map& values, const std::string& file, Json& document) {
    if (values.count("link") != 0) {
        const std::string& link = text_value(values, "link");
        const bool preset = looks_like_preset(link) && find_preset(link) != nullptr;
        static_cast<void>(read_link_text(link));  // so that the message names the option's own file
        set_at(document, "/cluster/link",
               preset ? link : std::filesystem::absolute(here_or_shipped(link)).string(), "--link");
    }
    if (values.count("strategy") != 0) {
        set_at(document, "/sync/strategy", text_value(values, "strategy"), "--strategy");
    }
    if (values.count("set") != 0) {
        for (const std::string& assignment : values["set"].as<std::vector<std::string>>()) {
            if (assignment.rfind("/cluster/link/", 0) == 0) {
                inline_link(document, file, read_text_file);
            }
            apply_override(document, assignment);
        }
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

po::variables_map parse_with_positional(const std::vector<std::string>& arguments,
                                        const po::options_description& options,
                                        const PositionalArgument& positional) {
    po::positional_options_description description;
    description.add(positional.option, positional.most);
    po::variables_map values;
    const int style =
        po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(arguments)
                  .options(options)
                  .positional(description)
                  .style(style)
                  .run(),
              values);
    po::notify(values);
    return values;
}

po::variables_map parse_arguments(const std::vector<std::string>& arguments,
                                  const po::options_description& options) {
    po::options_description all;
    all.add(options).add_options()("scenario", po::value<std::string>());
    return parse_with_positional(arguments, all, {.option = "scenario"});
}

std::optional<po::variables_map> parse_or_help(const std::vector<std::string>& arguments,
                                               const CommandHelp& help) {
    po::variables_map values = parse_arguments(arguments, help.options);
    if (values.count("help") != 0) {
        print_help(help);
        return std::nullopt;
    }
    return values;
}

std::string scenario_file(const po::variables_map& values, const std::string& command) {
    if (values.count("scenario") == 0) {
        throw UsageError{fmt::format(
            "{0}: expected a scenario file, got none; see bucketwise {0} --help", command)};
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
