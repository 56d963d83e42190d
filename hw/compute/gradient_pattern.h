// The values of gradients on real ranks. Every rank knows the exact mean of every element without
// asking the others.
//
// On rank r, in micro-step a of step s, element (row i, column j) of gradient g is
//     factor(g) * rank_value(r, s, a) * row_value(i) * column_value(j),
// a product of small integers, at most 512: exact in float32 and float16. Rows and columns are
// those of the matrix product that computes the gradient: with an activation whose rows are
// row_value and an output gradient that is column_value in its first row and zero elsewhere, the
// weight gradient is this outer product, whatever order the products are summed in. So the values
// are really computed by the kernel, and still known.
//
// A sum that misses a rank, takes one twice, holds an earlier step's gradients or puts elements in
// other places gives another mean. In float32 and float64 that shows for any number of ranks. In
// 16 bits it shows as long as one rank's share exceeds what rounding explains: a missing rank up to
// about 100 ranks in float16 and 10 in bfloat16; elements in other places always.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "sim/base/dtype.h"

namespace bucketwise {

// 1 to 4, 1 to 8 and 1 to 4, scattered.
std::int32_t row_value(std::int64_t row);
std::int32_t column_value(std::int64_t column);
std::int32_t gradient_factor(std::int64_t gradient);

// 1 to 4. Rank 0's differs from step to step, so the sum over ranks does too.
std::int32_t rank_value(int rank, std::int64_t step, std::int64_t micro_step);

// Over all ranks and micro-steps, divided by the ranks.
double mean_rank_value(int ranks, std::int64_t step, std::int64_t accumulation);

// A power of two, 1 unless many ranks or micro-steps are summed: times it, the sum over all of them
// stays within half of float16's range. A sum of small integers times a power of two is as exact.
float scale_within_float16(int ranks, std::int64_t accumulation);

// row_value(0), ..., and column_value(0), ... as floats.
std::vector<float> row_values(std::int64_t rows);
std::vector<float> column_values(std::int64_t columns);

// The result of comparing elements with exact values, one after another.
struct ElementCheck {
    double largest_difference = 0;
    std::int64_t wrong_element = -1;  // the first further off than rounding explains; -1: none
    double expected = 0;              // there
    double got = 0;

    // `tolerance` is relative to `exact`. Written so that a NaN counts as wrong.
    template <typename Exact>
    void compare(std::int64_t element, Exact exact, double value, double tolerance) {
        const auto difference = static_cast<double>(std::abs(value - exact));
        if (!(difference <= largest_difference)) {
            largest_difference = difference;
        }
        if (!(difference <= tolerance * static_cast<double>(exact)) && wrong_element < 0) {
            wrong_element = element;
            expected = static_cast<double>(exact);
            got = value;
        }
    }
};

// Compares `numel` elements from `first` on, which `data` begins with, with factor * row_value *
// column_value * mean. `tolerance` is relative to the exact value.
ElementCheck check_gradient(const void* data, DType dtype, std::int64_t numel, std::int64_t columns,
                            double factor_and_mean, double tolerance, std::int64_t first = 0);

// The relative error that rounding can cause in a mean over `ranks`: each term is rounded once when
// it is divided, cast and stored, and every addition rounds once more, each by at most half a unit
// in the last place of the dtype that travels, relative to a sum of positive terms.
double rounding_tolerance(int ranks, std::int64_t accumulation, DType on_the_wire);

}  // namespace bucketwise
