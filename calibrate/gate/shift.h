// How far samples of one side are shifted against those of the other, and whether that is more than
// chance.
//
// Steps have heavy tails and follow one another, and a gate sees ten of them. So the shift is that
// of Hodges and Lehmann (1963), the median of all differences, and it has to be beyond chance in
// two ways. By the test of Wilcoxon (1945) and Mann and Whitney (1947), whose distribution is exact
// for any samples that might as well have been dealt out to the sides the other way: however they
// are distributed, ties and outliers too. And, as steps that follow one another are alike, so that
// ten say less than ten, by Student's t of trimmed means (Yuen 1974), whose variance is raised by
// what the correlation of neighbours within runs takes from them. Ranks could not be corrected for
// that: of ten and ten that are apart they say the same however far apart these are.
//
// Runs differ among themselves by more than their steps tell (another node, another neighbour). Of
// four runs or more on both sides together, how much is known, and the shift must be beyond that
// as well, by Student's t of the runs' medians.
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
    // Whether so few samples can tell anything at this rate, however far apart they are.
    bool can_be_told = false;
    // Of each side, so that they could: as many at least.
    std::size_t enough = 0;
    bool runs_are_known = false;  // how much they differ among themselves
    // Beyond chance 95 times in 100, where it is as large.
    double tellable = 0;
    bool operator==(const Shift&) const = default;
};

// From `before` to `after`, called more or less where it is not in a share of `false_alarms` of
// cases, each way. Preconditions (asserted): a sample on each side, 0 < false_alarms < 0.5.
Shift shift_between(const RunSamples& before, const RunSamples& after, double false_alarms);

// What of samples that follow one another is lost, as they are alike: of a process of first order
// (Bayley and Hammersley 1946). What a correlation of neighbours as large may be by chance is taken
// from it (James and Stein 1961), as of ten steps most of it is.
struct SerialLoss {
    double correlation = 0;
    double inflation = 1;  // of the variance of a mean, over what deviations say of it; 1 or more
    double degrees = 1;    // of freedom of the deviation that are left, as a share
    bool operator==(const SerialLoss&) const = default;
};

SerialLoss serial_loss(const RunSamples& before, const RunSamples& after);

// With which probability the sum of ranks of so many of all samples is as large as that of `after`,
// if they were dealt out by chance; of equal samples the mean rank.
double chance_of_ranks(const std::vector<double>& before, const std::vector<double>& after);

}  // namespace bucketwise
