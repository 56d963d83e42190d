// How near two names are: what a user may have meant by a name that is none.
#pragma once

#include <cstddef>
#include <string_view>

namespace bucketwise {

// Levenshtein's: the fewest characters that must be inserted, removed or replaced.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace bucketwise
