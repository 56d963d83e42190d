// The pictures of a validation, drawn by plots/plot.py.
#pragma once

#include <optional>
#include <string>

namespace bucketwise {

// Draws all pictures into `folder`, which holds comparison.json and fit.json, or leaves the old
// ones. Returns the reason where there are none. Throws std::runtime_error when the user interrupts
// it; Python has then ended.
std::optional<std::string> draw_plots(const std::string& folder);

}  // namespace bucketwise
