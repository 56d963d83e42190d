// What makes a shell complete the program's arguments. Made of the commands' own descriptions, so
// that no option is missing; names of presets and models are those of this version.
#pragma once

#include <string>
#include <vector>

#include "cli/completion/described_commands.h"
#include "cli/shell/command_help.h"

namespace bucketwise {

// `all`: the program's commands, as --help lists them; `commands`: the same described one by one.
std::string bash_completion(const CommandGroup& all, const std::vector<DescribedCommand>& commands);
std::string zsh_completion(const CommandGroup& all, const std::vector<DescribedCommand>& commands);
std::string fish_completion(const CommandGroup& all, const std::vector<DescribedCommand>& commands);

}  // namespace bucketwise
