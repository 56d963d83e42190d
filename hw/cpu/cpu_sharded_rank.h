// A rank on a CPU in sharded steps: one thread computes, another communicates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hw/compute/arena.h"
#include "hw/compute/gradient_buffers.h"
#include "hw/compute/memory_blocks.h"
#include "hw/cpu/cpu_kernels.h"
#include "hw/rank/communicator.h"
#include "hw/rank/isolated_messages.h"
#include "hw/rank/shard_communicators.h"
#include "hw/rank/sharded_replay_rank.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

class CpuShardedRank : public ShardedReplayRank {
  public:
    // The communicators are kept by reference and used by one other thread. `scenario` shards,
    // `of_scenario` is its workload. Throws std::bad_alloc.
    CpuShardedRank(const Scenario& scenario, const Workload& of_scenario,
                   const ShardCommunicators<Communicator>& communicators);

    void calibrate() override;
    StepTrace run(const ShardedReplay& replay, std::int64_t number,
                  Communicate communicate) override;
    std::vector<Duration> backward_alone() override;
    ContentionTrace contend(const Message& message, std::int64_t iterations,
                            const std::vector<Duration>& alone) override;
    MessageTrace measure(const Message& message, std::int64_t iterations) override {
        return messages_.measure(message, iterations);
    }
    std::vector<Duration> repeat(const Message& message, std::int64_t iterations,
                                 const std::function<void()>& waiting) override {
        return messages_.repeat(message, iterations, waiting);
    }
    [[nodiscard]] std::int64_t peak_memory_bytes() const override {
        return messages_.peak_memory_bytes();
    }

  private:
    void lay_out() override;
    void write_shard(const KnownParameter& known, std::int64_t first, std::int64_t count) override;
    void set_out() override;
    void execute(const ShardedCall& call) override;
    void settle() override;
    const void* gathered_values(std::int32_t parameter) override {
        return unsharded_.at(parameter);
    }
    const void* own_gradient_values(std::int32_t parameter) override {
        return own_.gradient(parameter);
    }

    void gather_in(const ShardedCall& call);
    void gather_out(const ShardedCall& call);
    void reduce_in(const ShardedCall& call);
    void place_reduced(const ShardedCall& call);
    void launch(const ShardedCall& call);
    // On the communication thread.
    void gather(const ShardedCall& call);
    void reduce(const ShardedCall& call);
    void all_reduce(const ShardedCall& call);

    // The rank's own part of what was reduced.
    [[nodiscard]] std::byte* own_reduced(const ShardedCall& call);
    void run_backward(std::int32_t operation) { kernels_.backward(operation, 1.0F, false); }

    ShardCommunicators<Communicator> communicators_;
    // By parameter: the rank's part, and all of it.
    MemoryBlocks<Arena> shards_;
    MemoryBlocks<Arena> unsharded_;
    // By move: of all ranks, and what micro-steps keep.
    MemoryBlocks<Arena> gathered_;
    MemoryBlocks<Arena> reduced_;
    MemoryBlocks<Arena> kept_;
    GradientBuffers gradients_;
    CpuKernels kernels_;
    GradientBuffers own_;
    KernelPlan no_operations_;
    CpuKernels optimizer_;                              // of the own parts
    std::vector<CommunicationThread::Ticket> tickets_;  // by collective
    IsolatedMessages messages_;                         // last, so that its thread ends first
    CommunicationThread& thread_ = messages_.thread();
};

}  // namespace bucketwise
