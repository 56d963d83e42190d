// What makes a shell complete the program's arguments. Made of the commands' own descriptions, so
// that no option is missing; names of presets and models are those of this version.
#pragma once

#include <string>
#include <vector>

#include "cli/command_help.h"

namespace bucketwise {

std::string bash_completion(const std::vector<DescribedCommand>& commands);
std::string zsh_completion(const std::vector<DescribedCommand>& commands);
std::string fish_completion(const std::vector<DescribedCommand>& commands);

}  // namespace bucketwise
