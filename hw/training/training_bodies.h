// What one thread of each element-wise pass of training computes, as plain functions of its place
// among all threads. A GPU runs them in hw/gpu/kernels/training_kernels.cu; a CPU runs them as the
// only thread.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define BUCKETWISE_BOTH_SIDES __host__ __device__ __forceinline__
#else
#define BUCKETWISE_BOTH_SIDES inline
#endif

namespace bucketwise {

// Row r of `to` becomes image order[r].
struct GatherCall {
    float* to = nullptr;            // [rows, width]
    const float* images = nullptr;  // [any, width]
    const std::int32_t* order = nullptr;
    std::int64_t rows = 0;
    std::int64_t width = 0;
};

// A CPU, the only thread, goes over whole rows; of many threads each has its share of each row.
BUCKETWISE_BOTH_SIDES void gather_share(const GatherCall& call, std::int64_t thread,
                                        std::int64_t threads) {
    const std::int64_t lanes = threads < call.width ? threads : call.width;
    const std::int64_t groups = threads / lanes;
    const std::int64_t group = thread / lanes;
    if (group >= groups) {
        return;  // left over: fewer than a row takes
    }
    for (std::int64_t row = group; row < call.rows; row += groups) {
        const float* from = call.images + call.order[row] * call.width;
        float* to = call.to + row * call.width;
        for (std::int64_t i = thread % lanes; i < call.width; i += lanes) {
            to[i] = from[i];
        }
    }
}

// x[row, column] += bias[column]
BUCKETWISE_BOTH_SIDES void add_bias_share(float* x, const float* bias, std::int64_t rows,
                                          std::int64_t columns, std::int64_t thread,
                                          std::int64_t threads) {
    const std::int64_t lanes = threads < columns ? threads : columns;
    const std::int64_t groups = threads / lanes;
    const std::int64_t group = thread / lanes;
    if (group >= groups) {
        return;
    }
    for (std::int64_t row = group; row < rows; row += groups) {
        for (std::int64_t column = thread % lanes; column < columns; column += lanes) {
            x[row * columns + column] += bias[column];
        }
    }
}

// A NaN stays one.
BUCKETWISE_BOTH_SIDES void relu_share(float* x, std::int64_t count, std::int64_t thread,
                                      std::int64_t threads) {
    for (std::int64_t i = thread; i < count; i += threads) {
        x[i] = x[i] < 0.0F ? 0.0F : x[i];
    }
}

// `activation` is what relu_share() left: zero where the gradient stops.
BUCKETWISE_BOTH_SIDES void relu_gradient_share(float* gradient, const float* activation,
                                               std::int64_t count, std::int64_t thread,
                                               std::int64_t threads) {
    for (std::int64_t i = thread; i < count; i += threads) {
        gradient[i] = activation[i] == 0.0F ? 0.0F : gradient[i];
    }
}

// sums[column] = the column's sum, or += where `accumulate`. Each thread has whole columns.
BUCKETWISE_BOTH_SIDES void column_sums_share(float* sums, const float* x, std::int64_t rows,
                                             std::int64_t columns, bool accumulate,
                                             std::int64_t thread, std::int64_t threads) {
    for (std::int64_t column = thread; column < columns; column += threads) {
        float sum = 0.0F;
        for (std::int64_t row = 0; row < rows; ++row) {
            sum += x[row * columns + column];
        }
        sums[column] = accumulate ? sums[column] + sum : sum;
    }
}

// Softmax cross-entropy of each row, whether its largest logit is the label's, and the gradient of
// scale x the sum of all rows' losses: scale (softmax - one-hot label).
struct CrossEntropyCall {
    const float* logits = nullptr;    // [rows, classes]
    float* gradient = nullptr;        // [rows, classes]; null: not wanted
    float* losses = nullptr;          // [rows]
    std::int32_t* correct = nullptr;  // [rows], 0 or 1
    const std::int32_t* labels = nullptr;
    const std::int32_t* order = nullptr;  // row r has the label labels[order[r]]
    std::int64_t rows = 0;
    std::int64_t classes = 0;
    float scale = 1.0F;
};

// Each thread has whole rows.
BUCKETWISE_BOTH_SIDES void cross_entropy_share(const CrossEntropyCall& call, std::int64_t thread,
                                               std::int64_t threads) {
    for (std::int64_t row = thread; row < call.rows; row += threads) {
        const float* x = call.logits + row * call.classes;
        const std::int32_t label = call.labels[call.order[row]];
        std::int64_t largest = 0;
        for (std::int64_t i = 1; i < call.classes; ++i) {
            largest = x[i] > x[largest] ? i : largest;
        }
        float sum = 0.0F;
        for (std::int64_t i = 0; i < call.classes; ++i) {
            sum += expf(x[i] - x[largest]);  // at least 1, so the logarithm exists
        }
        call.losses[row] = logf(sum) - (x[label] - x[largest]);
        call.correct[row] = largest == label ? 1 : 0;
        if (call.gradient != nullptr) {
            float* gradient = call.gradient + row * call.classes;
            for (std::int64_t i = 0; i < call.classes; ++i) {
                gradient[i] = call.scale * (expf(x[i] - x[largest]) / sum);
            }
            gradient[label] -= call.scale;
        }
    }
}

// One step of stochastic gradient descent, momentum as PyTorch has it: m = momentum m + g,
// p -= rate m. Without moments p -= rate g.
struct SgdCall {
    float* parameters = nullptr;
    const float* gradients = nullptr;
    float* moments = nullptr;  // null: none
    std::int64_t count = 0;
    float rate = 0.0F;
    float momentum = 0.0F;
};

BUCKETWISE_BOTH_SIDES void sgd_share(const SgdCall& call, std::int64_t thread,
                                     std::int64_t threads) {
    for (std::int64_t i = thread; i < call.count; i += threads) {
        float update = call.gradients[i];
        if (call.moments != nullptr) {
            update += call.momentum * call.moments[i];
            call.moments[i] = update;
        }
        call.parameters[i] -= call.rate * update;
    }
}

}  // namespace bucketwise
