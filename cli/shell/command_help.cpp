#include "cli/shell/command_help.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "sim/link/link_presets.h"

namespace bucketwise {
Completions links() {
    Completions completions;
    for (const LinkPreset& preset : link_presets()) {
        completions.names.emplace_back(preset.name);
    }
    return completions;
}

std::string help_text(const CommandHelp& help) {
    std::ostringstream text;
    text << "usage: " << fmt::format("{}", fmt::join(help.usage, "\n       ")) << "\n\n"
         << help.options << help.text;
    return text.str();
}

int print_help(const CommandHelp& help) {
    write_output("-", help_text(help));
    return exit_done;
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
    return text + std::string(group.text);
}

int run_group(const CommandGroup& group, const std::vector<std::string>& arguments) {
    const std::string name =
        group.name.empty() ? "bucketwise" : "bucketwise " + std::string(group.name);
    const std::string prefix = group.name.empty() ? "" : std::string(group.name) + ": ";
    if (arguments.empty()) {
        throw UsageError{
            fmt::format("{}expected {}, got nothing; see {} --help", prefix, group.wants, name)};
    }
    const std::string& word = arguments.front();
    if (word == "--help" || word == "-h" || word == "help") {
        write_output("-", help_text(group));
        return exit_done;
    }
    for (const CommandEntry& command : group.commands) {
        if (command.name == word) {
            return command.run({arguments.begin() + 1, arguments.end()});
        }
    }
    throw UsageError{
        fmt::format("{}expected {}, got \"{}\"; see {} --help", prefix, group.wants, word, name)};
}

}  // namespace bucketwise
