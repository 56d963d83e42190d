// The segments of message sizes that explain a link's times best.
#pragma once

#include <cstddef>
#include <vector>

namespace bucketwise {

// The ends of segments among the distinct sizes, rising: each segment begins at the end of the one
// before.
using Segmentation = std::vector<std::size_t>;

// [first][last]: chi squared of one segment for the sizes from first to last.
using SegmentCosts = std::vector<std::vector<double>>;

// By dynamic programming the best into 1 to 6 segments, at least three sizes each, and among these
// the least Bayesian information criterion over `points` points.
Segmentation choose_segmentation(const SegmentCosts& costs, std::size_t points);

}  // namespace bucketwise
