#include "hw/cpu/cpu_batch_norm.h"

#include <algorithm>
#include <array>

#include "hw/compute/arena.h"
#include "hw/launch/processor_affinity.h"

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

class CpuBatchNorm : public BatchNormDevice {
  public:
    explicit CpuBatchNorm(Communicator& communicator)
        : communicator_(communicator),
          limit_(ProcessorLimit::away_from_transport(communicator.rank())) {}

    [[nodiscard]] int ranks() const override { return communicator_.ranks(); }

    [[nodiscard]] std::shared_ptr<std::byte> allocate(std::int64_t bytes) override {
        const auto arena = std::make_shared<Arena>(bytes);
        return {arena, arena->at(0)};
    }

    void copy_in(float* to, const std::vector<float>& from) override {
        std::copy(from.begin(), from.end(), to);
    }

    void copy_out(std::vector<float>& to, const float* from) override {
        std::copy_n(from, to.size(), to.begin());
    }

    void finish() override {}

    void meet() override {
        float one = 1.0F;
        communicator_.all_reduce_sum(&one, 1, DType::float32);
    }

    void local_statistics(const float* x, const BatchShape& shape, float* to) override {
        const auto rows = static_cast<double>(shape.rows);
        sum_over_rows(shape, squares_of(x), [&](std::int64_t channel, const ChannelSums& sums) {
            store_local_statistics(sums, rows, to, shape.channels, channel);
        });
    }

    void combine(const float* gathered, const BatchShape& shape,
                 const ChannelStatistics& to) override {
        for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
            store_statistics(combined_moments(gathered, ranks(), shape.channels, channel), to,
                             channel);
        }
    }

    void local_sums(const float* x, const BatchShape& shape, double* to) override {
        const auto rows = static_cast<double>(shape.rows);
        sum_over_rows(shape, squares_of(x), [&](std::int64_t channel, const ChannelSums& sums) {
            store_local_sums(sums, rows, to, shape.channels, channel);
        });
    }

    void statistics_of_sums(const double* sums, const BatchShape& shape,
                            const ChannelStatistics& to) override {
        for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
            store_statistics(reduced_moments(sums, shape.channels, channel), to, channel);
        }
    }

    void normalise(const float* x, const BatchShape& shape, const ChannelStatistics& statistics,
                   const float* weight, const float* bias, float* y) override {
        for (std::int64_t row = 0; row < shape.rows; ++row) {
            const std::int64_t begin = row * shape.channels;
            for (std::int64_t c = 0; c < shape.channels; ++c) {
                y[begin + c] = normalised(x[begin + c], statistics.mean[c], statistics.inverse[c],
                                          weight[c], bias[c]);
            }
        }
    }

    void gradient_sums(const float* dy, const float* x, const BatchShape& shape,
                       const ChannelStatistics& statistics, GradientScale scale,
                       const GradientSums& to) override {
        const auto terms = [&](std::int64_t element, std::int64_t channel) {
            const double gradient = dy[element];
            return ChannelSums{gradient, gradient * (x[element] - statistics.mean[channel])};
        };
        sum_over_rows(shape, terms, [&](std::int64_t channel, const ChannelSums& sums) {
            store_gradient_sums(sums, statistics, to, shape.channels, channel, scale);
        });
    }

    void input_gradients(const float* dy, const float* x, const BatchShape& shape,
                         const ChannelStatistics& statistics, GradientScale scale,
                         const float* sums, const float* weight, float* dx) override {
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

    void all_gather(const float* own, float* all, std::int64_t elements) override {
        communicator_.all_gather(own, all, elements * element_size(DType::float32));
    }

    void all_reduce_sum(void* data, std::int64_t elements, DType dtype) override {
        communicator_.all_reduce_sum(data, elements, dtype);
    }

  private:
    Communicator& communicator_;
    ProcessorLimit limit_;
};

}  // namespace

std::unique_ptr<BatchNormDevice> cpu_batch_norm(Communicator& communicator) {
    return std::make_unique<CpuBatchNorm>(communicator);
}

}  // namespace bucketwise
