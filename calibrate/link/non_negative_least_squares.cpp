#include "calibrate/link/non_negative_least_squares.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <Eigen/QR>

namespace bucketwise {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

// Least squares over the columns in `free` alone; the others are zero.
VectorXd solve_free(const MatrixXd& a, const VectorXd& b, const std::vector<Index>& free) {
    MatrixXd columns(a.rows(), static_cast<Index>(free.size()));
    for (std::size_t i = 0; i < free.size(); ++i) {
        columns.col(static_cast<Index>(i)) = a.col(free[i]);
    }
    const VectorXd solved = columns.completeOrthogonalDecomposition().solve(b);
    VectorXd x = VectorXd::Zero(a.cols());
    for (std::size_t i = 0; i < free.size(); ++i) {
        x[free[i]] = solved[static_cast<Index>(i)];
    }
    return x;
}

// From `x` towards `target`, up to where the first of `free` becomes zero; those that do leave it.
VectorXd step_within_bounds(const VectorXd& x, const VectorXd& target, std::vector<Index>& free) {
    double share = 1;
    for (const Index i : free) {
        if (target[i] <= 0) {
            share = std::min(share, x[i] / (x[i] - target[i]));
        }
    }
    VectorXd moved = x + share * (target - x);
    constexpr double rounding = 1e-14;
    free.erase(std::remove_if(free.begin(), free.end(),
                              [&](Index i) {
                                  const bool at_bound = target[i] <= 0 && moved[i] <= rounding;
                                  moved[i] = at_bound ? 0 : moved[i];
                                  return at_bound;
                              }),
               free.end());
    return moved;
}

VectorXd active_set(const MatrixXd& a, const VectorXd& b) {
    VectorXd x = VectorXd::Zero(a.cols());
    std::vector<Index> free;
    const double tolerance = 1e-12 * std::max(b.norm(), std::numeric_limits<double>::min());
    const Index most_rounds = 3 * a.cols() + 10;
    for (Index round = 0; round < most_rounds; ++round) {
        const VectorXd gradient = a.transpose() * (b - a * x);
        Index steepest = -1;
        for (Index i = 0; i < a.cols(); ++i) {
            const bool is_free = std::find(free.begin(), free.end(), i) != free.end();
            if (!is_free && gradient[i] > tolerance &&
                (steepest < 0 || gradient[i] > gradient[steepest])) {
                steepest = i;
            }
        }
        if (steepest < 0) {
            break;
        }
        free.push_back(steepest);
        VectorXd target = solve_free(a, b, free);
        while (!free.empty() &&
               std::any_of(free.begin(), free.end(), [&](Index i) { return target[i] <= 0; })) {
            const std::size_t before = free.size();
            x = step_within_bounds(x, target, free);
            if (free.size() == before) {
                return x;  // rounding alone is left
            }
            target = solve_free(a, b, free);
        }
        x = target;
    }
    return x;
}

}  // namespace

NonNegativeSolution solve_non_negative(const MatrixXd& a, const VectorXd& b) {
    // Columns of one length, as seconds and seconds per byte are far apart.
    VectorXd scale = a.colwise().norm();
    for (Index i = 0; i < scale.size(); ++i) {
        scale[i] = scale[i] > 0 ? scale[i] : 1.0;
    }
    const MatrixXd scaled = a * scale.cwiseInverse().asDiagonal();
    NonNegativeSolution solution;
    solution.x = active_set(scaled, b).cwiseMax(0.0);
    solution.residual_sum = (scaled * solution.x - b).squaredNorm();
    const MatrixXd inverse =
        (scaled.transpose() * scaled).completeOrthogonalDecomposition().pseudoInverse();
    const auto back = scale.cwiseInverse().asDiagonal();
    solution.covariance = back * inverse * back;
    solution.x = back * solution.x;
    return solution;
}

}  // namespace bucketwise
