// A rank on a CPU in sharded steps: one thread computes, another communicates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hw/compute/arena.h"
#include "hw/compute/gradient_buffers.h"
#include "hw/compute/kernel_plan.h"
#include "hw/compute/sharded_layout.h"
#include "hw/cpu/cpu_kernels.h"
#include "hw/rank/communicator.h"
#include "hw/rank/isolated_messages.h"
#include "hw/rank/sharded_device.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// What is sent and received, by group: memory that is there whatever the plan, laid out for one.
class ShardedBuffers {
  public:
    // Throws std::bad_alloc. What they held is lost.
    void arrange(const ShardPlan& plan);

    [[nodiscard]] std::byte* shard(std::size_t group) { return shards_.at(group); }
    [[nodiscard]] std::byte* gathered(std::size_t group) { return gathered_.at(group); }
    // Parameter by parameter, each with what is padded.
    [[nodiscard]] std::byte* unsharded(std::size_t group) { return unsharded_.at(group); }
    [[nodiscard]] std::byte* reduced(std::size_t group) { return reduced_.at(group); }

  private:
    class Blocks {
      public:
        void arrange(const std::vector<Bytes>& sizes);
        [[nodiscard]] std::byte* at(std::size_t group) { return memory_.at(offsets_[group]); }

      private:
        Arena memory_;
        std::vector<std::int64_t> offsets_;
    };

    Blocks shards_;
    Blocks gathered_;
    Blocks unsharded_;
    Blocks reduced_;
};

class CpuShardedRank : public ShardedDevice {
  public:
    // `communicator` is kept by reference and used by one other thread; of two ranks or more.
    // `scenario` shards, `workload` is its. Throws std::bad_alloc.
    CpuShardedRank(const Scenario& scenario, const Workload& workload, Communicator& communicator);

    void calibrate() override;
    StepTrace run(const ShardedReplay& replay, std::int64_t number,
                  Communicate communicate) override;
    StepTrace compute(const ShardedReplay& replay, std::int64_t number) override;
    StepCheck check() override;
    StepCheck run_checked(const ShardedReplay& replay, std::int64_t number) override;
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
    void begin_step(const ShardedReplay& replay, std::int64_t number, Communicate communicate);
    void meet();
    void execute(const ShardedCall& call);
    void backward(const ShardedCall& call);
    void gather_in(std::size_t index);
    void gather_out(std::size_t index);
    void reduce_in(std::size_t index);
    void place(std::size_t index, bool adds);
    void launch(const ShardedCall& call);
    // On the communication thread.
    void gather(std::size_t index);
    void reduce(std::size_t index, bool is_placed);

    [[nodiscard]] const ShardGroup& group(std::size_t index) const { return plan_.groups[index]; }
    [[nodiscard]] const Gradient& gradient(std::int32_t index) const {
        return workload_.gradients[static_cast<std::size_t>(index)];
    }
    void run_backward(std::int32_t operation) { kernels_.backward(operation, 1.0F, false); }
    void check_after(const ShardedCall& call, StepCheck& check);
    void check_gathered(std::size_t index, StepCheck& check);
    // After so many micro-steps.
    void check_reduced(std::size_t index, std::int64_t micro_steps, StepCheck& check);

    std::int64_t accumulation_;
    bool accumulates_;  // gradients as backward leaves them, not what was reduced
    float value_scale_;
    ShardPlan plan_;                           // what the buffers are laid out for
    Workload workload_;                        // gradients in the dtypes in which they wait
    std::vector<Gradient> own_gradients_;      // the rank's own parts, in the parameters' dtypes
    std::vector<ShardedGroupLayout> layouts_;  // by group
    ShardedBuffers buffers_;
    KernelPlan kernel_plan_;
    GradientBuffers gradients_;
    CpuKernels kernels_;
    GradientBuffers own_;
    KernelPlan no_operations_;
    CpuKernels optimizer_;  // of the own parts
    Communicator& communicator_;
    std::int64_t number_ = 0;  // of the step in progress
    Communicate communicate_ = Communicate::yes;
    std::vector<CommunicationThread::Ticket> tickets_;  // by collective
    IsolatedMessages messages_;                         // last, so that its thread ends first
    CommunicationThread& thread_ = messages_.thread();
};

}  // namespace bucketwise
