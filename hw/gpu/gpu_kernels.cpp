#include "hw/gpu/gpu_kernels.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "hw/compute/gradient_pattern.h"
#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

constexpr std::int64_t float_bytes = 4;

// An element-wise pass over more than this does not stay in any cache, so it need not be larger.
constexpr std::int64_t most_streamed_elements = std::int64_t{256} << 20;

// Random values are repeated after so many: more than stay in a cache.
constexpr std::int64_t random_elements = std::int64_t{16} << 20;

void grow(std::int64_t& most, std::int64_t needed) {
    most = std::max(most, needed);
}

// Multiples of 1/64 in [-1, 1): exact in every dtype, and small enough that no product overflows.
std::vector<float> random_values(std::int64_t count) {
    std::mt19937 generator(20260101);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) {
        value = static_cast<float>(static_cast<std::int32_t>(generator() >> 25U) - 64) / 64;
    }
    return values;
}

// s(0), ..., scattered.
std::vector<float> activation_signs(std::int64_t rows) {
    std::vector<float> signs;
    for (std::int64_t i = 0; i < rows; ++i) {
        signs.push_back(row_value(i) % 2 == 0 ? 1.0F : -1.0F);
    }
    return signs;
}

// t(0), ..., such that s(i) t(i) over the first m rows sum to 1, for every m that is odd, or every
// one that is even: the first product is 1, then pairs of opposite ones follow, after a zero where
// m is even.
std::vector<float> gradient_signs(std::int64_t rows, bool m_is_odd) {
    const std::vector<float> s = activation_signs(rows);
    const std::int64_t first_pair = m_is_odd ? 1 : 2;
    std::vector<float> t;
    for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t pair = (i - first_pair) / 2;
        const bool second = (i - first_pair) % 2 != 0;
        const float product = i == 0                                    ? 1.0F
                              : i < first_pair                          ? 0.0F
                              : (column_value(pair) % 2 == 0) == second ? 1.0F
                                                                        : -1.0F;
        t.push_back(product * s[static_cast<std::size_t>(i)]);
    }
    return t;
}

}  // namespace

struct GpuKernels::Room {
    std::map<std::int64_t, std::int64_t> left;                               // elements, by k
    std::map<std::pair<std::int64_t, bool>, std::int64_t> result_gradients;  // by n, is m odd
    std::int64_t right = 0;
    std::int64_t result_bytes = 0;
    std::int64_t streamed = 0;
    std::int64_t rows = 1;
    std::int64_t columns = 1;
    std::set<std::int32_t> weights;

    // `operand_bytes`: of an element. A gradient whose dtype no product writes is computed in at
    // least float32.
    void add(const KernelCall& call, std::int64_t operand_bytes) {
        const std::int64_t wide_bytes = std::max(operand_bytes, float_bytes);
        if (call.product) {
            const MatrixProduct& p = *call.product;
            grow(left[p.k], p.count * p.m * p.k);
            grow(result_gradients[{p.n, p.m % 2 != 0}], p.count * p.m * p.n);
            if (call.weight) {
                weights.insert(*call.weight);
            } else {
                grow(right, p.count * p.k * p.n);
            }
            grow(result_bytes, wide_bytes * p.count * p.k * p.n);
            grow(result_bytes, operand_bytes * p.count * std::max(p.m * p.n, p.m * p.k));
        }
        grow(streamed, std::min(call.streamed_elements / 3 + 1, most_streamed_elements));
    }
};

Arithmetic arithmetic_of(const Scenario& scenario) {
    const auto* workload = std::get_if<ModelWorkload>(&scenario.workload);
    return workload == nullptr ? Arithmetic::float32 : workload->arithmetic;
}

GpuKernels::GpuKernels(const KernelPlan& plan, const std::vector<Gradient>& gradients,
                       const GradientBuffers& buffers,
                       const std::variant<Duration, Optimizer>& optimizer, Arithmetic arithmetic,
                       const GpuStream& stream)
    : PlannedKernels(plan, gradients, optimizer),
      buffers_(buffers),
      arithmetic_(arithmetic),
      stream_(stream),
      products_(stream, arithmetic) {
    Room room;
    for (const auto* calls : {&plan.forward, &plan.backward}) {
        for (const KernelCall& call : *calls) {
            room.add(call, element_size(operand()).count);
        }
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) {
        const std::int64_t columns = plan.columns[i];
        grow(room.columns, columns);
        grow(room.rows, (gradients[i].numel + columns - 1) / columns);
    }
    reserve(room);
    if (const Optimizer* kind = optimizer_kind()) {
        std::int64_t elements = 0;
        for (const Gradient& gradient : gradients) {
            parameter_offset_.push_back(elements);
            elements += gradient.numel;
        }
        parameters_ = DeviceMemory(float_bytes * elements);
        const int moments = *kind == Optimizer::adam ? 2 : *kind == Optimizer::sgd_momentum ? 1 : 0;
        moments_ = DeviceMemory(moments * float_bytes * elements);
    }
}

