#include "hw/cpu/cpu_rank.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <variant>

#include <fmt/format.h>

#include "hw/compute/elements.h"
#include "hw/compute/gradient_pattern.h"
#include "hw/record/environment.h"

namespace bucketwise {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t map_entry_bytes = 4;

Duration between(Clock::time_point begin, Clock::time_point end) {
    return std::chrono::duration_cast<Duration>(end - begin);
}

}  // namespace

CpuRank::CpuRank(const Scenario& scenario, const Workload& workload, const SyncSettings& sync,
                 Communicator& communicator)
    : ReplayRank(scenario, workload, sync, communicator.rank(), communicator.ranks()),
      buffers_(this->workload().gradients, sync),
      kernels_(kernel_plan(), this->workload().gradients, buffers_, scenario.step.optimizer),
      communicator_(communicator),
      messages_(communicator) {
    for (const BufferGroup& group : workload.buffer_groups) {
        broadcast_.emplace_back(group.size.count);
        module_buffers_.emplace_back(group.size.count);
    }
    unused_map_ = Arena(map_entry_bytes * static_cast<std::int64_t>(workload.gradients.size()));
    CpuRank::lay_out();
}

void CpuRank::lay_out() {
    buffers_.arrange(plan());
}

void CpuRank::calibrate() {
    kernels_.calibrate();
}

StepTrace CpuRank::run(const Program& program, const SyncSettings& sync, const BucketPlan& plan,
                       std::int64_t step, Communicate communicate) {
    begin_step(program, sync, plan, step, communicate);
    tickets_.assign(program.collectives.size(), {});
    thread_.restart();
    std::fill_n(unused_map_.floats(), workload().gradients.size(), 1.0F);
    fill_statistics();
    StepTrace trace;
    trace.instructions.resize(program.instructions.size());
    if (communicate == Communicate::yes) {
        thread_.wait(thread_.launch([this] { messages_.meet(); }));  // all set out together
    }
    const Clock::time_point start = Clock::now();
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        trace.instructions[i].begin = between(start, Clock::now());
        execute(program.instructions[i]);
        trace.instructions[i].end = between(start, Clock::now());
    }
    for (const CommunicationThread::Ticket ticket : tickets_) {
        thread_.wait(ticket);
        const CommunicationThread::Times times = thread_.times(ticket);
        trace.collectives.push_back({between(start, times.begin), between(start, times.end)});
    }
    return trace;
}

void CpuRank::fill_statistics() {
    const std::vector<std::byte>& initial = statistics().initial();
    if (statistics_.size_bytes() < std::ssize(initial)) {
        statistics_ = Arena(std::ssize(initial));
    }
    std::copy(initial.begin(), initial.end(), statistics_.at(0));
}

void CpuRank::copy_in(std::int32_t index) {
    const Gradient& g = gradient(index);
    copy_scaled(buffers_.place_in_bucket(index), buffers_.gradient(index), g.numel, g.dtype,
                step().rules.copy_in_factor(g.dtype));
}

void CpuRank::copy_back(std::int32_t index) {
    const Gradient& g = gradient(index);
    copy_scaled(buffers_.gradient(index), buffers_.place_in_bucket(index), g.numel, g.dtype, 1.0);
}

std::byte* CpuRank::place_on_the_wire(std::int32_t bucket, std::int32_t gradient) {
    return casts(bucket) ? buffers_.compressed_place(gradient) : buffers_.place_in_bucket(gradient);
}

// A CPU has no launches to save: copy by copy, each with its cast.
void CpuRank::pack(std::int32_t index) {
    const Bucket& b = bucket(index);
    for (const std::int32_t of_bucket : b.gradients) {
        cast_scaled(place_on_the_wire(index, of_bucket), wire_dtype_of(index),
                    buffers_.gradient(of_bucket), b.dtype, gradient(of_bucket).numel,
                    step().rules.mean_factor());
    }
}

void CpuRank::unpack(std::int32_t index) {
    const Bucket& b = bucket(index);
    for (const std::int32_t of_bucket : b.gradients) {
        cast_scaled(buffers_.gradient(of_bucket), b.dtype, place_on_the_wire(index, of_bucket),
                    wire_dtype_of(index), gradient(of_bucket).numel, 1.0);
    }
}

void CpuRank::cast_down(std::int32_t index) {
    const Bucket& b = bucket(index);
    cast_scaled(buffers_.compressed(index), wire_dtype_of(index), buffers_.bucket(index), b.dtype,
                numel_of(b), step().rules.mean_factor());
}

void CpuRank::cast_up(std::int32_t index) {
    const Bucket& b = bucket(index);
    cast_scaled(buffers_.bucket(index), b.dtype, buffers_.compressed(index), wire_dtype_of(index),
                numel_of(b), 1.0);
}

void CpuRank::copy_buffers(std::int32_t group) {
    const auto index = static_cast<std::size_t>(group);
    std::memcpy(module_buffers_[index].at(0), broadcast_[index].at(0),
                static_cast<std::size_t>(broadcast_[index].size_bytes()));
}

void CpuRank::launch(std::int32_t collective) {
    tickets_[static_cast<std::size_t>(collective)] = thread_.launch(
        std::visit([&](const auto& moved) { return job_of(moved); }, movement(collective)));
}

