// A rank on a GPU: one stream computes, another communicates, and the host launches for both, as
// PyTorch's DistributedDataParallel does.
//
// A step is timed as one of many, with a host that runs ahead of the GPU, unless the scenario has
// it start from idle. Times are the GPU's, by events. A step is stamped only where somebody waits
// and where its phases end, as a stamp after every operation would slow down a host that can hardly
// keep up.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "hw/compute/gradient_buffers.h"
#include "hw/gpu/gpu_gradients.h"
#include "hw/gpu/gpu_kernels.h"
#include "hw/gpu/runtime/gpu_stream.h"
#include "hw/nccl/gpu_backward.h"
#include "hw/nccl/gpu_messages.h"
#include "hw/nccl/nccl_communicator.h"
#include "hw/nccl/step_stamps.h"
#include "hw/rank/replay_rank.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

class GpuRank : public ReplayRank {
  public:
    // `communicators` is kept by reference. `workload` is the scenario's; `sync` decides where
    // gradients live. Throws std::bad_alloc when the GPU's memory does not suffice.
    GpuRank(const Scenario& scenario, const Workload& workload, const SyncSettings& sync,
            Communicators& communicators);
    ~GpuRank() override;

    void calibrate() override;
    StepTrace run(const Program& program, const SyncSettings& sync, const BucketPlan& plan,
                  std::int64_t step, Communicate communicate) override;
    std::optional<StepTrace> run_each(const Program& program, const SyncSettings& sync,
                                      const BucketPlan& plan, std::int64_t step) override;
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
    [[nodiscard]] std::int64_t peak_memory_bytes() const override;

  private:
    PlannedKernels& kernels() override { return kernels_; }
    void lay_out() override;
    void copy_buffers(std::int32_t group) override;
    void copy(InstructionKind kind, std::int32_t subject) override;
    void pack(std::int32_t index) override;
    void launch(std::int32_t collective) override;
    void wait_for(std::int32_t collective) override;
    void unpack(std::int32_t index) override;
    void warm_up_backward() override { backward_.warm_up(); }
    std::vector<Duration> time_backward() override;

    void put(const BufferBroadcast& moved);
    void put(const UnusedMapSum& moved);
    void put(const BucketReduction& moved);
    void put(const StatisticsExchange& moved);
    void arrange_chunks();
    void prepare_step();
    void poison();
    void restore_exchanged();
    // Returns when the host issued each instruction, from the first one on.
    std::vector<Interval> issue(const Program& program);
    void issue_as_graph(const Program& program, StepTrace& trace);
    void warm_up(const Program& program);
    void finish(const Program& program);
    NcclCommunicator& communicator() { return communicators_.of_steps(); }

    bool as_graph_;
    int lead_in_;               // steps before the one that is timed
    bool is_captured_ = false;  // what is put on streams now is part of a graph
    Communicators& communicators_;
    GpuStream compute_;
    GpuMessages messages_;  // has the communication stream
    GpuGradientBuffers buffers_;
    GpuKernels kernels_;
    GradientChecks checks_;
    std::vector<DeviceMemory> broadcast_;       // by buffer group: what travels
    std::vector<DeviceMemory> module_buffers_;  // and where it is copied to
    DeviceMemory ones_;                         // one float32 per parameter
    DeviceMemory unused_map_;
    DeviceMemory statistics_;                // what ranks exchange of BatchNorm's
    DeviceMemory initial_statistics_;        // and what they begin a step with
    std::vector<ChunkTable> bucket_chunks_;  // gradients and their places in what travels
    // Plans that have run as they are, by whether they communicated; only then are they captured.
    std::vector<std::pair<BucketPlan, Communicate>> warm_;

    StepStamps stamps_{compute_};
    GpuBackward backward_{kernels_, kernel_plan(), compute_, communicators_};
};

}  // namespace bucketwise
