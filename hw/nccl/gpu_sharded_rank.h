// A rank on a GPU in sharded steps, on the streams of PyTorch's fully_shard: one computes, one
// fills what is gathered, one carries all-gathers and reduce-scatters, one all-reduces between
// replicas, and one places what collectives brought.
//
// Steps that lead in gather the same parameters and leave other gradients.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "hw/gpu/chunk_table.h"
#include "hw/gpu/gpu_kernels.h"
#include "hw/gpu/runtime/device_memory.h"
#include "hw/nccl/on_gpu.h"
#include "hw/rank/sharded_memory.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

class GpuShardedRank final : public OnGpu<ShardedRankIn<DeviceMemory>> {
  public:
    // `communicators` is kept by reference. `scenario` shards, `of_scenario` is its workload.
    // Collective. Throws std::bad_alloc when the GPU's memory does not suffice.
    GpuShardedRank(const Scenario& scenario, const Workload& of_scenario,
                   Communicators& communicators);
    ~GpuShardedRank() override { end({&filling_, &between_replicas_, &placing_}); }

    void calibrate() override;
    StepTrace run(const ReplayedStep& step, std::int64_t number, Communicate communicate) override;
    std::optional<StepTrace> run_each(const ReplayedStep& step, std::int64_t number) override;
    MessageTrace measure_as_in_steps(const Message& message, std::int64_t iterations) override {
        return messages_.measure_among(message, iterations, with_.of_kind(message.kind));
    }
    [[nodiscard]] std::int64_t peak_memory_bytes() const override {
        return kernels_.memory_bytes() + optimizer_.memory_bytes() + messages_.peak_memory_bytes() +
               memory_bytes();
    }

  private:
    PlannedKernels& kernels() override { return kernels_; }
    PlannedKernels& optimizer() override { return optimizer_; }
    void write_shard(const KnownParameter& known, std::int64_t first, std::int64_t count) override;
    void prepare() override;
    void set_out() override;
    void execute(const ShardedCall& call) override;
    void settle() override;
    const void* gathered_values(std::int32_t parameter) override;
    const void* own_gradient_values(std::int32_t parameter) override;
    void launch(const ShardedCall& call) override;
    void wait_for(std::int32_t collective) override;
    void clear(std::byte* data, std::int64_t bytes) override { compute_.fill(data, 0, bytes); }
    void copies_changed() override;
    void pack(ShardCopy copy, std::int32_t move, DType to, DType from, double factor,
              Lane lane) override;
    void copy(std::byte* to, const std::byte* from, DType dtype, std::int64_t numel,
              Lane lane) override;
    void add(std::byte* to, DType to_dtype, const std::byte* from, DType from_dtype,
             std::int64_t numel, Lane lane) override;

    std::vector<Interval> issue();
    void execute_at(std::size_t instruction);
    // Makes the stream that fills what is gathered wait for the launch's predecessor.
    void follow(const Instruction& launch);
    [[nodiscard]] const GpuStream& stream_of(Lane lane) const;
    const void* downloaded(const std::byte* from, Bytes size);
    [[nodiscard]] bool is_idle() const;

    ShardCommunicators<NcclCommunicator> with_;
    GpuStream filling_;
    GpuStream between_replicas_{StreamPriority::high};
    GpuStream placing_;
    std::vector<std::array<ChunkTable, shard_copies>> chunks_;  // by move and copy
    GpuKernels kernels_;
    KernelPlan no_operations_;
    GpuKernels optimizer_;         // of the own parts
    std::vector<std::byte> host_;  // the last copy from the GPU

    std::size_t at_ = 0;              // the instruction that is issued
    std::vector<bool> is_followed_;   // by instruction: a later launch waits for it
    GpuEvent begun_{Timing::off};     // of the program
    std::vector<GpuEvent> followed_;  // by instruction; those that are followed are recorded
    std::optional<std::int32_t> last_in_place_;  // the collective whose moves lie where all do
};

}  // namespace bucketwise
