// The pictures of a validation, drawn by plots/plot.py.
#pragma once

#include <optional>
#include <string>

namespace bucketwise {

// Draws into `folder`, which holds comparison.json and fit.json. Returns why there are no pictures,
// nothing when there are.
std::optional<std::string> draw_plots(const std::string& folder);

}  // namespace bucketwise