void GpuKernels::reserve(const Room& room) {
    patterns_.rows = DeviceMemory::of(row_values(room.rows));
    patterns_.columns = DeviceMemory::of(column_values(room.columns));
    for (const auto& [k, elements] : room.left) {
        DeviceMemory& left = left_[k] = DeviceMemory(operand_bytes(elements));
        set_outer_product(left, activation_signs(elements / k), row_values(k));
    }
    for (const auto& [key, elements] : room.result_gradients) {
        const auto& [n, m_is_odd] = key;
        DeviceMemory& gradient = result_gradients_[key] = DeviceMemory(operand_bytes(elements));
        set_outer_product(gradient, gradient_signs(elements / n, m_is_odd), column_values(n));
    }
    right_ = DeviceMemory(operand_bytes(room.right));
    weight_offset_.resize(gradients().size(), 0);
    std::int64_t weights_bytes = 0;
    for (const std::int32_t weight : room.weights) {
        const auto index = static_cast<std::size_t>(weight);
        weight_offset_[index] = weights_bytes;
        constexpr std::int64_t alignment = DeviceMemory::alignment_bytes;
        weights_bytes +=
            (operand_bytes(gradients()[index].numel) + alignment - 1) / alignment * alignment;
    }
    weights_ = DeviceMemory(weights_bytes);
    result_ = DeviceMemory(room.result_bytes);
    constexpr std::int64_t word_bytes = 16;  // both halves begin with a whole one
    streamed_ =
        DeviceMemory(2 * operand_bytes((room.streamed + word_bytes - 1) / word_bytes * word_bytes));
    const std::int64_t most_bytes =
        std::max({right_.size_bytes(), weights_.size_bytes(), streamed_.size_bytes()});
    const DeviceMemory random =
        DeviceMemory::of(random_values(std::min(random_elements, most_bytes / operand_bytes(1))));
    for (const DeviceMemory* memory : {&right_, &weights_, &streamed_}) {
        fill_with(random, *memory);
    }
    sink_ = DeviceMemory(float_bytes * filler_threads);
}

std::int64_t GpuKernels::memory_bytes() const {
    std::int64_t bytes = products_.memory_bytes();
    for (const auto& [k, memory] : left_) {
        bytes += memory.size_bytes();
    }
    for (const auto& [key, memory] : result_gradients_) {
        bytes += memory.size_bytes();
    }
    for (const DeviceMemory* memory :
         {&right_, &weights_, &result_, &streamed_, &sink_, &patterns_.rows, &patterns_.columns,
          &parameters_, &moments_}) {
        bytes += memory->size_bytes();
    }
    for (const GradientsOfDType& updates : updates_) {
        bytes += updates.chunks.size_bytes();
    }
    return bytes;
}

void GpuKernels::fill_with(const DeviceMemory& random, const DeviceMemory& memory) {
    const std::int64_t element_bytes = operand_bytes(1);
    const std::int64_t elements = memory.size_bytes() / element_bytes;
    for (std::int64_t begin = 0; begin < elements; begin += random_elements) {
        launch_copy(stream_.get(), memory.at(begin * element_bytes), operand(), random.at(0),
                    DType::float32, std::min(random_elements, elements - begin), 1.0);
    }
    stream_.wait();
}

void GpuKernels::set_outer_product(const DeviceMemory& memory, const std::vector<float>& rows,
                                   const std::vector<float>& columns) {
    const DeviceMemory device_rows = DeviceMemory::of(rows);
    const DeviceMemory device_columns = DeviceMemory::of(columns);
    launch_outer_product(stream_.get(), memory.at(0), operand(),
                         memory.size_bytes() / operand_bytes(1),
                         {.rows = device_rows.as<float>(),
                          .pattern = device_columns.as<float>(),
                          .columns = std::ssize(columns)},
                         false);
    stream_.wait();
}

void GpuKernels::arrange() {
    updates_.clear();
    if (optimizer_kind() == nullptr) {
        return;
    }
    std::vector<TensorPlace> tensors;
    for (std::size_t i = 0; i < gradients().size(); ++i) {
        tensors.push_back({.tensor = buffers_.gradient(static_cast<std::int32_t>(i)),
                           .place = parameters_.at(float_bytes * parameter_offset_[i]),
                           .numel = gradients()[i].numel});
    }
    updates_ = tables_by_dtype(gradients(), tensors);
}

// --- calibration ---

Duration GpuKernels::timed(const Run& launch) const {
    constexpr int times = 9;
    std::vector<Duration> samples;
    const GpuEvent begin(Timing::on);
    const GpuEvent end(Timing::on);
    for (int i = 0; i < times; ++i) {
        begin.record(stream_);
        launch();
        end.record(stream_);
        stream_.wait();
        samples.push_back(between(begin, end));
    }
    return upper_median(std::move(samples));
}

