#include "hw/nccl/gpu_devices.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "hw/gpu/head_start.h"
#include "hw/gpu/kernels/kernels.h"
#include "hw/gpu/matrix_products.h"
#include "hw/gpu/runtime/device_memory.h"
#include "hw/gpu/runtime/gpu_stream.h"

namespace bucketwise {
namespace {

using Clock = std::chrono::steady_clock;

// An act may be several launches: a product, its bias, a memory set; the optimizer one for each
// parameter. So many acts at a time fit the queue behind a head start.
constexpr std::size_t acts_ahead = 32;

// For training, or for BatchNorm alone.
class GpuTrainingDevice : public TrainingDevice {
  public:
    explicit GpuTrainingDevice(Communicators& communicators)
        : communicators_(communicators),
          communication_(StreamPriority::high),
          products_(compute_, Arithmetic::float32),
          scratch_(32) {
        stamp_time_ = time_of_a_stamp(compute_, head_start_, scratch_);
    }

    // Memory that a collective still uses must not go, and cudaFree would wait for it for ever.
    ~GpuTrainingDevice() override {
        head_start_.release();
        if (!ends_well(compute_) || !ends_well(communication_)) {
            communicators_.abort();
        }
    }

    [[nodiscard]] int rank() const override { return communicators_.of_steps().rank(); }
    [[nodiscard]] int ranks() const override { return communicators_.of_steps().ranks(); }
    [[nodiscard]] bool host_is_device() const override { return false; }
    [[nodiscard]] std::int64_t alignment_bytes() const override {
        return DeviceMemory::alignment_bytes;
    }
    [[nodiscard]] std::int64_t workspace_bytes() const override { return products_.memory_bytes(); }

    // Patiently, here and below: making memory and copies wait for the GPU, however long.
    [[nodiscard]] std::shared_ptr<std::byte> raw_memory(std::int64_t bytes) override {
        await_computing();
        return shared_device_block(bytes);
    }

    void upload(void* to, const void* from, std::int64_t bytes) override {
        await_computing();
        copy_to_device(to, from, bytes);
    }

    void download(void* to, const void* from, std::int64_t bytes) override {
        await_computing();
        copy_to_host(to, from, bytes);
    }

    // --- computing ---

    void run(const TrainingPass& pass) override { launch_training(compute_.get(), pass); }
    void run(const BatchNormPass& pass) override { launch_batch_norm(compute_.get(), pass); }

    void linear(const MatrixProduct& p, const float* a, const float* b, const float* bias,
                float* c) override {
        if (p.m > 0) {
            products_.forward(p, a, b, c);
            run(AddBias{.x = c, .bias = bias, .rows = p.m, .columns = p.n});
        }
    }

    void linear_input_gradient(const MatrixProduct& p, const float* c, const float* b,
                               float* a) override {
        if (p.m > 0) {
            products_.input_gradient(p, c, b, a);
        }
    }

    void linear_weight_gradient(const MatrixProduct& p, const float* a, const float* c, float* b,
                                float* bias, bool accumulate) override {
        run(ColumnSums{
            .sums = bias, .x = c, .rows = p.m, .columns = p.n, .accumulate = accumulate});
        if (p.m > 0) {
            products_.weight_gradient(p, a, c, b, DType::float32, 1.0, accumulate ? 1.0 : 0.0);
        } else if (!accumulate) {
            compute_.fill(b, 0, p.k * p.n * element_size(DType::float32).count);
        }
    }

    void copy_scaled(void* to, DType to_dtype, const void* from, DType from_dtype,
                     std::int64_t count, double factor) override {
        if (to != from || factor != 1.0) {
            launch_copy(compute_.get(), to, to_dtype, from, from_dtype, count, factor);
        }
    }

    // --- communicating ---

    void carry(const RankExchange& exchange) override {
        communicators_.of_steps().carry(exchange, compute_);
    }

    void meet() override {
        await_computing();
        NcclCommunicator& communicator = communicators_.of_steps();
        communicator.carry({.own = scratch_.at(0), .size = element_size(DType::float32)},
                           communication_);
        PatientWait(communicator)
            .until([&] { return communication_.is_idle(); }, "meeting all ranks");
    }

    Ticket all_reduce(const RankExchange& exchange) override {
        if (collectives_.size() == launched_) {
            collectives_.emplace_back();
        }
        const Launched& events = collectives_[launched_];
        events.ready.record(compute_);
        events.ready.hold_up(communication_);
        events.begin.record(communication_);
        communicators_.of_steps().carry(exchange, communication_);
        events.end.record(communication_);
        return launched_++;
    }

