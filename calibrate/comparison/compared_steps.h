// Steps at several settings, predicted beside measured: errors, and the cost of the decision that
// the predictions lead to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/base/statistics.h"

namespace bucketwise {

struct ComparedStep {
    double predicted_ms = 0;
    double measured_ms = 0;  // above zero
    MedianInterval measured_interval_ms = {};
    std::size_t samples = 0;
    bool operator==(const ComparedStep&) const = default;

    [[nodiscard]] double error() const { return predicted_ms / measured_ms - 1; }  // as a share
};

// All settings together. Shares, except for the indices.
struct ErrorMeasures {
    std::size_t chosen = 0;   // the setting that the prediction advises
    std::size_t fastest = 0;  // the fastest measured
    double mape = 0;
    double max_error = 0;
    // Spearman's, of predicted and measured times; ties share their mean rank; zero when either
    // side is constant.
    double rank_correlation = 0;
    double regret = 0;       // measured time of the chosen / best measured time - 1
    double noise_floor = 0;  // median half-width of the measured intervals
    bool operator==(const ErrorMeasures&) const = default;
};

// Precondition: at least one step.
ErrorMeasures measure_errors(const std::vector<ComparedStep>& steps, std::size_t chosen);

// Twice each sample's rank, from 2 on, so that the mean rank of equal samples is whole.
std::vector<std::int64_t> doubled_ranks(const std::vector<double>& samples);

}  // namespace bucketwise
