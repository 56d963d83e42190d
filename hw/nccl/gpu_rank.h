// A rank on a GPU: one stream computes, another communicates, as in PyTorch's
// DistributedDataParallel.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "hw/gpu/gpu_gradients.h"
#include "hw/gpu/gpu_kernels.h"
#include "hw/nccl/on_gpu.h"
#include "hw/rank/replay_rank.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

class GpuRank final : public OnGpu<ReplayRank> {
  public:
    // `communicators` is kept by reference. `workload` is the scenario's; `sync` decides where
    // gradients live. Throws std::bad_alloc when the GPU's memory does not suffice.
    GpuRank(const Scenario& scenario, const Workload& workload, const SyncSettings& sync,
            Communicators& communicators);
    ~GpuRank() override { end(); }

    void calibrate() override;
    StepTrace run(const ReplayedStep& step, std::int64_t number, Communicate communicate) override;
    std::optional<StepTrace> run_each(const ReplayedStep& step, std::int64_t number) override;
    StepCheck check() override;
    [[nodiscard]] std::int64_t peak_memory_bytes() const override;

  private:
    PlannedKernels& kernels() override { return kernels_; }
    void lay_out() override;
    void copy_buffers(std::int32_t group) override;
    void copy(InstructionKind kind, std::int32_t subject) override;
    void pack(std::int32_t index, PackDirection direction, double factor) override;
    void launch(std::int32_t collective) override;
    void wait_for(std::int32_t collective) override;

    void prepare_step();
    void poison();
    void restore_exchanged();
    // Returns when the host issued each instruction, from the first one on.
    std::vector<Interval> issue(const Program& program);
    void issue_as_graph(const Program& program, StepTrace& trace);
    void warm_up(const Program& program);
    void finish(const Program& program);

    bool as_graph_;
    bool is_captured_ = false;  // launches become part of a graph
    ReplayMemory<DeviceMemory> memory_;
    GpuKernels kernels_;
    GradientChecks checks_;
    DeviceMemory ones_;                      // the unused map at the beginning of a step
    DeviceMemory initial_statistics_;        // and BatchNorm's statistics
    std::vector<ChunkTable> bucket_chunks_;  // gradients and their places in what travels
    // Plans that have run launch by launch, by whether they communicated; only then are they
    // captured.
    std::vector<std::pair<BucketPlan, Communicate>> warm_;
};

}  // namespace bucketwise
