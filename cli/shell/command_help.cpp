#include "cli/shell/command_help.h"

#include <algorithm>
#include <memory>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "sim/base/transformed.h"
#include "sim/link/link_presets.h"
#include "sim/text/edit_distance.h"
#include "sim/workload/device.h"
#include "sim/workload/models/models.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

// "; did you mean --help?" after an unknown option; else where options are listed.
std::string instead_of(const std::string& typed, const po::options_description& options,
                       const std::string& words) {
    std::vector<std::string_view> known;
    for (const auto& described : options.options()) {
        known.emplace_back(described->long_name());
    }
    const std::string_view nearest = nearest_name(trimmed(typed, "-"), known);
    return nearest.empty() ? fmt::format("; see bucketwise {} --help", words)
                           : fmt::format("; did you mean --{}?", nearest);
}

// The command's options, and the one that stands for its arguments.
po::options_description all_options(const CommandHelp& help) {
    const PositionalArgument& argument = help.positional;
    OptionText row{argument.option, "", argument.value};
    row.value.takes = argument.most == 0 || argument.most == 1 ? OptionValue::Takes::one
                                                               : OptionValue::Takes::many;
    po::options_description all;
    all.add(help.options);
    add_options(all, {row});
    return all;
}

// `words`: "bench allreduce".
po::variables_map parse(const std::vector<std::string>& arguments,
                        const po::options_description& all, const CommandHelp& help,
                        const std::string& words) {
    po::positional_options_description positional;
    positional.add(help.positional.option, help.positional.most == 0 ? 1 : help.positional.most);
    const int style =
        po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::variables_map values;
    try {
        po::store(po::command_line_parser(arguments)
                      .options(all)
                      .positional(positional)
                      .style(style)
                      .run(),
                  values);
    } catch (const po::unknown_option& error) {
        throw UsageError{error.what() + instead_of(error.get_option_name(), help.options, words)};
    }
    return values;
}

int run_command(const CommandEntry& command, const std::string& words,
                const std::vector<std::string>& arguments) {
    const CommandHelp help = command.help();
    const po::options_description all = all_options(help);
    const CommandLine line{arguments, parse(arguments, all, help, words)};
    if (line.values.count("help") != 0) {
        write_output("-", help_text(help));
        return exit_done;
    }
    const PositionalArgument& argument = help.positional;
    if (argument.most == 0 && line.values.count(argument.option) != 0) {
        throw UsageError{
            fmt::format("{0}: expected options, got \"{1}\"; see bucketwise {0} --help", words,
                        line.values[argument.option].as<std::string>())};
    }
    for (const char* option : help.required) {
        if (line.values.count(option) == 0) {
            throw UsageError{
                fmt::format("{0}: expected {1}; see bucketwise {0} --help", words, help.wants)};
        }
    }
    fill_fields(all, line.values);
    return help.run(line);
}

std::vector<std::string_view> names_in(const CommandGroup& group) {
    return transformed(group.commands, &CommandEntry::name);
}

// The command nearest to `word` in the group or in a group within it ("import kineto"); empty: no
// command is near.
std::string meant_by(const std::string& word, const CommandGroup& group) {
    if (const std::string_view nearest = nearest_name(word, names_in(group)); !nearest.empty()) {
        return std::string(nearest);
    }
    for (const CommandEntry& command : group.commands) {
        if (command.group != nullptr) {
            const std::string_view nearest = nearest_name(word, names_in(*command.group));
            if (!nearest.empty()) {
                return fmt::format("{} {}", command.name, nearest);
            }
        }
    }
    return "";
}

// Throws UsageError. `got`: a word, or none.
[[noreturn]] void refuse_word(const CommandGroup& group, const std::string* got) {
    const std::string before = group.name.empty() ? "" : std::string(group.name) + " ";
    const std::string meant = got == nullptr ? "" : meant_by(*got, group);
    throw UsageError{fmt::format("{}expected {}, got {}; {}",
                                 group.name.empty() ? "" : std::string(group.name) + ": ",
                                 group.wants, got == nullptr ? "nothing" : "\"" + *got + "\"",
                                 meant.empty() ? fmt::format("see bucketwise {}--help", before)
                                               : fmt::format("did you mean {}{}?", before, meant))};
}

}  // namespace

Completions links() {
    return {.names = transformed(
                link_presets(), [](const LinkPreset& preset) { return std::string(preset.name); })};
}

Completions scenarios() {
    return {.names = {model_names().begin(), model_names().end()}};
}

Completions devices() {
    const std::vector<std::string_view>& names = device_preset_names();
    return {.names = {names.begin(), names.end()}, .files = false};
}

OptionText format_row(TableFormat& format) {
    return {"format", "text, csv or json", {format, Choice{every<TableFormat>}, "text"}};
}

CommandHelp list_help(const std::string& words, std::string_view text,
                      const std::function<ResultTable()>& table) {
    const auto format = std::make_shared<TableFormat>();
    return {.usage = {words + " [--format text|csv|json]"},
            .options = options_of({format_row(*format)}),
            .text = text,
            .arguments = {.files = false},
            .positional = {.most = 0},
            .run = [format, table](const CommandLine&) {
                write_output("-", render(table(), *format, Json::object()));
                return exit_done;
            }};
}

std::string help_text(const CommandHelp& help) {
    std::ostringstream text;
    text << "usage: " << fmt::format("{}", fmt::join(help.usage, "\n       ")) << "\n\n"
         << help.options << help.text;
    return text.str();
}

std::string help_text(const CommandGroup& group) {
    std::string text = fmt::format("usage: bucketwise {}\n\n{}\n\n{}:\n", group.usage,
                                   group.explanation, group.name.empty() ? "commands" : "what");
    std::size_t width = 0;
    for (const CommandEntry& command : group.commands) {
        width = std::max(width, command.name.size());
    }
    for (const CommandEntry& command : group.commands) {
        text += fmt::format("  {:<{}}  {}\n", command.name, width, command.summary);
    }
    const std::string line = fmt::format("bucketwise {}{} --help",
                                         group.name.empty() ? "" : std::string(group.name) + " ",
                                         group.name.empty() ? "COMMAND" : "WHAT");
    return text + fmt::format("\n  {}   its options and examples\n{}", line, group.text);
}

int run_group(const CommandGroup& group, const std::vector<std::string>& arguments) {
    const std::string before = group.name.empty() ? "" : std::string(group.name) + " ";
    if (arguments.empty()) {
        refuse_word(group, nullptr);
    }
    const std::string& word = arguments.front();
    if (word == "--help" || word == "-h" || word == "help") {
        write_output("-", help_text(group));
        return exit_done;
    }
    const auto command = std::ranges::find(group.commands, word, &CommandEntry::name);
    if (command == group.commands.end()) {
        refuse_word(group, &word);
    }
    const std::vector<std::string> others(arguments.begin() + 1, arguments.end());
    return command->group != nullptr ? run_group(*command->group, others)
                                     : run_command(*command, before + word, others);
}

}  // namespace bucketwise
