#include "hw/cpu/cpu_rank.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "hw/compute/arena.h"
#include "hw/compute/elements.h"
#include "sim/base/invariant.h"

namespace bucketwise {

CpuRank::CpuRank(const Scenario& scenario, const Workload& workload, const SyncSettings& sync,
                 const CommunicatorsAmong<Communicator>& communicators)
    : Executor(scenario, workload, sync,
               rank_place(scenario, communicators.of(Among::all).rank(),
                          communicators.of(Among::all).ranks()),
               {.make = shared_block, .alignment_bytes = Arena::alignment_bytes}),
      communicators_(communicators),
      kernels_(kernel_plan(), this->workload().gradients, memory().gradients(),
               memory().updates_parts() ? Duration{0} : scenario.step.optimizer),
      messages_(std::make_unique<IsolatedMessages>(communicators.of(Among::all))) {
    if (memory().updates_parts()) {
        own_optimizer_.emplace(no_operations(), memory().updated(), memory().updated_buffers(),
                               part_of_optimizer(scenario, sync));
    }
}

void CpuRank::calibrate() {
    kernels_.calibrate();
    if (own_optimizer_) {
        own_optimizer_->calibrate();
    }
}

// --- a step ---

StepTrace CpuRank::run(const ReplayedStep& step, std::int64_t number, Communicate communicate) {
    begin_step(step, number, communicate);
    set_out();
    StepTrace trace;
    trace.instructions.resize(step.program.instructions.size());
    const Clock::time_point start = Clock::now();
    for (std::size_t i = 0; i < trace.instructions.size(); ++i) {
        trace.instructions[i].begin = since(start);
        execute(i);
        trace.instructions[i].end = since(start);
    }
    settle();
    for (const CommunicationThread::Ticket ticket : tickets_) {
        const CommunicationThread::Times times = thread().times(ticket);
        trace.collectives.push_back({std::chrono::duration_cast<Duration>(times.begin - start),
                                     std::chrono::duration_cast<Duration>(times.end - start)});
    }
    return trace;
}

// All ranks set out together, if they communicate.
void CpuRank::set_out() {
    thread().restart();
    if (communicates()) {
        thread().wait(thread().launch([this] { messages_->meet(); }));
    }
}

void CpuRank::settle() {
    for (const CommunicationThread::Ticket ticket : tickets_) {
        thread().wait(ticket);
    }
}

// Where no copy divides, the collective averages, as NCCL's does. Averaging is computing, so it is
// not free.
void CpuRank::launch(std::size_t /*instruction*/, std::int32_t collective) {
    tickets_[static_cast<std::size_t>(collective)] = thread().launch(
        [this, collective, exchange = exchange_of(collective), micro_step = micro_step()] {
            copy_before(collective, Lane::moving, micro_step);
            if (communicates()) {
                carry(communicators_.of(this->collective(collective).among.communicator), exchange);
            }
            if (exchange.averages) {
                copy_scaled(exchange.own, exchange.own, exchange.elements(), exchange.dtype,
                            mean_factor());
            }
            copy_after(collective, Lane::placing, micro_step);
        });
}

// A CPU has no launches to save: tensor by tensor, each with its cast.
void CpuRank::copy(std::size_t transfer, double factor, Lane /*lane*/) {
    const Transfer& copied = this->transfer(transfer);
    if (copied.is_raw) {
        for (const TensorPlace& one : copied.tensors) {
            std::memcpy(copied.to(one), copied.from(one), static_cast<std::size_t>(one.numel));
        }
        return;
    }
    pack_all(copied.tensors, copied.direction, copied.to_dtype(), copied.from_dtype(), factor);
}

void CpuRank::add(std::size_t transfer, Lane /*lane*/) {
    const Transfer& added = this->transfer(transfer);
    for (const TensorPlace& one : added.tensors) {
        add_cast(added.to(one), added.to_dtype(), added.from(one), added.from_dtype(), one.numel);
    }
}

// The norm, as Megatron-LM takes it.
void CpuRank::examine(std::size_t transfer, Lane /*lane*/) {
    double squares = 0;
    std::array<float, 4096> block{};
    for (const TensorPlace& one : this->transfer(transfer).tensors) {
        const DType dtype = this->transfer(transfer).place_dtype;
        for (std::int64_t begin = 0; begin < one.numel; begin += std::ssize(block)) {
            const std::int64_t count = std::min(std::ssize(block), one.numel - begin);
            cast_scaled(block.data(), DType::float32, element(one.place, begin, dtype), dtype,
                        count, 1.0);
            float sum = 0;
            for (std::int64_t i = 0; i < count; ++i) {
                sum += block[static_cast<std::size_t>(i)] * block[static_cast<std::size_t>(i)];
            }
            squares += sum;
        }
    }
    invariant(std::isfinite(squares), "gradients are numbers");
}

void CpuRank::write(std::byte* to, const std::byte* from, std::int64_t bytes) {
    if (bytes > 0) {
        std::memcpy(to, from, static_cast<std::size_t>(bytes));
    }
}

// --- computing and messages beside it ---

std::vector<Duration> CpuRank::backward_alone() {
    const std::size_t operations = workload().backward.size();
    const auto once = [&] {
        std::vector<Duration> times(operations);
        for (std::size_t i = 0; i < operations; ++i) {
            const Clock::time_point begin = Clock::now();
            run_backward(i);
            times[i] = since(begin);
        }
        return times;
    };
    return times_alone(operations, once, once);
}

ContentionTrace CpuRank::contend(const Message& message, std::int64_t iterations,
                                 const std::vector<Duration>& alone) {
    const std::vector<CommunicationThread::Ticket> tickets = messages_->launch(message, iterations);
    ContentionTrace trace;
    // The first operation may begin before the first collective does, and the last one does not
    // end before the last collective: neither counts.
    for (std::size_t i = 0; !thread().has_ended(tickets.back()); i = (i + 1) % alone.size()) {
        const bool communicating = thread().has_begun(tickets.front());
        const Clock::time_point begin = Clock::now();
        run_backward(i);
        const Duration time = since(begin);
        if (communicating && !thread().has_ended(tickets.back())) {
            trace.compute += {time, alone[i]};
        }
    }
    trace.times = messages_->times_of(tickets);
    return trace;
}

// In sharded steps behind some operations of backward, the next ones each time, so that ranks are
// as far apart as they are in steps.
MessageTrace CpuRank::measure_as_in_steps(const Message& message, std::int64_t iterations) {
    if (!memory().is_sharded()) {
        return measure(message, iterations);
    }
    constexpr std::chrono::milliseconds long_enough{1};
    std::size_t next = 0;
    const auto computing = [&] {
        const Clock::time_point begin = Clock::now();
        do {
            run_backward(next);
            next = (next + 1) % workload().backward.size();
        } while (Clock::now() - begin < long_enough);
    };
    return messages_->measure_between(computing, message, iterations,
                                      communicators_.of_kind(message.kind));
}

}  // namespace bucketwise
