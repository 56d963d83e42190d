#include "hw/cpu/cpu_kernels.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <Eigen/Core>

#include "hw/compute/elements.h"
#include "hw/compute/gradient_pattern.h"
#include "hw/cpu/blas.h"
#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using In = Eigen::Map<const Matrix>;
using Out = Eigen::Map<Matrix>;

constexpr std::int64_t float_bytes = 4;

constexpr std::int64_t filler_edge = 32;

// Some microseconds, within the first-level cache.
void compute_filler_unit(float* data) {
    constexpr std::int64_t area = filler_edge * filler_edge;
    Out(data + 2 * area, filler_edge, filler_edge).noalias() =
        In(data, filler_edge, filler_edge) * In(data + area, filler_edge, filler_edge);
}

// An element-wise pass over more than this does not stay in any cache, so it need not be larger.
constexpr std::int64_t most_streamed_floats = std::int64_t{16} << 20;

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The median over repetitions of the time one of `times` takes.
template <typename Function>
double median_seconds(int repetitions, int times, const Function& function) {
    std::vector<double> samples;
    for (int i = 0; i < repetitions; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        for (int k = 0; k < times; ++k) {
            function();
        }
        samples.push_back(seconds_since(begin) / times);
    }
    return upper_median(std::move(samples));
}

// Grows to hold at least `floats`.
void grow(Arena& arena, std::int64_t floats) {
    if (arena.size_bytes() < floats * float_bytes) {
        arena = Arena(floats * float_bytes);
    }
}

}  // namespace

std::string kernel_libraries() {
    const std::string blas = blas_library();
    return fmt::format("Eigen {}.{}.{} ({}){}", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION,
                       EIGEN_MINOR_VERSION, Eigen::SimdInstructionSetsInUse(),
                       blas.empty() ? "" : " through " + blas);
}

CpuKernels::CpuKernels(const KernelPlan& plan, const std::vector<Gradient>& gradients,
                       const GradientBuffers& buffers,
                       const std::variant<Duration, Optimizer>& optimizer)
    : PlannedKernels(plan, gradients, optimizer),
      buffers_(buffers),
      pattern_(column_values(widest_pattern)) {
    compute_on_one_blas_thread();
    std::int64_t parameter_floats = 0;
    for (const Gradient& gradient : gradients) {
        parameter_offset_.push_back(parameter_floats);
        parameter_floats += gradient.numel;
    }
    const Optimizer* kind = optimizer_kind();
    const bool has_products = std::any_of(plan.forward.begin(), plan.forward.end(),
                                          [](const KernelCall& call) { return call.weight; });
    if (has_products || kind != nullptr) {
        grow(parameters_, parameter_floats);
    }
    if (kind != nullptr && *kind != Optimizer::sgd) {
        grow(moments_, parameter_floats * (*kind == Optimizer::adam ? 2 : 1));
    }
    for (const auto* calls : {&plan.forward, &plan.backward}) {
        for (const KernelCall& call : *calls) {
            reserve(call);
        }
    }
    for (auto& [k, arena] : left_) {
        const std::vector<float> row = row_values(k);
        for (std::int64_t at = 0; at < arena.size_bytes() / float_bytes; at += k) {
            std::copy(row.begin(), row.end(), arena.floats() + at);
        }
    }
    for (auto& [n, arena] : result_gradients_) {
        const std::vector<float> row = column_values(n);
        std::copy(row.begin(), row.end(), arena.floats());
    }
}

void CpuKernels::reserve(const KernelCall& call) {
    if (call.product) {
        const MatrixProduct& p = *call.product;
        grow(left_[p.k], p.count * p.m * p.k);
        grow(result_gradients_[p.n], p.count * p.m * p.n);
        if (!call.weight) {
            grow(right_, p.count * p.k * p.n);
        }
        grow(result_, p.count * std::max({p.m * p.n, p.m * p.k, p.k * p.n}));
    }
    grow(streamed_, 2 * std::min(call.streamed_elements / 3 + 1, most_streamed_floats));
}

void CpuKernels::calibrate() {
    grow(result_, 3 * filler_edge * filler_edge);
    const double unit = median_seconds(9, 500, [&] { compute_filler_unit(result_.floats()); });
    calibrate_writing(
        [](const Run& write) { return duration_from_us(1e6 * median_seconds(5, 1, write)); });
    seconds_per_filler_unit_ = unit;
}

const float* CpuKernels::right_factor(const KernelCall& call) {
    return call.weight
               ? parameters_.floats() + parameter_offset_[static_cast<std::size_t>(*call.weight)]
               : right_.floats();
}

void CpuKernels::multiply(const KernelCall& call) {
    const MatrixProduct& p = *call.product;
    const float* right = right_factor(call);
    for (std::int64_t i = 0; i < p.count; ++i) {
        const In b(right + i * p.k * p.n, p.k, p.n);
        if (is_forward(call.pass)) {
            const In a(left_[p.k].floats() + i * p.m * p.k, p.m, p.k);
            Out(result_.floats() + i * p.m * p.n, p.m, p.n).noalias() = a * b;
        } else {
            const In c(result_gradients_[p.n].floats() + i * p.m * p.n, p.m, p.n);
            Out(result_.floats() + i * p.m * p.k, p.m, p.k).noalias() = c * b.transpose();
        }
    }
}

