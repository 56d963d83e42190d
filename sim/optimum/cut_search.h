// Search over the cuts of a line, for plans of buckets and for groups of blocks.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "sim/base/units.h"
#include "sim/plan/gradient_line.h"

namespace bucketwise {

struct CutSearch {
    std::size_t size = 0;  // of the line
    // The longest piece that begins at a place ends there.
    std::function<std::size_t(std::size_t begin)> longest_end;
    // Empty for cuts that are no choice, and once the search has taken too long.
    std::function<std::optional<Duration>(const Cuts&)> step_of;

    [[nodiscard]] bool allows(const Cuts& cuts) const;

    // Everything. Precondition: 0 < size < 32.
    void try_all() const;

    // Hill climbing: keeps each change that makes the step shorter, or as short with fewer pieces,
    // until none does. A change removes a cut, adds one, or moves one by 1, 2, 4, ...
    void climb(Cuts cuts) const;
};

// MG-WFBP's greedy merge: Shi, Chu, Li 2019, "MG-WFBP: Efficient data communication for distributed
// synchronous SGD algorithms", Algorithm 1.
//
// A gradient merges into the next one if that is ready before the first one's all-reduce could
// finish its start-up time; each merge moves the starts of later all-reduces. `ready` gives the
// earliest launch of a bucket that ends at a cut, `cost` the all-reduce time between two cuts.
//
// The paper's all-reduce of n bytes takes a + b n, and a merge saves a. Other costs have no single
// a; cost(x) + cost(y) - cost(x + y), the saving of this merge, replaces it.
Cuts greedy_merge(const GradientLine& line, const std::function<Duration(std::size_t cut)>& ready,
                  const std::function<Duration(std::size_t begin, std::size_t end)>& cost);

}  // namespace bucketwise
