#include "calibrate/link/segmentation.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace bucketwise {
namespace {

// The best segmentation into exactly `count` segments.
Segmentation best_segmentation(const SegmentCosts& costs, std::size_t count,
                               std::size_t fewest_sizes) {
    const std::size_t sizes = costs.size();
    constexpr double impossible = std::numeric_limits<double>::infinity();
    // best[k][n]: the first n sizes in k segments; from[k][n]: where the last of them begins.
    std::vector best(count + 1, std::vector<double>(sizes + 1, impossible));
    std::vector from(count + 1, std::vector<std::size_t>(sizes + 1, 0));
    best[0][0] = 0;
    for (std::size_t k = 1; k <= count; ++k) {
        for (std::size_t n = fewest_sizes; n <= sizes; ++n) {
            for (std::size_t begin = 0; begin + fewest_sizes <= n; ++begin) {
                const double cost = best[k - 1][begin] + costs[begin][n - 1];
                if (cost < best[k][n]) {
                    best[k][n] = cost;
                    from[k][n] = begin;
                }
            }
        }
    }
    Segmentation ends;
    std::size_t n = sizes;
    for (std::size_t k = count; k > 0; --k) {
        ends.push_back(n);
        n = from[k][n];
    }
    std::reverse(ends.begin(), ends.end());
    return ends;
}

// Errors are known up to a factor of at least 1, so a fit that is already as good as the errors
// gains nothing by more segments.
double information_criterion(double chi_squared, std::size_t points, std::size_t segments) {
    const auto n = static_cast<double>(points);
    const auto parameters = static_cast<double>(3 * segments - 1);
    return n * std::log(std::max(chi_squared / n, 1.0)) + parameters * std::log(n);
}

}  // namespace

Segmentation choose_segmentation(const SegmentCosts& costs, std::size_t points) {
    constexpr std::size_t most_segments = 6;
    constexpr std::size_t fewest_sizes_per_segment = 3;
    const std::size_t sizes = costs.size();
    const std::size_t fewest_sizes = std::min(fewest_sizes_per_segment, sizes);
    const std::size_t most = std::clamp<std::size_t>(sizes / fewest_sizes, 1, most_segments);
    Segmentation chosen;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t count = 1; count <= most; ++count) {
        const Segmentation ends = best_segmentation(costs, count, fewest_sizes);
        double chi_squared = 0;
        std::size_t begin = 0;
        for (const std::size_t end : ends) {
            chi_squared += costs[begin][end - 1];
            begin = end;
        }
        const double criterion = information_criterion(chi_squared, points, count);
        if (criterion < least) {
            least = criterion;
            chosen = ends;
        }
    }
    return chosen;
}

}  // namespace bucketwise
