// The Python scripts that ship beside the program: pictures of a validation, and pickles.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bucketwise {

// Why a script did not end well, and its output.
struct ScriptRun {
    std::optional<std::string> failure = {};
    std::string output = {};
};

// Runs a shipped script with the first Python that runs it to its end: the one this program is
// installed in, python3, then the system's. A file in memory with `input`, if there is any, is its
// last argument. Throws std::runtime_error when the user interrupts it; Python has ended then, too.
ScriptRun run_script(const std::string& script, std::vector<std::string> arguments,
                     std::string_view input = {});

// Draws all pictures of a validation into `folder`, which holds comparison.json and fit.json, in
// place of the pictures there. Returns why there are none; then the pictures there stay.
std::optional<std::string> draw_plots(const std::string& folder);

}  // namespace bucketwise
