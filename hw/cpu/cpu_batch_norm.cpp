#include "hw/cpu/cpu_devices.h"

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

// What one strip's rows sum up to.
struct StripSums {
    std::array<double, strip> first{};
    std::array<double, strip> second{};
};

template <SumsRows Pass>
void go_over(const Pass& pass) {
    for_each_strip(pass.shape.channels, [&](std::int64_t first, std::int64_t width) {
        StripSums sums;
        for (std::int64_t row = 0; row < pass.shape.rows; ++row) {
            const std::int64_t begin = row * pass.shape.channels + first;
            for (std::int64_t i = 0; i < width; ++i) {
                const ChannelSums of_element = pass.terms(begin + i, first + i);
                const auto place = static_cast<std::size_t>(i);
                sums.first[place] += of_element.first;
                sums.second[place] += of_element.second;
            }
        }
        for (std::int64_t i = 0; i < width; ++i) {
            const auto place = static_cast<std::size_t>(i);
            pass.store({sums.first[place], sums.second[place]}, first + i);
        }
    });
}

template <typename Pass>
void go_over(const Pass& pass) {
    for (std::int64_t channel = 0; channel < pass.shape.channels; ++channel) {
        pass.of_channel(channel);
    }
}

// What is known of a channel is there already, so whole rows are gone through.
void go_over(const Normalise& pass) {
    for (std::int64_t row = 0; row < pass.shape.rows; ++row) {
        const std::int64_t begin = row * pass.shape.channels;
        for (std::int64_t c = 0; c < pass.shape.channels; ++c) {
            pass.write(begin + c, pass.known_of(c));
        }
    }
}

void go_over(const InputGradients& pass) {
    for_each_strip(pass.shape.channels, [&](std::int64_t first, std::int64_t width) {
        std::array<InputGradients::Channel, strip> of_channel;
        for (std::int64_t i = 0; i < width; ++i) {
            of_channel[static_cast<std::size_t>(i)] = pass.known_of(first + i);
        }
        for (std::int64_t row = 0; row < pass.shape.rows; ++row) {
            const std::int64_t begin = row * pass.shape.channels + first;
            for (std::int64_t i = 0; i < width; ++i) {
                pass.write(begin + i, of_channel[static_cast<std::size_t>(i)]);
            }
        }
    });
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

    void run(const BatchNormPass& pass) override {
        std::visit([](const auto& one) { go_over(one); }, pass);
    }

    void carry(const RankExchange& exchange) override {
        bucketwise::carry(communicator_, exchange);
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
