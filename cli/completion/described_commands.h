// Commands and their options one by one, for those who walk them all: shells' completions, the man
// page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/shell/command_help.h"

namespace bucketwise {

struct DescribedOption {
    std::string name;
    std::string letter;  // "o", or empty
    bool takes_value = false;
    std::string standard;  // what it is where it is left out, or empty
    std::string description;
    Completions values = {};
};

std::vector<DescribedOption> described_options_of(const CommandHelp& help);

struct DescribedCommand {
    std::string group;  // "bench", or empty
    std::string name;
    std::string_view summary;
    CommandHelp help;

    // "bench allreduce"
    [[nodiscard]] std::string words() const { return group.empty() ? name : group + " " + name; }
};

// Every command of the group, those of groups within it too, as --help lists them.
std::vector<DescribedCommand> described_commands(const CommandGroup& all);

// The lines of a text as CommandHelp has it, in blocks: paragraphs, and lines to be typed.
struct TextBlock {
    bool is_typed = false;
    bool is_examples = false;             // typed, after "examples:"
    std::vector<std::string> lines = {};  // of typed ones without what they are indented by
};

std::vector<TextBlock> blocks_of_text(std::string_view text);

// What makes a shell complete the program's arguments: `all` as --help lists them, and the same
// described one by one. Names of presets and models are those of this version.
std::string bash_completion(const CommandGroup& all, const std::vector<DescribedCommand>& commands);
std::string zsh_completion(const CommandGroup& all, const std::vector<DescribedCommand>& commands);
std::string fish_completion(const CommandGroup& all, const std::vector<DescribedCommand>& commands);

}  // namespace bucketwise
