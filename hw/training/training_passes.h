// The element-wise passes of training, each as what one thread computes of it, by its place among
// all threads. A GPU runs them in hw/gpu/kernels/training_kernels.cu; a CPU runs them as the only
// thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <variant>

#include "hw/compute/both_sides.h"

namespace bucketwise {

// Where a thread begins in a matrix that all go over: a CPU, the only thread, goes over whole rows;
// of many threads each has its share of each row.
struct RowShare {
    std::int64_t first_row = 0;
    std::int64_t row_step = 0;
    std::int64_t first_column = 0;
    std::int64_t column_step = 0;
};

// Threads that are left over, fewer than a row takes, begin behind the last row.
BUCKETWISE_BOTH_SIDES RowShare row_share(std::int64_t rows, std::int64_t columns,
                                         std::int64_t thread, std::int64_t threads) {
    const std::int64_t lanes = threads < columns ? threads : columns;
    const std::int64_t groups = threads / lanes;
    const std::int64_t group = thread / lanes;
    return {group < groups ? group : rows, groups, thread % lanes, lanes};
}

// Row r of `to` becomes image order[r].
struct Gather {
    static constexpr const char* kernel = "gather_kernel";
    float* to = nullptr;            // [rows, width]
    const float* images = nullptr;  // [any, width]
    const std::int32_t* order = nullptr;
    std::int64_t rows = 0;
    std::int64_t width = 0;

    [[nodiscard]] std::int64_t work() const { return rows * width; }
    BUCKETWISE_BOTH_SIDES void operator()(std::int64_t thread, std::int64_t threads) const {
        const RowShare share = row_share(rows, width, thread, threads);
        for (std::int64_t row = share.first_row; row < rows; row += share.row_step) {
            const float* image = images + order[row] * width;
            float* place = to + row * width;
            for (std::int64_t i = share.first_column; i < width; i += share.column_step) {
                place[i] = image[i];
            }
        }
    }
};

// x[row, column] += bias[column]
struct AddBias {
    static constexpr const char* kernel = "add_bias_kernel";
    float* x = nullptr;
    const float* bias = nullptr;
    std::int64_t rows = 0;
    std::int64_t columns = 0;

    [[nodiscard]] std::int64_t work() const { return rows * columns; }
    BUCKETWISE_BOTH_SIDES void operator()(std::int64_t thread, std::int64_t threads) const {
        const RowShare share = row_share(rows, columns, thread, threads);
        for (std::int64_t row = share.first_row; row < rows; row += share.row_step) {
            for (std::int64_t i = share.first_column; i < columns; i += share.column_step) {
                x[row * columns + i] += bias[i];
            }
        }
    }
};

// A NaN stays one.
struct Relu {
    static constexpr const char* kernel = "relu_kernel";
    float* x = nullptr;
    std::int64_t count = 0;

    [[nodiscard]] std::int64_t work() const { return count; }
    BUCKETWISE_BOTH_SIDES void operator()(std::int64_t thread, std::int64_t threads) const {
        for (std::int64_t i = thread; i < count; i += threads) {
            x[i] = x[i] < 0.0F ? 0.0F : x[i];
        }
    }
};

// `activation` is what Relu left: zero where the gradient stops.
struct ReluGradient {
    static constexpr const char* kernel = "relu_gradient_kernel";
    float* gradient = nullptr;
    const float* activation = nullptr;
    std::int64_t count = 0;

    [[nodiscard]] std::int64_t work() const { return count; }
    BUCKETWISE_BOTH_SIDES void operator()(std::int64_t thread, std::int64_t threads) const {
        for (std::int64_t i = thread; i < count; i += threads) {
            gradient[i] = activation[i] == 0.0F ? 0.0F : gradient[i];
        }
    }
};

// sums[column] = the column's sum, or += where `accumulate`. Each thread has whole columns.
struct ColumnSums {
    static constexpr const char* kernel = "column_sums_kernel";
    static constexpr bool has_long_shares = true;
    float* sums = nullptr;
    const float* x = nullptr;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    bool accumulate = false;

    [[nodiscard]] std::int64_t work() const { return columns; }
    BUCKETWISE_BOTH_SIDES void operator()(std::int64_t thread, std::int64_t threads) const {
        for (std::int64_t column = thread; column < columns; column += threads) {
            float sum = 0.0F;
            for (std::int64_t row = 0; row < rows; ++row) {
                sum += x[row * columns + column];
            }
            sums[column] = accumulate ? sums[column] + sum : sum;
        }
    }
};

// Softmax cross-entropy of each row, whether its largest logit is the label's, and the gradient of
// scale x the sum of all rows' losses: scale (softmax - one-hot label). Each thread has whole rows.
struct CrossEntropy {
    static constexpr const char* kernel = "cross_entropy_kernel";
    static constexpr bool has_long_shares = true;
    const float* logits = nullptr;    // [rows, classes]
    float* gradient = nullptr;        // [rows, classes]; null: not wanted
    float* losses = nullptr;          // [rows]
    std::int32_t* correct = nullptr;  // [rows], 0 or 1
    const std::int32_t* labels = nullptr;
    const std::int32_t* order = nullptr;  // row r has the label labels[order[r]]
    std::int64_t rows = 0;
    std::int64_t classes = 0;
    float scale = 1.0F;

    [[nodiscard]] std::int64_t work() const { return rows; }
    BUCKETWISE_BOTH_SIDES void operator()(std::int64_t thread, std::int64_t threads) const {
        for (std::int64_t row = thread; row < rows; row += threads) {
            const float* x = logits + row * classes;
            const std::int32_t label = labels[order[row]];
            std::int64_t largest = 0;
            for (std::int64_t i = 1; i < classes; ++i) {
                largest = x[i] > x[largest] ? i : largest;
            }
            float sum = 0.0F;
            for (std::int64_t i = 0; i < classes; ++i) {
                sum += expf(x[i] - x[largest]);  // at least 1, so the logarithm exists
            }
            losses[row] = logf(sum) - (x[label] - x[largest]);
            correct[row] = largest == label ? 1 : 0;
            if (gradient != nullptr) {
                float* of_row = gradient + row * classes;
                for (std::int64_t i = 0; i < classes; ++i) {
                    of_row[i] = scale * (expf(x[i] - x[largest]) / sum);
                }
                of_row[label] -= scale;
            }
        }
    }
};

// One step of stochastic gradient descent, momentum as PyTorch has it: m = momentum m + g,
// p -= rate m. Without moments p -= rate g.
struct SgdStep {
    static constexpr const char* kernel = "sgd_kernel";
    float* parameters = nullptr;
    const float* gradients = nullptr;
    float* moments = nullptr;  // null: none
    std::int64_t count = 0;
    float rate = 0.0F;
    float momentum = 0.0F;

    [[nodiscard]] std::int64_t work() const { return count; }
    BUCKETWISE_BOTH_SIDES void operator()(std::int64_t thread, std::int64_t threads) const {
        for (std::int64_t i = thread; i < count; i += threads) {
            float update = gradients[i];
            if (moments != nullptr) {
                update += momentum * moments[i];
                moments[i] = update;
            }
            parameters[i] -= rate * update;
        }
    }
};

using TrainingPass =
    std::variant<Gather, AddBias, Relu, ReluGradient, ColumnSums, CrossEntropy, SgdStep>;

}  // namespace bucketwise
