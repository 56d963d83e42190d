// Linear least squares with unknowns that cannot be negative, such as latencies.
#pragma once

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

}  // namespace bucketwise