void GpuKernels::calibrate() {
    constexpr std::int64_t least_work = 256;
    constexpr std::int64_t most_work = std::int64_t{1} << 24U;
    const Duration long_enough = duration_from_us(300);
    const auto filler_time = [&](std::int64_t work) {
        return timed([&] { launch_filler(stream_.get(), sink_.as<float>(), work); });
    };
    std::int64_t work = least_work;
    Duration much = filler_time(work);  // wakes the clocks up
    while (much < long_enough && work < most_work) {
        work *= 2;
        much = filler_time(work);
    }
    // The difference to an eighth of the work leaves out what launching costs; however it was
    // disturbed, it is not taken for less than half of what all of the work took.
    const Duration little = filler_time(work / 8);
    picoseconds_per_filler_work_ =
        std::max(static_cast<double>((much - little).count()) / (0.875 * static_cast<double>(work)),
                 0.5 * static_cast<double>(much.count()) / static_cast<double>(work));
    filler_launch_ = std::max(
        Duration{0},
        much - Duration{std::llround(picoseconds_per_filler_work_ * static_cast<double>(work))});
    calibrate_writing([&](const Run& write) { return timed(write); });
}

void GpuKernels::fill(Duration duration) {
    if (picoseconds_per_filler_work_ <= 0) {
        return;
    }
    const double left = static_cast<double>((duration - filler_launch_).count());
    launch_filler(stream_.get(), sink_.as<float>(),
                  std::max<std::int64_t>(0, std::llround(left / picoseconds_per_filler_work_)));
}

// --- operations ---

const std::byte* GpuKernels::right_factor(const KernelCall& call) const {
    return call.weight ? weights_.at(weight_offset_[static_cast<std::size_t>(*call.weight)])
                       : right_.at(0);
}

void GpuKernels::multiply(const KernelCall& call) {
    const MatrixProduct& p = *call.product;
    if (is_forward(call.pass)) {
        products_.forward(p, left_.at(p.k).at(0), right_factor(call), result_.at(0));
    } else {
        products_.input_gradient(p, result_gradients_.at({p.n, p.m % 2 != 0}).at(0),
                                 right_factor(call), result_.at(0));
    }
}

void GpuKernels::multiply_for_weight(const KernelCall& call, float scale, bool accumulate) {
    const MatrixProduct& p = *call.product;
    const std::byte* a = left_.at(p.k).at(0);
    const std::byte* c = result_gradients_.at({p.n, p.m % 2 != 0}).at(0);
    if (!call.weight_gradient) {
        products_.weight_gradient(p, a, c, result_.at(0), operand(), 1, 0);
        return;
    }
    const Gradient& written = gradient(*call.weight_gradient);
    std::byte* to = buffers_.gradient(*call.weight_gradient);
    if (can_write(arithmetic_, written.dtype)) {
        products_.weight_gradient(p, a, c, to, written.dtype, double{scale}, accumulate ? 1 : 0);
        return;
    }
    // Into the wider one of both dtypes, and from there into the gradient: its values are those of
    // the pattern, so that a second pass over it can accumulate too.
    const DType wide = operand() == DType::float64 ? DType::float64 : DType::float32;
    products_.weight_gradient(p, a, c, result_.at(0), wide, double{scale}, 0);
    if (accumulate) {
        write({*call.weight_gradient, GradientWrite::pattern}, scale, true);
    } else {
        launch_copy(stream_.get(), to, written.dtype, result_.at(0), wide, written.numel, 1.0);
    }
}

// Two tensors read, one written, as an activation's backward does.
void GpuKernels::pass_over(std::int64_t elements) {
    const std::int64_t half_bytes = streamed_.size_bytes() / 2;
    const std::int64_t most = half_bytes / element_size(operand()).count;
    for (std::int64_t left = elements / 3; left > 0; left -= most) {
        launch_element_wise(stream_.get(), streamed_.at(half_bytes), streamed_.at(0), operand(),
                            std::min(left, most));
    }
}

void GpuKernels::write(const GradientPass& pass, float scale, bool accumulate) {
    const Gradient& written = gradient(pass.gradient);
    std::byte* data = buffers_.gradient(pass.gradient);
    if (pass.write == GradientWrite::again) {
        launch_copy(stream_.get(), data, written.dtype, data, written.dtype, written.numel, 1.0);
        return;
    }
    launch_outer_product(stream_.get(), data, written.dtype, written.numel,
                         {.rows = patterns_.rows.as<float>(),
                          .pattern = patterns_.columns.as<float>(),
                          .columns = plan().columns[static_cast<std::size_t>(pass.gradient)],
                          .factor = scale},
                         accumulate);
}

void GpuKernels::update(Optimizer optimizer) {
    const std::int64_t elements = parameters_.size_bytes() / float_bytes;
    const bool is_adam = optimizer == Optimizer::adam;
    const OptimizerState state{
        .first_moments = moments_.as<float>(),
        .second_moments = is_adam ? moments_.as<float>() + elements : nullptr,
        .parameters = parameters_.as<float>()};
    for (const GradientsOfDType& updates : updates_) {
        launch_optimizer(stream_.get(), updates.chunks.data(), updates.chunks.count(),
                         updates.dtype, optimizer, state);
    }
}

}  // namespace bucketwise
