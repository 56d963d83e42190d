#include "hw/cpu_rank.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <variant>

#include <fmt/format.h>

#include "hw/elements.h"
#include "hw/environment.h"
#include "hw/gradient_pattern.h"
#include "sim/invariant.h"

namespace bucketwise {
namespace {

using Clock = std::chrono::steady_clock;

Duration between(Clock::time_point begin, Clock::time_point end) {
    return std::chrono::duration_cast<Duration>(end - begin);
}

DType dtype_of(CommHook hook) {
    return hook == CommHook::bf16 ? DType::bfloat16 : DType::float16;
}

}  // namespace

CpuRank::CpuRank(const Scenario& scenario, const Workload& workload, const SyncSettings& sync,
                 Communicator& communicator)
    : workload_(workload),
      accumulation_(scenario.step.accumulation),
      value_scale_(scale_within_float16(communicator.ranks(), accumulation_)),
      kernel_plan_(plan_kernels(workload_, model_behind(scenario))),
      buffers_(workload_.gradients, sync),
      kernels_(kernel_plan_, workload_.gradients, buffers_, scenario.step.optimizer),
      communicator_(communicator),
      messages_(communicator, thread_),
      thread_(communicator.rank()) {
    for (const BufferGroup& group : workload_.buffer_groups) {
        broadcast_.emplace_back(group.size.count);
        module_buffers_.emplace_back(group.size.count);
    }
    unused_map_ = Arena(4 * static_cast<std::int64_t>(workload_.gradients.size()));
    // Gradients that live in buckets need a place also before the first step, and without buckets.
    arrange(make_plan(workload_.gradients, workload_.readiness, sync.policy));
}

void CpuRank::arrange(const BucketPlan& plan) {
    arranged_ = plan;
    buffers_.arrange(plan);
}

void CpuRank::calibrate() {
    kernels_.calibrate();
}

StepTrace CpuRank::run(const Program& program, const SyncSettings& sync, const BucketPlan& plan,
                       std::int64_t step, Communicate communicate) {
    if (!plan.buckets.empty() && !(arranged_ == plan)) {
        arrange(plan);
    }
    step_ = {.program = &program,
             .sync = sync,
             .plan = &arranged_,
             .number = step,
             .communicate = communicate,
             .tickets = std::vector<CommunicationThread::Ticket>(program.collectives.size())};
    thread_.restart();
    std::fill_n(unused_map_.floats(), workload_.gradients.size(), 1.0F);
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
    for (const CommunicationThread::Ticket ticket : step_.tickets) {
        thread_.wait(ticket);
        const CommunicationThread::Times times = thread_.times(ticket);
        trace.collectives.push_back({between(start, times.begin), between(start, times.end)});
    }
    return trace;
}

void CpuRank::execute(const Instruction& instruction) {
    switch (instruction.kind) {
        case InstructionKind::copy_buffers:
            return copy_buffers(instruction.subject);
        case InstructionKind::forward:
            return kernels_.forward(instruction.subject);
        case InstructionKind::backward:
            return backward(instruction.subject);
        case InstructionKind::copy_in:
            return copy_in(instruction.subject);
        case InstructionKind::pack:
            return pack(instruction.subject);
        case InstructionKind::cast_down:
            return cast_down(instruction.subject);
        case InstructionKind::launch:
            return launch(instruction.subject);
        case InstructionKind::wait:
            return thread_.wait(step_.tickets[static_cast<std::size_t>(instruction.subject)]);
        case InstructionKind::cast_up:
            return cast_up(instruction.subject);
        case InstructionKind::unpack:
            return unpack(instruction.subject);
        case InstructionKind::copy_back:
            return copy_back(instruction.subject);
        case InstructionKind::optimizer:
            return kernels_.optimizer();
    }
}

// The last operation of backward ends a micro-step.
void CpuRank::backward(std::int32_t operation) {
    const float value = value_scale_ * static_cast<float>(rank_value(
                                           communicator_.rank(), step_.number, step_.micro_step));
    kernels_.backward(operation, value, step_.micro_step > 0);
    if (operation + 1 == static_cast<std::int32_t>(workload_.backward.size())) {
        ++step_.micro_step;
    }
}

double CpuRank::mean_factor() const {
    return 1.0 / communicator_.ranks();
}

bool CpuRank::casts(std::int32_t bucket) const {
    const DType dtype = step_.plan->buckets[static_cast<std::size_t>(bucket)].dtype;
    return step_.sync.comm_hook != CommHook::none && element_size(dtype) > Bytes{2};
}

std::int64_t CpuRank::numel_of(const Bucket& bucket) const {
    return bucket.size.count / element_size(bucket.dtype).count;
}

// DDP divides on the way into the bucket; a hook divides when it casts.
void CpuRank::copy_in(std::int32_t gradient) {
    const Gradient& g = workload_.gradients[static_cast<std::size_t>(gradient)];
    const bool hook_divides =
        step_.sync.comm_hook != CommHook::none && element_size(g.dtype) > Bytes{2};
    copy_scaled(buffers_.place_in_bucket(gradient), buffers_.gradient(gradient), g.numel, g.dtype,
                hook_divides ? 1.0 : mean_factor());
}

void CpuRank::copy_back(std::int32_t gradient) {
    const Gradient& g = workload_.gradients[static_cast<std::size_t>(gradient)];
    copy_scaled(buffers_.gradient(gradient), buffers_.place_in_bucket(gradient), g.numel, g.dtype,
                1.0);
}

// A CPU has no launches to save: copy by copy, each with its cast.
void CpuRank::pack(std::int32_t bucket) {
    const Bucket& b = step_.plan->buckets[static_cast<std::size_t>(bucket)];
    for (const std::int32_t index : b.gradients) {
        const Gradient& g = workload_.gradients[static_cast<std::size_t>(index)];
        std::byte* to =
            casts(bucket) ? buffers_.compressed_place(index) : buffers_.place_in_bucket(index);
        cast_scaled(to, casts(bucket) ? dtype_of(step_.sync.comm_hook) : b.dtype,
                    buffers_.gradient(index), b.dtype, g.numel, mean_factor());
    }
}

void CpuRank::unpack(std::int32_t bucket) {
    const Bucket& b = step_.plan->buckets[static_cast<std::size_t>(bucket)];
    for (const std::int32_t index : b.gradients) {
        const Gradient& g = workload_.gradients[static_cast<std::size_t>(index)];
        const std::byte* from =
            casts(bucket) ? buffers_.compressed_place(index) : buffers_.place_in_bucket(index);
        cast_scaled(buffers_.gradient(index), b.dtype, from,
                    casts(bucket) ? dtype_of(step_.sync.comm_hook) : b.dtype, g.numel, 1.0);
    }
}

void CpuRank::cast_down(std::int32_t bucket) {
    const Bucket& b = step_.plan->buckets[static_cast<std::size_t>(bucket)];
    cast_scaled(buffers_.compressed(bucket), dtype_of(step_.sync.comm_hook),
                buffers_.bucket(bucket), b.dtype, numel_of(b), mean_factor());
}

void CpuRank::cast_up(std::int32_t bucket) {
    const Bucket& b = step_.plan->buckets[static_cast<std::size_t>(bucket)];
    cast_scaled(buffers_.bucket(bucket), b.dtype, buffers_.compressed(bucket),
                dtype_of(step_.sync.comm_hook), numel_of(b), 1.0);
}

void CpuRank::copy_buffers(std::int32_t group) {
    const auto index = static_cast<std::size_t>(group);
    std::memcpy(module_buffers_[index].at(0), broadcast_[index].at(0),
                static_cast<std::size_t>(broadcast_[index].size_bytes()));
}

void CpuRank::launch(std::int32_t collective) {
    step_.tickets[static_cast<std::size_t>(collective)] = thread_.launch(job_of(collective));
}

CommunicationThread::Job CpuRank::job_of(std::int32_t collective) {
    const Collective& c = step_.program->collectives[static_cast<std::size_t>(collective)];
    const bool is_free = step_.communicate == Communicate::for_free;
    if (is_free && !c.bucket) {
        return [] {};
    }
    if (c.kind == CollectiveKind::broadcast) {
        // Broadcasts open a step, one per buffer group in order.
        std::byte* data = broadcast_[static_cast<std::size_t>(collective)].at(0);
        return [this, data, size = c.bytes] { communicator_.broadcast_from_first(data, size); };
    }
    invariant(c.kind == CollectiveKind::all_reduce, "a step broadcasts and all-reduces");
    if (!c.bucket) {
        std::byte* data = unused_map_.at(0);
        return [this, data, elements = c.bytes.count / 4] {
            communicator_.all_reduce_sum(data, elements, DType::float32);
        };
    }
    const Bucket& bucket = step_.plan->buckets[static_cast<std::size_t>(*c.bucket)];
    const bool compressed = casts(*c.bucket);
    std::byte* data = compressed ? buffers_.compressed(*c.bucket) : buffers_.bucket(*c.bucket);
    const DType dtype = compressed ? dtype_of(step_.sync.comm_hook) : bucket.dtype;
    // Where no copy divides, the collective averages, as NCCL's does. That is computing, so it is
    // not free.
    const bool averages = !step_.sync.copies_in && !compressed;
    return [this, data, dtype, averages, is_free, elements = numel_of(bucket)] {
        if (!is_free) {
            communicator_.all_reduce_sum(data, elements, dtype);
        }
        if (averages) {
            copy_scaled(data, data, elements, dtype, mean_factor());
        }
    };
}

DType CpuRank::wire_dtype() const {
    return step_.sync.comm_hook == CommHook::none ? DType::float64 : dtype_of(step_.sync.comm_hook);
}

StepCheck CpuRank::check() {
    StepCheck check;
    const double mean =
        double{value_scale_} * mean_rank_value(communicator_.ranks(), step_.number, accumulation_);
    for (std::size_t i = 0; i < workload_.gradients.size(); ++i) {
        const Gradient& gradient = workload_.gradients[i];
        const auto index = static_cast<std::int32_t>(i);
        const bool hooked = element_size(wire_dtype()) < element_size(gradient.dtype);
        const double tolerance = rounding_tolerance(communicator_.ranks(), accumulation_,
                                                    hooked ? wire_dtype() : gradient.dtype);
        const GradientCheck found =
            check_gradient(buffers_.gradient(index), gradient.dtype, gradient.numel,
                           kernel_plan_.columns[i], gradient_factor(index) * mean, tolerance);
        if (!(found.largest_difference <= check.largest_difference)) {
            check.largest_difference = found.largest_difference;
        }
        if (found.wrong_element >= 0 && check.wrong.empty()) {
            check.wrong =
                fmt::format("gradient {}, element {}: expected the mean {}, got {}", gradient.name,
                            found.wrong_element, found.expected, found.got);
        }
    }
    const auto ranks = static_cast<float>(communicator_.ranks());
    for (std::size_t i = 0; step_.sync.reduces_unused_map && i < workload_.gradients.size(); ++i) {
        if (unused_map_.floats()[i] != ranks && check.wrong.empty()) {
            check.wrong = fmt::format("map of used parameters, element {}: expected {}, got {}", i,
                                      ranks, unused_map_.floats()[i]);
        }
    }
    return check;
}

// run() stamps every instruction as it is.
std::optional<StepTrace> CpuRank::run_each(const Program& /*program*/, const SyncSettings& /*sync*/,
                                           const BucketPlan& /*plan*/, std::int64_t /*step*/) {
    return std::nullopt;
}

AllReduceTrace CpuRank::all_reduce(const Message& message, std::int64_t iterations) {
    return messages_.run(message, iterations);
}

std::vector<Duration> CpuRank::repeat(const Message& message, std::int64_t iterations,
                                      const std::function<void()>& waiting) {
    return messages_.repeat(message, iterations, waiting);
}

std::int64_t CpuRank::peak_memory_bytes() const {
    return bucketwise::peak_memory_bytes();
}

// Over and over for as long as contend() will, after a pass that warms up. Medians, as one
// interruption would else count in every comparison.
std::vector<Duration> CpuRank::backward_alone() {
    constexpr std::chrono::milliseconds enough{100};
    constexpr std::size_t most_passes = 100;
    std::vector<std::vector<Duration>> samples(workload_.backward.size());
    const Clock::time_point start = Clock::now();
    for (std::size_t pass = 0; pass < 3 || (pass < most_passes && Clock::now() - start < enough);
         ++pass) {
        for (std::size_t i = 0; i < samples.size(); ++i) {
            const Clock::time_point begin = Clock::now();
            kernels_.backward(static_cast<std::int32_t>(i), 1.0F, false);
            if (pass > 0) {
                samples[i].push_back(between(begin, Clock::now()));
            }
        }
    }
    std::vector<Duration> medians;
    for (std::vector<Duration>& of_operation : samples) {
        const auto middle = of_operation.begin() + std::ssize(of_operation) / 2;
        std::nth_element(of_operation.begin(), middle, of_operation.end());
        medians.push_back(*middle);
    }
    return medians;
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
