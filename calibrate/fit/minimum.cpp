#include "calibrate/fit/minimum.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <Eigen/QR>
#include <unsupported/Eigen/NonLinearOptimization>

#include "sim/base/invariant.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

// The interface that Eigen's LevenbergMarquardt requires of a function.
struct Functor {
    const ResidualFunction& residuals_of;
    Index unknowns = 0;
    Index residuals = 0;

    [[nodiscard]] int inputs() const { return static_cast<int>(unknowns); }
    [[nodiscard]] int values() const { return static_cast<int>(residuals); }

    int operator()(const VectorXd& x, VectorXd& result) const {
        result = residuals_of(x);
        return 0;
    }

    // Central differences over a thousandth of an unknown: wide enough to hide rounding within the
    // function.
    int df(const VectorXd& x, MatrixXd& jacobian) const {
        constexpr double share = 1e-3;
        for (Index i = 0; i < x.size(); ++i) {
            const double h = share * std::max(std::abs(x[i]), share);
            VectorXd above = x;
            VectorXd below = x;
            above[i] += h;
            below[i] -= h;
            jacobian.col(i) = (residuals_of(above) - residuals_of(below)) / (2 * h);
        }
        return 0;
    }
};

// The points of the grid that are no worse than their neighbours along each axis, best first.
std::vector<VectorXd> starts(const ResidualFunction& residuals,
                             const std::vector<std::vector<double>>& axes) {
    std::vector<VectorXd> grid{VectorXd(static_cast<Index>(axes.size()))};
    std::vector<std::size_t> strides;  // between neighbours, by axis
    for (std::size_t i = 0; i < axes.size(); ++i) {
        strides.push_back(grid.size());
        std::vector<VectorXd> wider;
        for (const double logarithm : axes[i]) {
            for (VectorXd point : grid) {
                point[static_cast<Index>(i)] = std::exp(logarithm);
                wider.push_back(std::move(point));
            }
        }
        grid = std::move(wider);
    }
    const std::vector<double> errors =
        transformed(grid, [&](const VectorXd& point) { return residuals(point).squaredNorm(); });
    std::vector<std::size_t> minima;
    for (std::size_t point = 0; point < grid.size(); ++point) {
        bool is_minimum = true;
        for (std::size_t i = 0; i < axes.size(); ++i) {
            const std::size_t digit = point / strides[i] % axes[i].size();
            is_minimum =
                is_minimum && (digit == 0 || errors[point] <= errors[point - strides[i]]) &&
                (digit + 1 == axes[i].size() || errors[point] <= errors[point + strides[i]]);
        }
        if (is_minimum) {
            minima.push_back(point);
        }
    }
    std::ranges::sort(minima, {}, [&](std::size_t point) { return errors[point]; });
    constexpr std::size_t most_starts = 8;
    minima.resize(std::min(most_starts, minima.size()));
    return transformed(minima, [&](std::size_t point) { return grid[point]; });
}

}  // namespace

Minimum find_minimum(const ResidualFunction& residuals,
                     const std::vector<std::vector<double>>& axes) {
    const std::vector<VectorXd> begin = starts(residuals, axes);
    const Functor functor{residuals, static_cast<Index>(axes.size()),
                          residuals(begin.front()).size()};
    invariant(functor.unknowns <= functor.residuals, "as many residuals as unknowns");
    Minimum best;
    // Returns whether this found something noticeably better.
    const auto try_from = [&](VectorXd x) {
        Eigen::LevenbergMarquardt<const Functor, double> solver(functor);
        constexpr Index most_evaluations = 200;
        solver.parameters.maxfev = most_evaluations;
        solver.minimize(x);
        const VectorXd left = residuals(x);
        constexpr double noticeable = 0.999;
        const bool better = best.residuals.size() == 0 ||
                            left.squaredNorm() < noticeable * best.residuals.squaredNorm();
        if (better) {
            best.unknowns = x;
            best.residuals = left;
        }
        best.others.push_back({std::move(x), left.squaredNorm()});
        return better;
    };
    for (const VectorXd& start : begin) {
        try_from(start);
    }
    // Kinks can hold an iteration up, so the neighbourhood of the best is tried too.
    constexpr int most_rounds = 6;
    bool better = true;
    for (int round = 0; round < most_rounds && better; ++round) {
        better = false;
        const VectorXd centre = best.unknowns;
        for (Index i = 0; i < centre.size(); ++i) {
            for (const double factor : {0.75, 1.3}) {
                VectorXd start = centre;
                start[i] *= factor;
                better = try_from(start) || better;
            }
        }
    }
    best.jacobian.resize(best.residuals.size(), best.unknowns.size());
    functor.df(best.unknowns, best.jacobian);
    return best;
}

}  // namespace bucketwise
