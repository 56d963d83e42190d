// A rank on a GPU. As in PyTorch's DistributedDataParallel, one stream computes and another
// communicates; as in fully_shard, one more fills what is gathered, one all-reduces between
// replicas, and one places what collectives brought. The host launches for all of them.
//
// A step is timed as one of many, with a host that runs ahead of the GPU, unless the scenario has
// it start from idle. Times are the GPU's, by events. A step is stamped only where somebody waits
// and where its phases end: a stamp after every operation would slow a host that can hardly keep
// up. Steps that lead in gather the same parameters and leave other gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "hw/gpu/chunk_table.h"
#include "hw/gpu/gpu_gradients.h"
#include "hw/gpu/gpu_kernels.h"
#include "hw/gpu/runtime/device_memory.h"
#include "hw/gpu/runtime/gpu_stream.h"
#include "hw/nccl/gpu_messages.h"
#include "hw/nccl/nccl_communicator.h"
#include "hw/nccl/step_stamps.h"
#include "hw/rank/executor.h"
#include "hw/rank/rank_place.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

class GpuRank final : public Executor {
  public:
    // `communicators` is kept by reference. `workload` is the scenario's; `sync` decides where
    // gradients live that are not sharded. Collective. Throws std::bad_alloc when the GPU's memory
    // does not suffice.
    GpuRank(const Scenario& scenario, const Workload& workload, const SyncSettings& sync,
            Communicators& communicators);
    ~GpuRank() override;

    MessageTrace measure(const Message& message, std::int64_t iterations) override {
        return messages_.measure(message, iterations);
    }
    MessageTrace measure_as_in_steps(const Message& message, std::int64_t iterations) override;
    std::vector<Duration> repeat(const Message& message, std::int64_t iterations,
                                 const std::function<void()>& waiting) override {
        return messages_.repeat(message, iterations, waiting);
    }
    [[nodiscard]] std::int64_t peak_memory_bytes() const override;
    void calibrate() override;
    std::vector<Duration> backward_alone() override;
    ContentionTrace contend(const Message& message, std::int64_t iterations,
                            const std::vector<Duration>& alone) override;
    StepTrace run(const ReplayedStep& step, std::int64_t number, Communicate communicate) override;
    std::optional<StepTrace> run_each(const ReplayedStep& step, std::int64_t number) override;

  private:
    PlannedKernels& kernels() override { return kernels_; }
    PlannedKernels& optimizer() override { return own_optimizer_ ? *own_optimizer_ : kernels_; }
    void rearranged() override;
    void prepare_step() override;
    void set_out() override;
    void execute(std::size_t instruction) override;
    void settle() override;
    void prepare(const Transfer& transfer) override;
    void copy(std::size_t transfer, double factor, Lane lane) override;
    void add(std::size_t transfer, Lane lane) override;
    void examine(std::size_t transfer, Lane lane) override;
    void launch(std::size_t instruction, std::int32_t collective) override;
    void wait_for(std::int32_t collective) override;
    void write(std::byte* to, const std::byte* from, std::int64_t bytes) override;
    const std::byte* read(const std::byte* from, Bytes size) override;
    StepCheck check_gradients(double mean, const std::vector<double>& tolerances) override {
        return memory().reduces_in_place() ? checks_->check(mean, tolerances)
                                           : Executor::check_gradients(mean, tolerances);
    }

    void poison();
    void restore_exchanged();
    void begin_program();
    // Returns when the host issued each instruction, from the first one on.
    std::vector<Interval> issue();
    void issue_as_graph(std::int64_t number, StepTrace& trace);
    void warm_up(std::int64_t number);
    void finish();
    // Makes the stream that fills what is gathered wait for the launch's predecessor.
    void follow(std::size_t launch);
    // Puts an operation on the stream. Its result is no gradient of any step.
    void launch_backward(std::size_t operation) {
        kernels_.backward(static_cast<std::int32_t>(operation), 1.0F, false);
    }
    [[nodiscard]] const GpuStream& stream_of(Lane lane) const;
    [[nodiscard]] bool is_idle() const;
    [[nodiscard]] NcclCommunicator& communicator() const { return communicators_.of_steps(); }

    Communicators& communicators_;
    CommunicatorsAmong<NcclCommunicator> among_;
    GpuStream compute_;
    GpuStream filling_;
    GpuMessages messages_;  // has the stream of most collectives
    GpuStream between_replicas_{StreamPriority::high};
    GpuStream placing_;
    int lead_in_;  // steps before the one that is timed
    bool as_graph_;
    bool is_captured_ = false;  // launches become part of a graph
    StepStamps stamps_{compute_};
    GpuKernels kernels_;
    std::optional<GpuKernels> own_optimizer_;  // of a sharded rank's own parts
    std::optional<GradientChecks> checks_;     // of gradients that are not sharded
    std::vector<ChunkTable> chunks_;           // by transfer; empty for a single tensor
    DeviceMemory initially_exchanged_;
    std::vector<std::byte> host_;  // the last copy from the GPU
    // Plans that have run launch by launch, by whether they communicated; only then are they
    // captured.
    std::vector<std::pair<BucketPlan, Communicate>> warm_;

    std::vector<bool> is_followed_;   // by instruction: a later launch waits for it
    GpuEvent begun_{Timing::off};     // of the program
    std::vector<GpuEvent> followed_;  // by instruction; those that are followed are recorded
    std::optional<std::int32_t> last_in_place_;  // the collective before, in memory that all share
};

}  // namespace bucketwise
