// Non-linear least squares from many starts, for functions with kinks and several minima.
#pragma once

#include <functional>
#include <vector>

#include <Eigen/Core>

namespace bucketwise {

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
