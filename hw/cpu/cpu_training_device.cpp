#include "hw/cpu/cpu_devices.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include <Eigen/Core>

#include "hw/compute/arena.h"
#include "hw/compute/elements.h"
#include "hw/cpu/blas.h"
#include "hw/launch/processor_affinity.h"
#include "hw/rank/isolated_messages.h"

namespace bucketwise {
namespace {

using Clock = std::chrono::steady_clock;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using In = Eigen::Map<const Matrix>;
using Out = Eigen::Map<Matrix>;
using OutRow = Eigen::Map<Eigen::RowVectorXf>;

Duration since(Clock::time_point begin) {
    return std::chrono::duration_cast<Duration>(Clock::now() - begin);
}

// --- BatchNorm's passes ---

// Channels that are gone through together, row by row: their sums stay in the cache nearest.
constexpr std::int64_t strip = 64;

// Calls act(first channel, how many) for strips of channels, side by side.
template <typename Act>
void for_each_strip(std::int64_t channels, const Act& act) {
    for (std::int64_t first = 0; first < channels; first += strip) {
        act(first, std::min(strip, channels - first));
    }
}

// The sums over one strip's rows.
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

// Each channel's factors are there already, so whole rows are gone through.
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

// --- the device ---

// For training, or for BatchNorm alone.
class CpuTrainingDevice : public TrainingDevice {
  public:
    explicit CpuTrainingDevice(Communicator& communicator)
        : communicator_(communicator), messages_(communicator) {
        compute_on_one_blas_thread();
    }

    [[nodiscard]] int rank() const override { return communicator_.rank(); }
    [[nodiscard]] int ranks() const override { return communicator_.ranks(); }
    [[nodiscard]] bool host_is_device() const override { return true; }
    [[nodiscard]] std::int64_t alignment_bytes() const override { return Arena::alignment_bytes; }
    [[nodiscard]] std::int64_t workspace_bytes() const override { return 0; }

    void upload(void* to, const void* from, std::int64_t bytes) override {
        if (bytes > 0) {
            std::memcpy(to, from, static_cast<std::size_t>(bytes));
        }
    }

    void download(void* to, const void* from, std::int64_t bytes) override {
        upload(to, from, bytes);
    }

    // --- computing ---

    void run(const TrainingPass& pass) override {
        std::visit([](const auto& one) { one(0, 1); }, pass);
    }

    void run(const BatchNormPass& pass) override {
        std::visit([](const auto& one) { go_over(one); }, pass);
    }

    void linear(const MatrixProduct& p, const float* a, const float* b, const float* bias,
                float* c) override {
        if (p.m > 0) {
            Out(c, p.m, p.n).noalias() = In(a, p.m, p.k) * In(b, p.k, p.n);
            AddBias{.x = c, .bias = bias, .rows = p.m, .columns = p.n}(0, 1);
        }
    }

    void linear_input_gradient(const MatrixProduct& p, const float* c, const float* b,
                               float* a) override {
        if (p.m > 0) {
            Out(a, p.m, p.k).noalias() = In(c, p.m, p.n) * In(b, p.k, p.n).transpose();
        }
    }

    void linear_weight_gradient(const MatrixProduct& p, const float* a, const float* c, float* b,
                                float* bias, bool accumulate) override {
        Out weight(b, p.k, p.n);
        OutRow sums(bias, p.n);
        if (!accumulate) {
            sums.setZero();
        }
        if (p.m == 0) {
            if (!accumulate) {
                weight.setZero();
            }
            return;
        }
        const In in(a, p.m, p.k);
        const In out(c, p.m, p.n);
        sums += out.colwise().sum();
        if (accumulate) {
            weight.noalias() += in.transpose() * out;
        } else {
            weight.noalias() = in.transpose() * out;
        }
    }

    void copy_scaled(void* to, DType to_dtype, const void* from, DType from_dtype,
                     std::int64_t count, double factor) override {
        if (to_dtype == from_dtype) {
            bucketwise::copy_scaled(to, from, count, to_dtype, factor);
        } else {
            cast_scaled(to, to_dtype, from, from_dtype, count, factor);
        }
    }

    // --- communicating ---

    void meet() override {
        thread_.wait(thread_.launch([this] { messages_.meet(); }));
        tickets_.clear();
        thread_.restart();
    }

    Ticket all_reduce(const RankExchange& exchange) override {
        tickets_.push_back(thread_.launch([this, exchange] {
            bucketwise::carry(communicator_, exchange);
            if (exchange.averages) {
                bucketwise::copy_scaled(exchange.own, exchange.own, exchange.elements(),
                                        exchange.dtype, 1.0 / communicator_.ranks());
            }
        }));
        return tickets_.back();
    }

    void wait_for(Ticket ticket) override { thread_.wait(ticket); }

    // By the computing thread: nothing could go on meanwhile.
    void carry(const RankExchange& exchange) override {
        bucketwise::carry(communicator_, exchange);
    }

    void finish() override {
        for (const Ticket ticket : tickets_) {
            thread_.wait(ticket);
        }
        tickets_.clear();
        thread_.restart();
    }

    // --- measuring ---

    std::vector<OperationTime> time_each(const std::vector<Act>& acts) override {
        std::vector<OperationTime> times;
        times.reserve(acts.size());
        for (const Act& act : acts) {
            const Clock::time_point begin = Clock::now();
            act();
            times.push_back({.device = since(begin)});
        }
        return times;
    }

    ContentionTimes contend(const RankExchange& message, std::int64_t iterations,
                            const Act& pass) override {
        meet();
        std::vector<Ticket> tickets;
        for (std::int64_t i = 0; i < iterations; ++i) {
            tickets.push_back(all_reduce(message));
        }
        ContentionTimes result;
        while (!thread_.has_ended(tickets.back())) {
            const Clock::time_point begin = Clock::now();
            pass();
            const Duration time = since(begin);
            if (!thread_.has_ended(tickets.back())) {
                result.passes.push_back(time);
            }
        }
        result.all_reduces = messages_.times_of(tickets);
        finish();
        return result;
    }

    [[nodiscard]] std::shared_ptr<std::byte> raw_memory(std::int64_t bytes) override {
        return shared_block(bytes);
    }

  private:
    Communicator& communicator_;
    std::vector<Ticket> tickets_;
    IsolatedMessages messages_;  // last, so that its thread ends first
    CommunicationThread& thread_ = messages_.thread();
};

class CpuBatchNorm : public CpuTrainingDevice {
  public:
    explicit CpuBatchNorm(Communicator& communicator)
        : CpuTrainingDevice(communicator),
          limit_(ProcessorLimit::away_from_transport(communicator.rank())) {}

  private:
    ProcessorLimit limit_;
};

}  // namespace

std::unique_ptr<TrainingDevice> cpu_training_device(Communicator& communicator) {
    return std::make_unique<CpuTrainingDevice>(communicator);
}

std::unique_ptr<BatchNormDevice> cpu_batch_norm(Communicator& communicator) {
    return std::make_unique<CpuBatchNorm>(communicator);
}

}  // namespace bucketwise
