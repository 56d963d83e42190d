#include "calibrate/fit/least_squares.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <Eigen/QR>
#include <unsupported/Eigen/NonLinearOptimization>

#include "sim/base/invariant.h"

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

// --- from many starts ---

// What Eigen's LevenbergMarquardt asks of a function.
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

    // Central differences over a thousandth of an unknown: wide enough that rounding within the
    // function does not show.
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

// Points of the grid, numbered.
class Grid {
  public:
    explicit Grid(const std::vector<std::vector<double>>& axes) : axes_(axes) {
        for (const std::vector<double>& axis : axes_) {
            points_ *= axis.size();
        }
    }

    [[nodiscard]] std::size_t points() const { return points_; }

    [[nodiscard]] VectorXd at(std::size_t point) const {
        VectorXd x(static_cast<Index>(axes_.size()));
        for (std::size_t i = 0; i < axes_.size(); ++i) {
            x[static_cast<Index>(i)] = std::exp(axes_[i][point % axes_[i].size()]);
            point /= axes_[i].size();
        }
        return x;
    }

    // Next to it along one axis.
    [[nodiscard]] std::vector<std::size_t> neighbours(std::size_t point) const {
        std::vector<std::size_t> neighbours;
        std::size_t stride = 1;
        for (const std::vector<double>& axis : axes_) {
            const std::size_t digit = point / stride % axis.size();
            if (digit > 0) {
                neighbours.push_back(point - stride);
            }
            if (digit + 1 < axis.size()) {
                neighbours.push_back(point + stride);
            }
            stride *= axis.size();
        }
        return neighbours;
    }

  private:
    const std::vector<std::vector<double>>& axes_;
    std::size_t points_ = 1;
};

std::vector<VectorXd> starts(const ResidualFunction& residuals, const Grid& grid) {
    std::vector<double> errors;
    for (std::size_t point = 0; point < grid.points(); ++point) {
        errors.push_back(residuals(grid.at(point)).squaredNorm());
    }
    std::vector<std::size_t> minima;
    for (std::size_t point = 0; point < grid.points(); ++point) {
        const std::vector<std::size_t> around = grid.neighbours(point);
        if (std::all_of(around.begin(), around.end(),
                        [&](std::size_t other) { return errors[point] <= errors[other]; })) {
            minima.push_back(point);
        }
    }
    std::sort(minima.begin(), minima.end(),
              [&](std::size_t a, std::size_t b) { return errors[a] < errors[b]; });
    constexpr std::size_t most_starts = 8;
    std::vector<VectorXd> best;
    for (std::size_t i = 0; i < std::min(most_starts, minima.size()); ++i) {
        best.push_back(grid.at(minima[i]));
    }
    return best;
}

class Search {
  public:
    explicit Search(const Functor& functor) : functor_(functor) {}

    // Whether this found something noticeably better.
    bool try_from(VectorXd x) {
        Eigen::LevenbergMarquardt<Functor, double> solver(functor_);
        constexpr Index most_evaluations = 200;
        solver.parameters.maxfev = most_evaluations;
        solver.minimize(x);
        const VectorXd residuals = functor_.residuals_of(x);
        constexpr double noticeable = 0.999;
        const bool better = best_.residuals.size() == 0 ||
                            residuals.squaredNorm() < noticeable * best_.residuals.squaredNorm();
        if (better) {
            best_.unknowns = x;
            best_.residuals = residuals;
        }
        best_.others.push_back({std::move(x), residuals.squaredNorm()});
        return better;
    }

    // Kinks can hold an iteration up, so the neighbourhood of what it found is tried too.
    void look_around() {
        constexpr int most_rounds = 6;
        bool better = true;
        for (int round = 0; round < most_rounds && better; ++round) {
            better = false;
            const VectorXd centre = best_.unknowns;
            for (Index i = 0; i < centre.size(); ++i) {
                for (const double factor : {0.75, 1.3}) {
                    VectorXd start = centre;
                    start[i] *= factor;
                    better = try_from(start) || better;
                }
            }
        }
    }

    Minimum finish() {
        best_.jacobian.resize(best_.residuals.size(), best_.unknowns.size());
        functor_.df(best_.unknowns, best_.jacobian);
        return std::move(best_);
    }

  private:
    Functor functor_;
    Minimum best_;
};

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

Minimum find_minimum(const ResidualFunction& residuals,
                     const std::vector<std::vector<double>>& axes) {
    const Grid grid(axes);
    const Functor functor{residuals, static_cast<Index>(axes.size()), residuals(grid.at(0)).size()};
    invariant(functor.unknowns <= functor.residuals, "as many residuals as unknowns");
    Search search(functor);
    for (const VectorXd& start : starts(residuals, grid)) {
        search.try_from(start);
    }
    search.look_around();
    return search.finish();
}

}  // namespace bucketwise
