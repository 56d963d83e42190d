#include "hw/cpu/cpu_batch_norm.h"

#include <algorithm>
#include <array>

#include "hw/compute/arena.h"

namespace bucketwise {
namespace {

// Channels that are gone through together, row by row: their sums stay in the cache nearest.
constexpr std::int64_t strip = 64;

// Calls act(first channel, how many) for strips of channels, side by side.
template <typename Act>
void for_each_strip(std::int64_t channels, const Act& act) {
    for (std::int64_t first = 0; first < channels; first += strip) {
        act(first, std::min(strip, channels - first));
    }
}

// What one strip's rows sum up to: act(element, channel within the strip) gives the two terms.
struct StripSums {
    std::array<double, strip> first{};
    std::array<double, strip> second{};
};

template <typename Terms>
StripSums sums_of_strip(const BatchShape& shape, std::int64_t first, std::int64_t width,
                        const Terms& terms) {
    StripSums sums;
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        const std::int64_t begin = row * shape.channels + first;
        for (std::int64_t i = 0; i < width; ++i) {
            const ChannelSums of_element = terms(begin + i, first + i);
            const auto place = static_cast<std::size_t>(i);
            sums.first[place] += of_element.first;
            sums.second[place] += of_element.second;
        }
    }
    return sums;
}

// Calls act(channel, its sums) for every channel.
template <typename Terms, typename Act>
void sum_over_rows(const BatchShape& shape, const Terms& terms, const Act& act) {
    for_each_strip(shape.channels, [&](std::int64_t first, std::int64_t width) {
        const StripSums sums = sums_of_strip(shape, first, width, terms);
        for (std::int64_t i = 0; i < width; ++i) {
            const auto place = static_cast<std::size_t>(i);
            act(first + i, ChannelSums{sums.first[place], sums.second[place]});
        }
    });
}

auto squares_of(const float* x) {
    return [x](std::int64_t element, std::int64_t /*channel*/) {
        const double value = x[element];
        return ChannelSums{value, value * value};
    };
}

}  // namespace

std::shared_ptr<std::byte> CpuBatchNorm::allocate(std::int64_t bytes) {
    const auto arena = std::make_shared<Arena>(bytes);
    return {arena, arena->at(0)};
}

void CpuBatchNorm::copy_in(float* to, const std::vector<float>& from) {
    std::copy(from.begin(), from.end(), to);
}

void CpuBatchNorm::copy_out(std::vector<float>& to, const float* from) {
    std::copy_n(from, to.size(), to.begin());
}

void CpuBatchNorm::meet() {
    float one = 1.0F;
    communicator_.all_reduce_sum(&one, 1, DType::float32);
}

void CpuBatchNorm::local_statistics(const float* x, const BatchShape& shape, float* to) {
    const auto rows = static_cast<double>(shape.rows);
    sum_over_rows(shape, squares_of(x), [&](std::int64_t channel, const ChannelSums& sums) {
        store_local_statistics(sums, rows, to, shape.channels, channel);
    });
}

void CpuBatchNorm::combine(const float* gathered, const BatchShape& shape,
                           const ChannelStatistics& to) {
    for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
        store_statistics(combined_moments(gathered, ranks(), shape.channels, channel), to, channel);
    }
}

void CpuBatchNorm::local_sums(const float* x, const BatchShape& shape, double* to) {
    const auto rows = static_cast<double>(shape.rows);
    sum_over_rows(shape, squares_of(x), [&](std::int64_t channel, const ChannelSums& sums) {
        store_local_sums(sums, rows, to, shape.channels, channel);
    });
}

void CpuBatchNorm::statistics_of_sums(const double* sums, const BatchShape& shape,
                                      const ChannelStatistics& to) {
    for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
        store_statistics(reduced_moments(sums, shape.channels, channel), to, channel);
    }
}

void CpuBatchNorm::normalise(const float* x, const BatchShape& shape,
                             const ChannelStatistics& statistics, const float* weight,
                             const float* bias, float* y) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        const std::int64_t begin = row * shape.channels;
        for (std::int64_t c = 0; c < shape.channels; ++c) {
            y[begin + c] = normalised(x[begin + c], statistics.mean[c], statistics.inverse[c],
                                      weight[c], bias[c]);
        }
    }
}

void CpuBatchNorm::gradient_sums(const float* dy, const float* x, const BatchShape& shape,
                                 const ChannelStatistics& statistics, GradientScale scale,
                                 const GradientSums& to) {
    const auto terms = [&](std::int64_t element, std::int64_t channel) {
        const double gradient = dy[element];
        return ChannelSums{gradient, gradient * (x[element] - statistics.mean[channel])};
    };
    sum_over_rows(shape, terms, [&](std::int64_t channel, const ChannelSums& sums) {
        store_gradient_sums(sums, statistics, to, shape.channels, channel, scale);
    });
}

void CpuBatchNorm::input_gradients(const float* dy, const float* x, const BatchShape& shape,
                                   const ChannelStatistics& statistics, GradientScale scale,
                                   const float* sums, const float* weight, float* dx) {
    for_each_strip(shape.channels, [&](std::int64_t first, std::int64_t width) {
        std::array<ChannelGradient, strip> of_channel;
        for (std::int64_t i = 0; i < width; ++i) {
            of_channel[static_cast<std::size_t>(i)] =
                channel_gradient(sums, statistics, weight, shape.channels, first + i, scale);
        }
        for (std::int64_t row = 0; row < shape.rows; ++row) {
            const std::int64_t begin = row * shape.channels + first;
            for (std::int64_t i = 0; i < width; ++i) {
                dx[begin + i] = input_gradient(dy[begin + i], x[begin + i],
                                               of_channel[static_cast<std::size_t>(i)]);
            }
        }
    });
}

void CpuBatchNorm::all_gather(const float* own, float* all, std::int64_t elements) {
    communicator_.all_gather(own, all, elements * element_size(DType::float32));
}

void CpuBatchNorm::all_reduce_sum(void* data, std::int64_t elements, DType dtype) {
    communicator_.all_reduce_sum(data, elements, dtype);
}

}  // namespace bucketwise
