// Measures of a sweep over caps: how far predicted step times are from the measured ones, and what
// the decision they lead to costs.
#pragma once

#include <cstddef>
#include <vector>

namespace bucketwise {

struct ComparedPoint {
    double bucket_cap_mib = 0;
    double predicted_step_ms = 0;
    double measured_step_ms = 0;  // above zero
    bool operator==(const ComparedPoint&) const = default;
};

// Signed: predicted / measured - 1.
double relative_error(const ComparedPoint& point);

// Mean and largest absolute relative error. Precondition: at least one point.
double mean_absolute_percentage_error(const std::vector<ComparedPoint>& points);
double largest_absolute_error(const std::vector<ComparedPoint>& points);

// Measured time at the cap that was chosen / best measured time - 1: zero when the tool chose what
// a full measurement would have chosen. Precondition: at least one point.
double regret(const std::vector<ComparedPoint>& points, std::size_t chosen);

// Spearman's rank correlation of predicted and measured times, ties sharing their mean rank; zero
// when either side is constant. Precondition: at least one point.
double rank_correlation(const std::vector<ComparedPoint>& points);

}  // namespace bucketwise
