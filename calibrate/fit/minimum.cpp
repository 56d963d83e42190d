#include "calibrate/fit/minimum.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <Eigen/QR>
#include <unsupported/Eigen/NonLinearOptimization>

#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

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
