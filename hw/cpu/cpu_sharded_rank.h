// A rank on a CPU in sharded steps.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "hw/compute/arena.h"
#include "hw/cpu/cpu_kernels.h"
#include "hw/cpu/on_cpu.h"
#include "hw/rank/communicator.h"
#include "hw/rank/sharded_memory.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

class CpuShardedRank final : public OnCpu<ShardedRankIn<Arena>> {
  public:
    // The communicators are kept by reference and used by one other thread. `scenario` shards,
    // `of_scenario` is its workload. Throws std::bad_alloc.
    CpuShardedRank(const Scenario& scenario, const Workload& of_scenario,
                   const ShardCommunicators<Communicator>& communicators);
    ~CpuShardedRank() override { end(); }

    void calibrate() override;
    StepTrace run(const ReplayedStep& step, std::int64_t number, Communicate communicate) override;
    MessageTrace measure_as_in_steps(const Message& message, std::int64_t iterations) override;

  private:
    PlannedKernels& kernels() override { return kernels_; }
    PlannedKernels& optimizer() override { return optimizer_; }
    void write_shard(const KnownParameter& known, std::int64_t first, std::int64_t count) override;
    void set_out() override;
    void settle() override;
    const void* gathered_values(std::int32_t parameter) override {
        return unsharded_.at(parameter);
    }
    const void* own_gradient_values(std::int32_t parameter) override {
        return own_.gradient(parameter);
    }
    void launch(const ShardedCall& call) override;
    void wait_for(std::int32_t collective) override {
        thread().wait(tickets_[static_cast<std::size_t>(collective)]);
    }
    void clear(std::byte* data, std::int64_t bytes) override;
    void pack(ShardCopy copy, std::int32_t move, DType to, DType from, double factor,
              Lane lane) override;
    void copy(std::byte* to, const std::byte* from, DType dtype, std::int64_t numel,
              Lane lane) override;
    void add(std::byte* to, DType to_dtype, const std::byte* from, DType from_dtype,
             std::int64_t numel, Lane lane) override;

    ShardCommunicators<Communicator> communicators_;
    CpuKernels kernels_;
    KernelPlan no_operations_;
    CpuKernels optimizer_;                              // of the own parts
    std::vector<CommunicationThread::Ticket> tickets_;  // by collective
};

}  // namespace bucketwise
