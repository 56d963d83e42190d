#include "hw/batch_norm/sync_batch_norm.h"

#include <chrono>

#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

using Clock = std::chrono::steady_clock;

std::size_t size_of(std::int64_t count) {
    return static_cast<std::size_t>(count);
}

std::int64_t bytes_of(const std::vector<float>& values) {
    return std::ssize(values) * element_size(DType::float32).count;
}

}  // namespace

SyncBatchNorm::SyncBatchNorm(BatchNormDevice& device, BatchNormSync sync, BatchNormPasses passes,
                             const BatchNormValues& values)
    : device_(device),
      sync_(sync),
      passes_(passes),
      shape_(values.shape),
      pool_([&device](std::int64_t bytes) { return device.raw_memory(bytes); }) {
    invariant(sync != BatchNormSync::local, "statistics of one rank need no other");
    invariant(shape_.rows >= 0 && shape_.channels >= 1, "a batch has channels");
    const auto loaded = [this](const std::vector<float>& from, std::int64_t count) {
        invariant(from.size() == size_of(count), "there is a value for each element");
        Tensor tensor = pool_.floats(count);
        device_.upload(tensor.at(0), from.data(), bytes_of(from));
        return tensor;
    };
    const std::int64_t channels = shape_.channels;
    input_ = loaded(values.input, shape_.elements());
    if (passes == BatchNormPasses::both) {
        output_gradient_ = loaded(values.output_gradient, shape_.elements());
    }
    weight_ = loaded(values.weight, channels);
    bias_ = loaded(values.bias, channels);
    running_mean_ = loaded(std::vector<float>(size_of(channels), 0.0F), channels);
    running_variance_ = loaded(std::vector<float>(size_of(channels), 1.0F), channels);
}

ChannelStatistics SyncBatchNorm::statistics_in(const Saved& saved) const {
    return {.mean = saved.mean.floats(),
            .inverse = saved.inverse.floats(),
            .rows = saved.rows.floats(),
            .running_mean = running_mean_.floats(),
            .running_variance = running_variance_.floats()};
}

void SyncBatchNorm::gather_statistics(const Saved& saved) {
    const std::int64_t row = gathered_row(shape_.channels);
    Tensor own = pool_.floats(row);
    device_.run(LocalStatistics{.shape = shape_, .x = input_.floats(), .to = own.floats()});
    const Tensor all = pool_.floats(device_.ranks() * row);
    device_.carry({.kind = CollectiveKind::all_gather,
                   .own = own.at(0),
                   .all = all.at(0),
                   .size = row * element_size(DType::float32)});
    own = Tensor();
    device_.run(CombineStatistics{.shape = shape_,
                                  .gathered = all.floats(),
                                  .ranks = device_.ranks(),
                                  .to = statistics_in(saved)});
}

void SyncBatchNorm::reduce_statistics(const Saved& saved) {
    const std::int64_t row = gathered_row(shape_.channels);
    const Tensor sums = pool_.doubles(row);
    device_.run(LocalSums{.shape = shape_, .x = input_.floats(), .to = sums.doubles()});
    device_.carry(
        {.own = sums.at(0), .size = row * element_size(DType::float64), .dtype = DType::float64});
    device_.run(
        StatisticsOfSums{.shape = shape_, .sums = sums.doubles(), .to = statistics_in(saved)});
}

SyncBatchNorm::Saved SyncBatchNorm::forward() {
    Saved saved;
    saved.mean = pool_.floats(shape_.channels);
    saved.inverse = pool_.floats(shape_.channels);
    saved.rows = pool_.floats(1);
    if (sync_ == BatchNormSync::gather) {
        gather_statistics(saved);
    } else {
        reduce_statistics(saved);
    }
    saved.output = pool_.floats(shape_.elements());
    device_.run(Normalise{.shape = shape_,
                          .x = input_.floats(),
                          .statistics = statistics_in(saved),
                          .weight = weight_.floats(),
                          .bias = bias_.floats(),
                          .y = saved.output.floats()});
    return saved;
}

SyncBatchNorm::Gradients SyncBatchNorm::backward(const Saved& saved) {
    const GradientScale scale =
        sync_ == BatchNormSync::gather ? GradientScale::centred : GradientScale::normalised;
    const ChannelStatistics statistics = statistics_in(saved);
    Gradients gradients;
    gradients.weight = pool_.floats(shape_.channels);
    gradients.bias = pool_.floats(shape_.channels);
    const Tensor sums = pool_.floats(2 * shape_.channels);
    device_.run(GradientSums{.shape = shape_,
                             .dy = output_gradient_.floats(),
                             .x = input_.floats(),
                             .statistics = statistics,
                             .scale = scale,
                             .sums = sums.floats(),
                             .weight_gradient = gradients.weight.floats(),
                             .bias_gradient = gradients.bias.floats()});
    device_.carry({.own = sums.at(0), .size = 2 * shape_.channels * element_size(DType::float32)});
    gradients.input = pool_.floats(shape_.elements());
    device_.run(InputGradients{.shape = shape_,
                               .dy = output_gradient_.floats(),
                               .x = input_.floats(),
                               .statistics = statistics,
                               .scale = scale,
                               .sums = sums.floats(),
                               .weight = weight_.floats(),
                               .dx = gradients.input.floats()});
    return gradients;
}

BatchNormResult SyncBatchNorm::run() {
    const auto stored = [this](const Tensor& tensor, std::int64_t count) {
        std::vector<float> values(size_of(count));
        device_.download(values.data(), tensor.at(0), bytes_of(values));
        return values;
    };
    const Saved saved = forward();
    BatchNormResult result;
    if (passes_ == BatchNormPasses::both) {
        const Gradients gradients = backward(saved);
        result.input_gradient = stored(gradients.input, shape_.elements());
        result.weight_gradient = stored(gradients.weight, shape_.channels);
        result.bias_gradient = stored(gradients.bias, shape_.channels);
    }
    result.output = stored(saved.output, shape_.elements());
    result.running_mean = stored(running_mean_, shape_.channels);
    result.running_variance = stored(running_variance_, shape_.channels);
    return result;
}

std::vector<Duration> SyncBatchNorm::repeat(std::int64_t iterations,
                                            const std::function<void()>& waiting) {
    std::vector<Duration> times;
    device_.meet();
    Clock::time_point called = Clock::now();
    for (std::int64_t i = 0; i < iterations; ++i) {
        const Clock::time_point begin = Clock::now();
        const Saved saved = forward();
        const Gradients gradients =
            passes_ == BatchNormPasses::both ? backward(saved) : Gradients{};
        device_.finish();
        const Clock::time_point end = Clock::now();
        times.push_back(std::chrono::duration_cast<Duration>(end - begin));
        if (waiting && end - called > std::chrono::seconds{1}) {
            waiting();
            called = end;
        }
    }
    return times;
}

}  // namespace bucketwise