void CpuKernels::multiply_for_weight(const KernelCall& call, float scale, bool accumulate) {
    const MatrixProduct& p = *call.product;
    const bool in_place =
        call.weight_gradient && gradient(*call.weight_gradient).dtype == DType::float32;
    float* to = in_place ? reinterpret_cast<float*>(buffers_.gradient(*call.weight_gradient))
                         : result_.floats();
    for (std::int64_t i = 0; i < p.count; ++i) {
        const In a(left_[p.k].floats() + i * p.m * p.k, p.m, p.k);
        const In c(result_gradients_[p.n].floats() + i * p.m * p.n, p.m, p.n);
        Out b(to + i * p.k * p.n, p.k, p.n);
        if (in_place && accumulate) {
            b.noalias() += scale * a.transpose() * c;
        } else {
            b.noalias() = scale * a.transpose() * c;
        }
    }
    if (call.weight_gradient && !in_place) {
        const Gradient& written = gradient(*call.weight_gradient);
        store_scaled(buffers_.gradient(*call.weight_gradient), written.dtype, to, written.numel,
                     1.0F, accumulate);
    }
}

// Two tensors read, one written, as an activation's backward does.
void CpuKernels::pass_over(std::int64_t elements) {
    const std::int64_t floats =
        std::min(streamed_.size_bytes() / float_bytes / 2, std::int64_t{most_streamed_floats});
    float* x = streamed_.floats();
    float* y = x + floats;
    for (std::int64_t left = elements / 3; left > 0; left -= floats) {
        const std::int64_t count = std::min(left, floats);
        for (std::int64_t i = 0; i < count; ++i) {
            y[i] = 0.5F * y[i] + x[i] + 1.0F;
        }
    }
}

void CpuKernels::write(const GradientPass& pass, float scale, bool accumulate) {
    const Gradient& written = gradient(pass.gradient);
    std::byte* data = buffers_.gradient(pass.gradient);
    if (pass.write == GradientWrite::again) {
        cast_scaled(data, written.dtype, data, written.dtype, written.numel, 1.0);
        return;
    }
    const std::int64_t columns = plan().columns[static_cast<std::size_t>(pass.gradient)];
    for (std::int64_t begin = 0; begin < written.numel; begin += columns) {
        const std::int64_t count = std::min(columns, written.numel - begin);
        store_scaled(data + begin * element_size(written.dtype).count, written.dtype,
                     pattern_.data(), count, scale * static_cast<float>(row_value(begin / columns)),
                     accumulate);
    }
}

void CpuKernels::fill(Duration duration) {
    if (seconds_per_filler_unit_ <= 0) {
        return;
    }
    const double seconds = to_us(duration) * 1e-6;
    const auto units = std::llround(seconds / seconds_per_filler_unit_);
    for (std::int64_t i = 0; i < units; ++i) {
        compute_filler_unit(result_.floats());
    }
}

void CpuKernels::update(Optimizer optimizer) {
    for (std::size_t i = 0; i < gradients().size(); ++i) {
        update_parameter(optimizer, static_cast<std::int32_t>(i));
    }
}

// The arithmetic is that of the optimizer; the rate is zero in effect, so that a long measurement
// ends with the parameters it began with.
void CpuKernels::update_parameter(Optimizer optimizer, std::int32_t index) {
    const DType dtype = gradient(index).dtype;
    const std::int64_t numel = gradient(index).numel;
    const std::int64_t offset = parameter_offset_[static_cast<std::size_t>(index)];
    constexpr float rate = 1e-30F;
    float* parameter = parameters_.floats() + offset;
    std::array<float, 4096> block{};
    for (std::int64_t begin = 0; begin < numel; begin += std::int64_t{block.size()}) {
        const std::int64_t count = std::min(std::int64_t{block.size()}, numel - begin);
        cast_scaled(block.data(), DType::float32,
                    buffers_.gradient(index) + begin * element_size(dtype).count, dtype, count,
                    1.0);
        float* p = parameter + begin;
        const float* g = block.data();
        switch (optimizer) {
            case Optimizer::sgd:
                for (std::int64_t i = 0; i < count; ++i) {
                    p[i] -= rate * g[i];
                }
                break;
            case Optimizer::sgd_momentum: {
                float* m = moments_.floats() + offset + begin;
                for (std::int64_t i = 0; i < count; ++i) {
                    m[i] = 0.9F * m[i] + g[i];
                    p[i] -= rate * m[i];
                }
                break;
            }
            case Optimizer::adam: {
                float* m = moments_.floats() + 2 * offset + begin;
                float* v = m + numel;
                for (std::int64_t i = 0; i < count; ++i) {
                    m[i] = 0.9F * m[i] + 0.1F * g[i];
                    v[i] = 0.999F * v[i] + 0.001F * g[i] * g[i];
                    p[i] -= rate * m[i] / (std::sqrt(v[i]) + 1e-8F);
                }
                break;
            }
        }
    }
}

}  // namespace bucketwise
