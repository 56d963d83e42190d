// Least squares: linear, with unknowns that cannot be negative, such as latencies; and non-linear,
// from many starts, for functions with kinks and several minima.
#pragma once

#include <functional>
#include <vector>

#include <Eigen/Core>

namespace bucketwise {

struct NonNegativeSolution {
    Eigen::VectorXd x;           // each at least 0
    Eigen::MatrixXd covariance;  // of x, if every row's error has variance 1 and no bound held
    double residual_sum = 0;     // of squares
};

// Minimises |a x - b|² over x >= 0, by Lawson and Hanson's active set method (Solving Least Squares
// Problems, 1974, chapter 23). Rows are observations, already divided by their standard errors.
// Columns that depend on one another share their contribution; their covariance is then that of
// the solution of least norm.
NonNegativeSolution solve_non_negative(const Eigen::MatrixXd& a, const Eigen::VectorXd& b);

// Residuals of unknowns whose sign does not matter and which lie near one; as many residuals
// whatever the unknowns.
using ResidualFunction = std::function<Eigen::VectorXd(const Eigen::VectorXd& unknowns)>;

struct LocalMinimum {
    Eigen::VectorXd unknowns;
    double squared_error = 0;  // sum over residuals
};

struct Minimum {
    Eigen::VectorXd unknowns;
    Eigen::VectorXd residuals;
    Eigen::MatrixXd jacobian;          // of the residuals: residual by unknown
    std::vector<LocalMinimum> others;  // that were found on the way
};

// Levenberg and Marquardt's method (MINPACK's, in Eigen) from every point of a grid that is better
// than its neighbours, the best eight of them, and again from around the best of what that finds,
// as long as it helps. `axes`: by unknown, the logarithms of its values on the grid, rising.
// Precondition (asserted): no more unknowns than residuals.
Minimum find_minimum(const ResidualFunction& residuals,
                     const std::vector<std::vector<double>>& axes);

}  // namespace bucketwise
