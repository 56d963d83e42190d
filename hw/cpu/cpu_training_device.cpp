#include "hw/cpu/cpu_devices.h"

#include <chrono>
#include <cstring>

#include <Eigen/Core>

#include "hw/compute/arena.h"
#include "hw/compute/elements.h"
#include "hw/cpu/blas.h"
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
            carry(communicator_, exchange);
            if (exchange.averages) {
                bucketwise::copy_scaled(exchange.own, exchange.own, exchange.elements(),
                                        exchange.dtype, 1.0 / communicator_.ranks());
            }
        }));
        return tickets_.back();
    }

    void wait_for(Ticket ticket) override { thread_.wait(ticket); }

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

  protected:
    [[nodiscard]] std::shared_ptr<std::byte> raw_memory(std::int64_t bytes) override {
        const auto arena = std::make_shared<Arena>(bytes);
        return {arena, arena->at(0)};
    }

  private:
    Communicator& communicator_;
    std::vector<Ticket> tickets_;
    IsolatedMessages messages_;  // last, so that its thread ends first
    CommunicationThread& thread_ = messages_.thread();
};

}  // namespace

std::unique_ptr<TrainingDevice> cpu_training_device(Communicator& communicator) {
    return std::make_unique<CpuTrainingDevice>(communicator);
}

}  // namespace bucketwise
