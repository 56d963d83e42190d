#include "hw/cpu_kernels.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include <fmt/format.h>
#include <Eigen/Core>

#include "hw/blas.h"
#include "hw/elements.h"
#include "hw/gradient_pattern.h"

namespace bucketwise {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using In = Eigen::Map<const Matrix>;
using Out = Eigen::Map<Matrix>;

constexpr std::int64_t float_bytes = 4;

// One unit of the filler: some microseconds, within the first-level cache.
constexpr std::int64_t filler_edge = 32;

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
    std::nth_element(samples.begin(), samples.begin() + repetitions / 2, samples.end());
    return samples[static_cast<std::size_t>(repetitions / 2)];
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
                       GradientBuffers& buffers, const std::variant<Duration, Optimizer>& optimizer)
    : plan_(plan),
      gradients_(gradients),
      buffers_(buffers),
      optimizer_(optimizer),
      pattern_(column_values(widest_pattern)) {
    compute_on_one_blas_thread();
    std::int64_t parameter_floats = 0;
    for (const Gradient& gradient : gradients) {
        parameter_offset_.push_back(parameter_floats);
        parameter_floats += gradient.numel;
    }
    const auto* kind = std::get_if<Optimizer>(&optimizer_);
    const bool has_products = std::any_of(plan.forward.begin(), plan.forward.end(),
                                          [](const KernelCall& call) { return call.weight; });
    if (has_products || kind != nullptr) {
        grow(parameters_, parameter_floats);
    }
    if (kind != nullptr && *kind != Optimizer::sgd) {
        grow(moments_, parameter_floats * (*kind == Optimizer::adam ? 2 : 1));
    }
    for (const auto* calls : {&plan_.forward, &plan_.backward}) {
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
    const double unit = median_seconds(9, 500, [&] {
        float* data = result_.floats();
        constexpr std::int64_t area = filler_edge * filler_edge;
        Out(data + 2 * area, filler_edge, filler_edge).noalias() =
            In(data, filler_edge, filler_edge) * In(data + area, filler_edge, filler_edge);
    });
    const auto largest =
        std::max_element(gradients_.begin(), gradients_.end(),
                         [](const Gradient& a, const Gradient& b) { return a.size() < b.size(); });
    if (largest != gradients_.end()) {
        const GradientPass pass{static_cast<std::int32_t>(largest - gradients_.begin()),
                                GradientWrite::pattern};
        seconds_per_written_byte_ = median_seconds(5, 1, [&] { write(pass, 1.0F, false); }) /
                                    static_cast<double>(largest->size().count);
    }
    seconds_per_filler_unit_ = unit;
}

void CpuKernels::forward(std::int32_t operation) {
    run(plan_.forward[static_cast<std::size_t>(operation)]);
}

void CpuKernels::backward(std::int32_t operation, float rank_value, bool accumulate) {
    const KernelCall& call = plan_.backward[static_cast<std::size_t>(operation)];
    if (call.product && call.pass == Pass::weight_gradient) {
        const float scale =
            call.weight_gradient ? scale_of(*call.weight_gradient, rank_value) : 1.0F;
        multiply_for_weight(call, scale, accumulate);
    } else {
        run(call);
    }
    for (const GradientPass& pass : call.gradients) {
        write(pass, scale_of(pass.gradient, rank_value), accumulate);
    }
}

float CpuKernels::scale_of(std::int32_t gradient, float rank_value) const {
    return static_cast<float>(gradient_factor(gradient)) * rank_value;
}

void CpuKernels::run(const KernelCall& call) {
    if (call.product) {
        multiply(call);
    }
    stream(call.streamed_elements);
    if (call.filler > Duration{0}) {
        const double written = seconds_per_written_byte_ * static_cast<double>(written_bytes(call));
        fill(std::max(Duration{0}, call.filler - duration_from_us(written * 1e6)));
    }
}

std::int64_t CpuKernels::written_bytes(const KernelCall& call) const {
    std::int64_t bytes = 0;
    for (const GradientPass& pass : call.gradients) {
        bytes += gradients_[static_cast<std::size_t>(pass.gradient)].size().count;
    }
    return bytes;
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
        if (call.pass == Pass::forward) {
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
        call.weight_gradient &&
        gradients_[static_cast<std::size_t>(*call.weight_gradient)].dtype == DType::float32;
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
        const auto index = static_cast<std::size_t>(*call.weight_gradient);
        store_scaled(buffers_.gradient(*call.weight_gradient), gradients_[index].dtype, to,
                     gradients_[index].numel, 1.0F, accumulate);
    }
}

// Two tensors read, one written, as an activation's backward does.
void CpuKernels::stream(std::int64_t elements) {
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
    const auto index = static_cast<std::size_t>(pass.gradient);
    const Gradient& gradient = gradients_[index];
    std::byte* data = buffers_.gradient(pass.gradient);
    if (pass.write == GradientWrite::again) {
        cast_scaled(data, gradient.dtype, data, gradient.dtype, gradient.numel, 1.0);
        return;
    }
    const std::int64_t columns = plan_.columns[index];
    for (std::int64_t begin = 0; begin < gradient.numel; begin += columns) {
        const std::int64_t count = std::min(columns, gradient.numel - begin);
        store_scaled(data + begin * element_size(gradient.dtype).count, gradient.dtype,
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
    float* data = result_.floats();
    constexpr std::int64_t area = filler_edge * filler_edge;
    for (std::int64_t i = 0; i < units; ++i) {
        Out(data + 2 * area, filler_edge, filler_edge).noalias() =
            In(data, filler_edge, filler_edge) * In(data + area, filler_edge, filler_edge);
    }
}

void CpuKernels::optimizer() {
    if (const auto* duration = std::get_if<Duration>(&optimizer_)) {
        fill(*duration);
        return;
    }
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
        update(static_cast<std::int32_t>(i));
    }
}

// The arithmetic is that of the optimizer; the rate is zero in effect, so that a long measurement
// ends with the parameters it began with.
void CpuKernels::update(std::int32_t gradient) {
    const auto index = static_cast<std::size_t>(gradient);
    const std::int64_t numel = gradients_[index].numel;
    constexpr float rate = 1e-30F;
    float* parameter = parameters_.floats() + parameter_offset_[index];
    std::array<float, 4096> block{};
    for (std::int64_t begin = 0; begin < numel; begin += std::int64_t{block.size()}) {
        const std::int64_t count = std::min(std::int64_t{block.size()}, numel - begin);
        const DType dtype = gradients_[index].dtype;
        cast_scaled(block.data(), DType::float32,
                    buffers_.gradient(gradient) + begin * element_size(dtype).count, dtype, count,
                    1.0);
        float* p = parameter + begin;
        const float* g = block.data();
        switch (std::get<Optimizer>(optimizer_)) {
            case Optimizer::sgd:
                for (std::int64_t i = 0; i < count; ++i) {
                    p[i] -= rate * g[i];
                }
                break;
            case Optimizer::sgd_momentum: {
                float* m = moments_.floats() + parameter_offset_[index] + begin;
                for (std::int64_t i = 0; i < count; ++i) {
                    m[i] = 0.9F * m[i] + g[i];
                    p[i] -= rate * m[i];
                }
                break;
            }
            case Optimizer::adam: {
                float* m = moments_.floats() + 2 * parameter_offset_[index] + begin;
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
