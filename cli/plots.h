// The pictures of a validation, drawn by plots/plot.py.
#pragma once

#include <optional>
#include <string>

namespace bucketwise {

// Draws into `folder`, which holds comparison.json and fit.json: all pictures, in the place of
// those that were there, or none, and what was there stays. Returns why there are none, nothing
// when there are. Throws std::runtime_error when the user interrupts it; Python has ended then,
// too.
std::optional<std::string> draw_plots(const std::string& folder);

}  // namespace bucketwise
