#include "hw/nccl/gpu_training_device.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <utility>

#include "hw/gpu/kernels/kernels.h"
#include "hw/gpu/kernels/training_kernels.h"

namespace bucketwise {
namespace {

using Clock = std::chrono::steady_clock;
using NcclReduction = bucketwise::Reduction;

// An act may be several launches: a product, its bias, a memory set; the optimizer one for each
// parameter. So many acts at a time fit the queue behind a head start.
constexpr std::size_t acts_ahead = 32;

}  // namespace

GpuTrainingDevice::GpuTrainingDevice(Communicators& communicators)
    : communicators_(communicators),
      communication_(StreamPriority::high),
      products_(compute_, Arithmetic::float32),
      scratch_(32) {
    stamp_time_ = time_of_a_stamp(compute_, head_start_, scratch_);
}

// Memory that a collective still uses must not go, and cudaFree would wait for it for ever.
GpuTrainingDevice::~GpuTrainingDevice() {
    head_start_.release();
    if (!ends_well(compute_) || !ends_well(communication_)) {
        communicators_.abort();
    }
}

// --- memory ---

std::shared_ptr<std::byte> GpuTrainingDevice::raw_memory(std::int64_t bytes) {
    const auto memory = std::make_shared<DeviceMemory>(bytes);
    return {memory, memory->at(0)};
}

void GpuTrainingDevice::upload(void* to, const void* from, std::int64_t bytes) {
    compute_.wait();
    if (bytes > 0) {
        check_gpu(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice),
                  "cudaMemcpy");
        check_gpu(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
}

void GpuTrainingDevice::download(void* to, const void* from, std::int64_t bytes) {
    compute_.wait();
    if (bytes > 0) {
        check_gpu(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost),
                  "cudaMemcpy");
    }
}

// --- computing ---

void GpuTrainingDevice::gather(const GatherCall& call) {
    launch_gather(compute_.get(), call);
}

void GpuTrainingDevice::linear(const MatrixProduct& p, const float* a, const float* b,
                               const float* bias, float* c) {
    if (p.m > 0) {
        products_.forward(p, a, b, c);
        launch_add_bias(compute_.get(), c, bias, p.m, p.n);
    }
}

void GpuTrainingDevice::linear_input_gradient(const MatrixProduct& p, const float* c,
                                              const float* b, float* a) {
    if (p.m > 0) {
        products_.input_gradient(p, c, b, a);
    }
}

void GpuTrainingDevice::linear_weight_gradient(const MatrixProduct& p, const float* a,
                                               const float* c, float* b, float* bias,
                                               bool accumulate) {
    launch_column_sums(compute_.get(), bias, c, p.m, p.n, accumulate);
    if (p.m > 0) {
        products_.weight_gradient(p, a, c, b, DType::float32, 1.0, accumulate ? 1.0 : 0.0);
    } else if (!accumulate) {
        check_gpu(cudaMemsetAsync(b, 0, static_cast<std::size_t>(p.k * p.n) * sizeof(float),
                                  compute_.get()),
                  "cudaMemsetAsync");
    }
}

void GpuTrainingDevice::relu(float* x, std::int64_t count) {
    launch_relu(compute_.get(), x, count);
}

void GpuTrainingDevice::relu_gradient(float* gradient, const float* activation,
                                      std::int64_t count) {
    launch_relu_gradient(compute_.get(), gradient, activation, count);
}

void GpuTrainingDevice::cross_entropy(const CrossEntropyCall& call) {
    launch_cross_entropy(compute_.get(), call);
}

void GpuTrainingDevice::sgd(const SgdCall& call) {
    launch_sgd(compute_.get(), call);
}

void GpuTrainingDevice::copy_scaled(void* to, DType to_dtype, const void* from, DType from_dtype,
                                    std::int64_t count, double factor) {
    if (to != from || factor != 1.0) {
        launch_copy(compute_.get(), to, to_dtype, from, from_dtype, count, factor);
    }
}

// --- communicating ---

void GpuTrainingDevice::meet() {
    compute_.wait();
    NcclCommunicator& communicator = communicators_.of_steps();
    communicator.all_reduce(scratch_.at(0), 1, DType::float32, NcclReduction::sum, communication_);
    PatientWait(communicator).until([&] { return communication_.is_idle(); }, "meeting all ranks");
}

TrainingDevice::Ticket GpuTrainingDevice::all_reduce(void* data, std::int64_t elements, DType dtype,
                                                     Reduction reduction) {
    if (collectives_.size() == launched_) {
        collectives_.emplace_back();
    }
    const Launched& events = collectives_[launched_];
    events.ready.record(compute_);
    events.ready.hold_up(communication_);
    events.begin.record(communication_);
    communicators_.of_steps().all_reduce(
        data, elements, dtype,
        reduction == Reduction::mean ? NcclReduction::mean : NcclReduction::sum, communication_);
    events.end.record(communication_);
    return launched_++;
}

void GpuTrainingDevice::wait_for(Ticket ticket) {
    collectives_[ticket].end.hold_up(compute_);
}

void GpuTrainingDevice::finish() {
    PatientWait wait(communicators_.of_steps());
    for (std::size_t i = 0; i < launched_; ++i) {
        wait.until([&] { return collectives_[i].end.has_happened(); }, "an all-reduce of a step");
    }
    wait.until([&] { return compute_.is_idle() && communication_.is_idle(); }, "a step");
    launched_ = 0;
}

// --- measuring ---

std::vector<OperationTime> GpuTrainingDevice::time_each(const std::vector<Act>& acts) {
    std::vector<OperationTime> times;
    for (std::size_t begin = 0; begin < acts.size(); begin += acts_ahead) {
        time_batch(&acts[begin], std::min(acts_ahead, acts.size() - begin), times);
    }
    return times;
}

void GpuTrainingDevice::time_batch(const Act* acts, std::size_t count,
                                   std::vector<OperationTime>& times) {
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
    PatientWait(communicators_.of_steps()).until([&] { return compute_.is_idle(); }, "operations");
    head_start_.check();
    for (std::size_t i = 0; i < count; ++i) {
        times.push_back(
            {std::max(Duration{1}, between(stamps[i], stamps[i + 1]) - stamp_time_), launches[i]});
    }
}

// Passes are launched one ahead, so that none waits for the host unless launching takes longer than
// running.
ContentionTimes GpuTrainingDevice::contend(float* data, std::int64_t elements,
                                           std::int64_t iterations, const Act& pass) {
    struct Timed {
        GpuEvent begin{Timing::on};
        GpuEvent end{Timing::on};
    };
    meet();
    for (std::int64_t i = 0; i < iterations; ++i) {
        all_reduce(data, elements, DType::float32, Reduction::sum);
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

}  // namespace bucketwise
