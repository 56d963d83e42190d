// Files that come along with the program: scenarios, links, plots.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace bucketwise {

// Where "plots/plot.py" is: in a folder beside this program, where it was carried to another
// machine; where it was installed; or in the source tree that it was built from. None: nowhere.
std::optional<std::string> shipped_file(const std::string& name);

// `path`, or, where there is no such file here, what ships under that name:
// "scenarios/two_buckets.json" is the same in every folder, unless that folder has one of its own.
std::string here_or_shipped(const std::string& path);

// The names of the files that ship in a folder, sorted.
std::vector<std::string> shipped_names(const std::string& folder);

// What a file that is not there may have been meant to be: one in the same folder whose name is
// near, a model, or a scenario that ships. Empty: nothing.
std::string nearest_file(const std::string& path);

}  // namespace bucketwise
