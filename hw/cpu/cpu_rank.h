// A rank on a CPU.
#pragma once

#include <cstdint>
#include <vector>

#include "hw/compute/arena.h"
#include "hw/cpu/cpu_kernels.h"
#include "hw/cpu/on_cpu.h"
#include "hw/rank/communicator.h"
#include "hw/rank/replay_rank.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

class CpuRank final : public OnCpu<ReplayRank> {
  public:
    // `communicator` is kept by reference and used by one other thread. `workload` is the
    // scenario's; `sync` decides where gradients live. Throws std::bad_alloc.
    CpuRank(const Scenario& scenario, const Workload& workload, const SyncSettings& sync,
            Communicator& communicator);
    ~CpuRank() override { end(); }

    void calibrate() override { kernels_.calibrate(); }
    StepTrace run(const ReplayedStep& step, std::int64_t number, Communicate communicate) override;
    StepCheck check() override;

  private:
    PlannedKernels& kernels() override { return kernels_; }
    void lay_out() override { memory_.buffers.arrange(plan()); }
    void copy_buffers(std::int32_t group) override;
    void copy(InstructionKind kind, std::int32_t subject) override;
    void pack(std::int32_t index, PackDirection direction, double factor) override;
    void launch(std::int32_t collective) override;
    void wait_for(std::int32_t collective) override {
        thread().wait(tickets_[static_cast<std::size_t>(collective)]);
    }

    ReplayMemory<Arena> memory_;
    CpuKernels kernels_;
    Communicator& communicator_;
    std::vector<CommunicationThread::Ticket> tickets_;  // of the step in progress, by collective
};

}  // namespace bucketwise
