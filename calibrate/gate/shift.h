// How far samples of one side are shifted against those of the other, and whether that is more than
// chance.
//
// Steps have heavy tails and follow one another, and a gate sees ten of them. So the shift is that
// of Hodges and Lehmann (1963), the median of all differences, and it has to pass two tests. The
// test of Wilcoxon (1945) and Mann and Whitney (1947) has an exact distribution for any samples
// that might as well have been dealt out to the sides the other way, however they are distributed,
// with ties and outliers. Student's t of trimmed means (Yuen 1974) accounts for neighbouring steps
// that are alike, so that ten count as fewer: the correlation of neighbours within runs raises its
// variance. Ranks cannot be corrected for that: ten against ten that lie apart give the same sum,
// however far apart they lie.
//
// Runs differ among themselves by more than their steps show (another node, another neighbour).
// Four runs or more on both sides together show by how much, and the shift must then exceed that
// too, by Student's t of the runs' medians.
#pragma once

#include <cstddef>
#include <vector>

namespace bucketwise {

// By run, in the order of its steps.
using RunSamples = std::vector<std::vector<double>>;

struct Shift {
    double middle = 0;
    double low = 0;  // 95 % interval
    double high = 0;
    bool is_more = false;  // beyond chance
    bool is_less = false;
    bool can_be_told = false;     // this many samples can pass the tests at this rate
    std::size_t enough = 0;       // samples of each side that could
    bool runs_are_known = false;  // the differences among runs are known
    double tellable = 0;          // the size that passes 95 times in 100
    bool operator==(const Shift&) const = default;
};

// From `before` to `after`. Unchanged samples are called more, or less, in a share of
// `false_alarms` of cases. Preconditions (asserted): a sample on each side, 0 < false_alarms < 0.5.
Shift shift_between(const RunSamples& before, const RunSamples& after, double false_alarms);

// The information that samples lose by being like their neighbours, for a process of first order
// (Bayley and Hammersley 1946). The part of the correlation that may be chance is taken from it
// (James and Stein 1961): for ten steps that is most of it.
struct SerialLoss {
    double correlation = 0;
    double inflation = 1;  // of the variance of a mean over its estimate from deviations; 1 or more
    double degrees = 1;    // of freedom of the deviation that are left, as a share
    bool operator==(const SerialLoss&) const = default;
};

SerialLoss serial_loss(const RunSamples& before, const RunSamples& after);

// The probability that the sum of ranks of a random choice of samples, as many as `after`, is as
// large as that of `after`; equal samples have their mean rank.
double chance_of_ranks(const std::vector<double>& before, const std::vector<double>& after);

}  // namespace bucketwise
