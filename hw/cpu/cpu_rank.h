// A rank on a CPU: one thread computes, another communicates.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "hw/cpu/cpu_kernels.h"
#include "hw/rank/communication_thread.h"
#include "hw/rank/communicator.h"
#include "hw/rank/executor.h"
#include "hw/rank/isolated_messages.h"
#include "hw/rank/rank_place.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

class CpuRank final : public Executor {
  public:
    // The communicators are kept by reference and used by one other thread. `workload` is the
    // scenario's; `sync` decides where gradients live that are not sharded. Throws std::bad_alloc.
    CpuRank(const Scenario& scenario, const Workload& workload, const SyncSettings& sync,
            const CommunicatorsAmong<Communicator>& communicators);
    ~CpuRank() override { messages_.reset(); }  // before the memory that its thread works on

    MessageTrace measure(const Message& message, std::int64_t iterations) override {
        return messages_->measure(message, iterations);
    }
    MessageTrace measure_as_in_steps(const Message& message, std::int64_t iterations) override;
    std::vector<Duration> repeat(const Message& message, std::int64_t iterations,
                                 const std::function<void()>& waiting) override {
        return messages_->repeat(message, iterations, waiting);
    }
    [[nodiscard]] std::int64_t peak_memory_bytes() const override {
        return messages_->peak_memory_bytes();
    }
    void calibrate() override;
    std::vector<Duration> backward_alone() override;
    ContentionTrace contend(const Message& message, std::int64_t iterations,
                            const std::vector<Duration>& alone) override;
    StepTrace run(const ReplayedStep& step, std::int64_t number, Communicate communicate) override;

  private:
    using Clock = std::chrono::steady_clock;

    PlannedKernels& kernels() override { return kernels_; }
    PlannedKernels& optimizer() override { return own_optimizer_ ? *own_optimizer_ : kernels_; }
    void rearranged() override {}
    void prepare_step() override { tickets_.assign(step().program.collectives.size(), {}); }
    void set_out() override;
    void settle() override;
    void prepare(const Transfer& /*transfer*/) override {}
    void copy(std::size_t transfer, double factor, Lane lane) override;
    void add(std::size_t transfer, Lane lane) override;
    void examine(std::size_t transfer, Lane lane) override;
    void launch(std::size_t instruction, std::int32_t collective) override;
    void wait_for(std::int32_t collective) override {
        thread().wait(tickets_[static_cast<std::size_t>(collective)]);
    }
    void write(std::byte* to, const std::byte* from, std::int64_t bytes) override;
    const std::byte* read(const std::byte* from, Bytes /*size*/) override { return from; }

    [[nodiscard]] CommunicationThread& thread() { return messages_->thread(); }
    static Duration since(Clock::time_point begin) {
        return std::chrono::duration_cast<Duration>(Clock::now() - begin);
    }
    void run_backward(std::size_t operation) {
        kernels_.backward(static_cast<std::int32_t>(operation), 1.0F, false);
    }

    CommunicatorsAmong<Communicator> communicators_;
    CpuKernels kernels_;
    std::optional<CpuKernels> own_optimizer_;           // of a sharded rank's own parts
    std::vector<CommunicationThread::Ticket> tickets_;  // of the step in progress, by collective
    std::unique_ptr<IsolatedMessages> messages_;
};

}  // namespace bucketwise