    void wait_for(Ticket ticket) override { collectives_[ticket].end.hold_up(compute_); }

    void finish() override {
        PatientWait wait(communicators_.of_steps());
        for (std::size_t i = 0; i < launched_; ++i) {
            wait.until([&] { return collectives_[i].end.has_happened(); },
                       "an all-reduce of a step");
        }
        wait.until([&] { return compute_.is_idle() && communication_.is_idle(); }, "a step");
        launched_ = 0;
    }

    // --- measuring ---

    // Times are the GPU's, by events.
    std::vector<OperationTime> time_each(const std::vector<Act>& acts) override {
        std::vector<OperationTime> times;
        for (std::size_t begin = 0; begin < acts.size(); begin += acts_ahead) {
            time_batch(&acts[begin], std::min(acts_ahead, acts.size() - begin), times);
        }
        return times;
    }

    // Passes are launched one ahead, so that none waits for the host unless launching takes longer
    // than running.
    ContentionTimes contend(const RankExchange& message, std::int64_t iterations,
                            const Act& pass) override {
        struct Timed {
            GpuEvent begin{Timing::on};
            GpuEvent end{Timing::on};
        };
        meet();
        for (std::int64_t i = 0; i < iterations; ++i) {
            all_reduce(message);
        }
        const GpuEvent& last = collectives_[launched_ - 1].end;
        ContentionTimes result;
        std::deque<Timed> running;
        PatientWait wait(communicators_.of_steps(), static_cast<std::size_t>(iterations));
        while (!last.has_happened()) {
            while (running.size() < 2) {
                Timed timed;
                timed.begin.record(compute_);
                pass();
                timed.end.record(compute_);
                running.push_back(std::move(timed));
            }
            wait.until([&] { return running.front().end.has_happened() || last.has_happened(); },
                       "contention");
            if (running.front().end.has_happened()) {
                if (!last.has_happened()) {
                    result.passes.push_back(between(running.front().begin, running.front().end));
                }
                running.pop_front();
            }
        }
        wait.until([&] { return compute_.is_idle() && communication_.is_idle(); }, "contention");
        for (std::size_t i = 0; i < launched_; ++i) {
            result.all_reduces.push_back(between(collectives_[i].begin, collectives_[i].end));
        }
        finish();
        return result;
    }

  private:
    struct Launched {
        GpuEvent ready{Timing::off};  // its gradients have been computed
        GpuEvent begin{Timing::on};
        GpuEvent end{Timing::on};
    };

    void await_computing() {
        PatientWait(communicators_.of_steps())
            .until([this] { return compute_.is_idle(); }, "operations");
    }

    void time_batch(const Act* acts, std::size_t count, std::vector<OperationTime>& times) {
        std::vector<GpuEvent> stamps;
        for (std::size_t i = 0; i <= count; ++i) {
            stamps.emplace_back(Timing::on);
        }
        std::vector<Duration> launches;
        {
            const HeadStart::Hold hold(head_start_, compute_);
            stamps[0].record(compute_);
            for (std::size_t i = 0; i < count; ++i) {
                const Clock::time_point issued = Clock::now();
                acts[i]();
                launches.push_back(std::chrono::duration_cast<Duration>(Clock::now() - issued));
                stamps[i + 1].record(compute_);
            }
        }
        await_computing();
        head_start_.check();
        for (std::size_t i = 0; i < count; ++i) {
            times.push_back({std::max(Duration{1}, between(stamps[i], stamps[i + 1]) - stamp_time_),
                             launches[i]});
        }
    }

    Communicators& communicators_;
    GpuStream compute_;
    GpuStream communication_;
    MatrixProducts products_;  // on compute_
    DeviceMemory scratch_;     // by which ranks meet and stamps are timed
    HeadStart head_start_;
    Duration stamp_time_{0};  // that a stamp adds to an interval
    std::size_t launched_ = 0;
    std::vector<Launched> collectives_;  // the first `launched_` are in use
};

}  // namespace

std::unique_ptr<TrainingDevice> gpu_training_device(Communicators& communicators) {
    return std::make_unique<GpuTrainingDevice>(communicators);
}

std::unique_ptr<BatchNormDevice> gpu_batch_norm(Communicators& communicators) {
    return std::make_unique<GpuTrainingDevice>(communicators);
}

}  // namespace bucketwise
