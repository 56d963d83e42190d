// A rank on a GPU in sharded steps, on the streams that PyTorch's fully_shard has: one computes,
// one fills what is gathered, one carries all-gathers and reduce-scatters, one all-reduces between
// replicas, and one puts in place what collectives brought.
//
// Steps are timed as those of GpuRank. Steps that lead in gather the same parameters and leave
// other gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "hw/compute/gradient_buffers.h"
#include "hw/gpu/chunk_table.h"
#include "hw/gpu/gpu_kernels.h"
#include "hw/gpu/runtime/device_memory.h"
#include "hw/gpu/runtime/gpu_stream.h"
#include "hw/nccl/gpu_backward.h"
#include "hw/nccl/gpu_messages.h"
#include "hw/nccl/nccl_communicator.h"
#include "hw/nccl/step_stamps.h"
#include "hw/rank/shard_blocks.h"
#include "hw/rank/shard_communicators.h"
#include "hw/rank/sharded_replay_rank.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

class GpuShardedRank : public ShardedReplayRank {
  public:
    // `communicators` is kept by reference. `scenario` shards, `of_scenario` is its workload.
    // Collective. Throws std::bad_alloc when the GPU's memory does not suffice.
    GpuShardedRank(const Scenario& scenario, const Workload& of_scenario,
                   Communicators& communicators);
    ~GpuShardedRank() override;

    void calibrate() override;
    StepTrace run(const ShardedReplay& replay, std::int64_t number,
                  Communicate communicate) override;
    std::optional<StepTrace> run_each(const ShardedReplay& replay, std::int64_t number) override;
    std::vector<Duration> backward_alone() override;
    ContentionTrace contend(const Message& message, std::int64_t iterations,
                            const std::vector<Duration>& alone) override;
    MessageTrace measure(const Message& message, std::int64_t iterations) override {
        return messages_.measure(message, iterations);
    }
    MessageTrace measure_as_in_steps(const Message& message, std::int64_t iterations) override {
        return messages_.measure_among(message, iterations, with_.of_kind(message.kind));
    }
    std::vector<Duration> repeat(const Message& message, std::int64_t iterations,
                                 const std::function<void()>& waiting) override {
        return messages_.repeat(message, iterations, waiting);
    }
    [[nodiscard]] std::int64_t peak_memory_bytes() const override;

  private:
    // Which tensors, and where in what is moved, by move.
    struct MoveChunks {
        ChunkTable gather_in;
        ChunkTable gather_out;
        ChunkTable fewer_in;
        ChunkTable fewer_out;
        ChunkTable reduce_in;
        ChunkTable place;
    };

    void lay_out() override;
    void write_shard(const KnownParameter& known, std::int64_t first, std::int64_t count) override;
    void prepare(const ShardedReplay& replay) override;
    void set_out() override;
    void execute(const ShardedCall& call) override;
    void settle() override;
    const void* gathered_values(std::int32_t parameter) override;
    const void* own_gradient_values(std::int32_t parameter) override;

    [[nodiscard]] MoveChunks chunks_of_move(std::int32_t index);
    std::vector<Interval> issue();
    void execute_at(std::size_t instruction);
    void launch(const ShardedCall& call);
    // What the launch waits for, on the stream that fills what is gathered.
    void follow(const Instruction& launch, const GpuStream& stream);
    void gather(const ShardedCall& call, const StepStamps::CollectiveEvents& events);
    void reduce(const ShardedCall& call, const StepStamps::CollectiveEvents& events);
    void all_reduce(const ShardedCall& call, const StepStamps::CollectiveEvents& events);
    // Puts it between its stamps on the stream, if ranks communicate.
    void put(const StepStamps::CollectiveEvents& events, const GpuStream& stream,
             const std::function<void()>& collective);
    // Then what it brought into its place, and who waits for it waits for that.
    void end(const ShardedCall& call, const StepStamps::CollectiveEvents& events,
             const GpuStream& stream);
    void gather_in(const ShardedCall& call, const GpuStream& stream);
    void gather_out(const ShardedCall& call, const GpuStream& stream);
    void reduce_in(const ShardedCall& call, const GpuStream& stream);
    void place_reduced(const ShardedCall& call, const GpuStream& stream);

    [[nodiscard]] const MoveChunks& chunks(const ShardedCall& call) const {
        return chunks_[static_cast<std::size_t>(call.move)];
    }
    [[nodiscard]] std::byte* own_reduced(std::int32_t index) const;
    const void* downloaded(const std::byte* from, Bytes size);
    [[nodiscard]] bool is_idle() const;
    [[nodiscard]] NcclCommunicator& communicator() const { return with_.all; }

    int lead_in_;  // steps before the one that is timed
    Communicators& communicators_;
    ShardCommunicators<NcclCommunicator> with_;
    GpuStream compute_;
    GpuStream filling_;
    GpuMessages messages_;  // has the stream of all-gathers and reduce-scatters
    GpuStream between_replicas_;
    GpuStream placing_;
    ShardBlocks<DeviceMemory> blocks_;
    std::vector<MoveChunks> chunks_;
    GpuGradientBuffers gradients_;
    GpuKernels kernels_;
    GpuGradientBuffers own_;
    KernelPlan no_operations_;
    GpuKernels optimizer_;         // of the own parts
    std::vector<std::byte> host_;  // what was copied from the GPU last

    const ShardedReplay* replay_ = nullptr;  // of the step in progress
    std::size_t at_ = 0;                     // its instruction that is issued
    std::vector<bool> is_followed_;          // by instruction: a later launch waits for it
    GpuEvent begun_{Timing::off};            // of the program
    std::vector<GpuEvent> followed_;         // by instruction; those that are followed are recorded
    std::optional<std::int32_t> last_in_place_;  // the collective whose moves lie where all do
    StepStamps stamps_{compute_};
    GpuBackward backward_{kernels_, kernel_plan(), compute_, communicators_};
};

}  // namespace bucketwise