void CpuRank::wait_for(std::int32_t collective) {
    thread_.wait(tickets_[static_cast<std::size_t>(collective)]);
}

bool CpuRank::is_free() const {
    return step().communicate == Communicate::for_free;
}

CommunicationThread::Job CpuRank::job_of(const BufferBroadcast& moved) {
    if (is_free()) {
        return [] {};
    }
    std::byte* data = broadcast_[static_cast<std::size_t>(moved.group)].at(0);
    return [this, data, size = moved.size] { communicator_.broadcast_from_first(data, size); };
}

CommunicationThread::Job CpuRank::job_of(const UnusedMapSum& moved) {
    if (is_free()) {
        return [] {};
    }
    std::byte* data = unused_map_.at(0);
    return [this, data, elements = moved.elements] {
        communicator_.all_reduce_sum(data, elements, DType::float32);
    };
}

// Where no copy divides, the collective averages, as NCCL's does. That is computing, so it is not
// free.
CommunicationThread::Job CpuRank::job_of(const BucketReduction& moved) {
    std::byte* data =
        moved.casts ? buffers_.compressed(moved.bucket) : buffers_.bucket(moved.bucket);
    return [this, data, moved, is_free = is_free(), mean = step().rules.mean_factor()] {
        if (!is_free) {
            communicator_.all_reduce_sum(data, moved.elements, moved.dtype);
        }
        if (moved.averages) {
            copy_scaled(data, data, moved.elements, moved.dtype, mean);
        }
    };
}

CommunicationThread::Job CpuRank::job_of(const StatisticsExchange& moved) {
    if (is_free()) {
        return [] {};
    }
    std::byte* own = statistics_.at(moved.own_offset);
    std::byte* all = statistics_.at(moved.all_offset);
    return [this, own, all, moved] {
        if (moved.gathers) {
            communicator_.all_gather(own, all, moved.own_size());
        } else {
            communicator_.all_reduce_sum(own, moved.elements, moved.dtype);
        }
    };
}

StepCheck CpuRank::check() {
    StepCheck check;
    const double mean = exact_mean();
    const std::vector<double> relative = tolerances();
    for (std::size_t i = 0; i < relative.size(); ++i) {
        const Gradient& gradient = workload().gradients[i];
        const auto index = static_cast<std::int32_t>(i);
        const ElementCheck found =
            check_gradient(buffers_.gradient(index), gradient.dtype, gradient.numel,
                           kernel_plan().columns[i], gradient_factor(index) * mean, relative[i]);
        if (!(found.largest_difference <= check.largest_difference)) {
            check.largest_difference = found.largest_difference;
        }
        if (found.wrong_element >= 0 && check.wrong.empty()) {
            check.wrong =
                fmt::format("gradient {}, element {}: expected the mean {}, got {}", gradient.name,
                            found.wrong_element, found.expected, found.got);
        }
    }
    if (step().reduces_unused_map) {
        check_unused_map({unused_map_.floats(), relative.size()}, check);
    }
    const std::byte* exchanged = statistics_.at(0);
    check_statistics({exchanged, exchanged + statistics().initial().size()}, check);
    return check;
}

// run() stamps every instruction as it is.
std::optional<StepTrace> CpuRank::run_each(const Program& /*program*/, const SyncSettings& /*sync*/,
                                           const BucketPlan& /*plan*/, std::int64_t /*step*/) {
    return std::nullopt;
}

AllReduceTrace CpuRank::all_reduce(const Message& message, std::int64_t iterations) {
    return messages_.all_reduce(message, iterations);
}

std::vector<Duration> CpuRank::repeat(const Message& message, std::int64_t iterations,
                                      const std::function<void()>& waiting) {
    return messages_.repeat(message, iterations, waiting);
}

std::int64_t CpuRank::peak_memory_bytes() const {
    return messages_.peak_memory_bytes();
}

void CpuRank::warm_up_backward() {
    time_backward();
}

std::vector<Duration> CpuRank::time_backward() {
    std::vector<Duration> times(workload().backward.size());
    for (std::size_t i = 0; i < times.size(); ++i) {
        const Clock::time_point begin = Clock::now();
        kernels_.backward(static_cast<std::int32_t>(i), 1.0F, false);
        times[i] = between(begin, Clock::now());
    }
    return times;
}

ContentionTrace CpuRank::contend(const Message& message, std::int64_t iterations,
                                 const std::vector<Duration>& alone) {
    const std::vector<CommunicationThread::Ticket> tickets = messages_.launch(message, iterations);
    ContentionTrace trace;
    // The first operation may begin before the first all-reduce does, the last one does not end
    // before the last all-reduce: neither counts.
    for (std::size_t i = 0; !thread_.has_ended(tickets.back()); i = (i + 1) % alone.size()) {
        const bool communicating = thread_.has_begun(tickets.front());
        const Clock::time_point begin = Clock::now();
        kernels_.backward(static_cast<std::int32_t>(i), 1.0F, false);
        const Clock::time_point end = Clock::now();
        if (communicating && !thread_.has_ended(tickets.back())) {
            trace.compute.disturbed += between(begin, end);
            trace.compute.alone += alone[i];
        }
    }
    trace.times = messages_.times_of(tickets);
    return trace;
}

}  // namespace bucketwise
