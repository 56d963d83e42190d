// Reading link descriptions, inline or from link files.
#pragma once

#include <string>

#include "sim/base/json_input.h"
#include "sim/link/link.h"

namespace bucketwise {

// The path that `naming_file` means by `path`: relative to its own folder. A pipe (/dev/stdin) has
// no folder and means the current one.
std::string path_beside(const std::string& naming_file, const std::string& path);

// An inline link, or a string: a preset's name (sim/link/link_presets.h), or the path of a link
// file relative to the folder of the file that names it. The tiers of a hierarchical link may be
// files again; one that leads back to itself is refused.
LinkParameters read_link(const JsonPlace& place, const FileReader& read_file);

// Replaces the link files that `document`, the scenario file `file`, names by their contents, so
// that changes can reach into them. Tiers too. Throws InputError.
void inline_link(Json& document, const std::string& file, const FileReader& read_file);

}  // namespace bucketwise
