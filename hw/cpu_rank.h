// A rank on a CPU: one thread computes, another communicates.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "hw/communication_thread.h"
#include "hw/communicator.h"
#include "hw/cpu_kernels.h"
#include "hw/gradient_buffers.h"
#include "hw/isolated_all_reduce.h"
#include "hw/kernel_plan.h"
#include "hw/rank_device.h"
#include "sim/scenario.h"

namespace bucketwise {

class CpuRank : public RankDevice {
  public:
    // `communicator` is kept by reference and used by one other thread. `workload` is the
    // scenario's; `sync` decides where gradients live. Throws std::bad_alloc.
    CpuRank(const Scenario& scenario, const Workload& workload, const SyncSettings& sync,
            Communicator& communicator);

    void calibrate() override;
    StepTrace run(const Program& program, const SyncSettings& sync, const BucketPlan& plan,
                  std::int64_t step, Communicate communicate) override;
    StepCheck check() override;
    std::optional<StepTrace> run_each(const Program& program, const SyncSettings& sync,
                                      const BucketPlan& plan, std::int64_t step) override;
    AllReduceTrace all_reduce(const Message& message, std::int64_t iterations) override;
    std::vector<Duration> repeat(const Message& message, std::int64_t iterations,
                                 const std::function<void()>& waiting) override;
    std::vector<Duration> backward_alone() override;
    ContentionTrace contend(const Message& message, std::int64_t iterations,
                            const std::vector<Duration>& alone) override;
    [[nodiscard]] std::int64_t peak_memory_bytes() const override;

  private:
    // The step in progress.
    struct Step {
        const Program* program = nullptr;
        SyncSettings sync;
        const BucketPlan* plan = nullptr;
        std::int64_t number = 0;
        std::int64_t micro_step = 0;
        Communicate communicate = Communicate::yes;
        std::vector<CommunicationThread::Ticket> tickets;  // by collective
    };

    void arrange(const BucketPlan& plan);
    void execute(const Instruction& instruction);
    void forward(std::int32_t operation);
    void backward(std::int32_t operation);
    void copy_in(std::int32_t gradient);
    void copy_back(std::int32_t gradient);
    void pack(std::int32_t bucket);
    void unpack(std::int32_t bucket);
    void cast_down(std::int32_t bucket);
    void cast_up(std::int32_t bucket);
    void copy_buffers(std::int32_t group);
    void launch(std::int32_t collective);
    [[nodiscard]] CommunicationThread::Job job_of(std::int32_t collective);
    [[nodiscard]] bool casts(std::int32_t bucket) const;
    [[nodiscard]] DType wire_dtype() const;
    [[nodiscard]] std::int64_t numel_of(const Bucket& bucket) const;
    [[nodiscard]] double mean_factor() const;

    Workload workload_;
    std::int64_t accumulation_;
    float value_scale_;  // of the gradients' known values, a power of two
    KernelPlan kernel_plan_;
    GradientBuffers buffers_;
    CpuKernels kernels_;
    Communicator& communicator_;
    std::vector<Arena> broadcast_;       // by buffer group: what travels
    std::vector<Arena> module_buffers_;  // and where it is copied to
    Arena unused_map_;                   // one float32 per parameter, all ones
    IsolatedAllReduce messages_;         // uses thread_
    BucketPlan arranged_;                // what the buffers are laid out for
    Step step_;
    CommunicationThread thread_;  // last, so that it ends first
};

}  // namespace bucketwise
