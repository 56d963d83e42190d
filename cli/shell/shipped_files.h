// Files that ship with the program: scenarios, links, plots.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace bucketwise {

// The path of "plots/plot.py": beside this program, carried to another machine; where it was
// installed; or in the source tree. Empty: nowhere.
std::optional<std::string> shipped_file(const std::string& name);

// `path`, or, where there is no such file here, the shipped file of that name:
// "scenarios/two_buckets.json" works in every folder, unless that folder has its own.
std::string here_or_shipped(const std::string& path);

// The names of the files that ship in a folder, sorted.
std::vector<std::string> shipped_names(const std::string& folder);

// The file probably meant by a missing one: one of a similar name in the same folder, a model, or a
// scenario that ships. Empty: nothing.
std::string nearest_file(const std::string& path);

}  // namespace bucketwise
