// A rank on a CPU: one thread computes, another communicates.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "hw/compute/gradient_buffers.h"
#include "hw/cpu/cpu_kernels.h"
#include "hw/rank/communicator.h"
#include "hw/rank/isolated_messages.h"
#include "hw/rank/replay_rank.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

class CpuRank : public ReplayRank {
  public:
    // `communicator` is kept by reference and used by one other thread. `workload` is the
    // scenario's; `sync` decides where gradients live. Throws std::bad_alloc.
    CpuRank(const Scenario& scenario, const Workload& workload, const SyncSettings& sync,
            Communicator& communicator);

    void calibrate() override { kernels_.calibrate(); }
    StepTrace run(const Program& program, const SyncSettings& sync, const BucketPlan& plan,
                  std::int64_t step, Communicate communicate) override;
    StepCheck check() override;
    MessageTrace measure(const Message& message, std::int64_t iterations) override {
        return messages_.measure(message, iterations);
    }
    std::vector<Duration> repeat(const Message& message, std::int64_t iterations,
                                 const std::function<void()>& waiting) override {
        return messages_.repeat(message, iterations, waiting);
    }
    ContentionTrace contend(const Message& message, std::int64_t iterations,
                            const std::vector<Duration>& alone) override;
    [[nodiscard]] std::int64_t peak_memory_bytes() const override {
        return messages_.peak_memory_bytes();
    }

  private:
    PlannedKernels& kernels() override { return kernels_; }
    void lay_out() override { buffers_.arrange(plan()); }
    void copy_buffers(std::int32_t group) override;
    void copy(InstructionKind kind, std::int32_t subject) override;
    void pack(std::int32_t index) override;
    void launch(std::int32_t collective) override;
    void wait_for(std::int32_t collective) override;
    void unpack(std::int32_t index) override;
    void warm_up_backward() override { time_backward(); }
    std::vector<Duration> time_backward() override;

    void fill_statistics();
    // On the communication thread.
    void carry(const BufferBroadcast& moved);
    void carry(const UnusedMapSum& moved);
    void carry(const BucketReduction& moved);
    void carry(const StatisticsExchange& moved);
    [[nodiscard]] std::byte* place_of(const BucketReduction& moved);
    // Where the gradient lies in what of its bucket travels.
    [[nodiscard]] std::byte* place_in_pack(std::int32_t bucket, std::int32_t gradient);

    GradientBuffers buffers_;
    CpuKernels kernels_;
    Communicator& communicator_;
    std::vector<Arena> broadcast_;                      // by buffer group: what travels
    std::vector<Arena> module_buffers_;                 // and where it is copied to
    Arena unused_map_;                                  // one float32 per parameter, all ones
    Arena statistics_;                                  // what ranks exchange of BatchNorm's
    std::vector<CommunicationThread::Ticket> tickets_;  // of the step in progress, by collective
    IsolatedMessages messages_;                         // last, so that its thread ends first
    CommunicationThread& thread_ = messages_.thread();
};

}  // namespace bucketwise
