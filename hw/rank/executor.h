// One rank's execution of a step's program on real buffers: the action of each instruction, the
// values that gradients and parameters take, and the comparison with the exact ones afterwards. It
// is the same for every program and on every device; a device knows buffers, kernels, launches and
// waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "hw/compute/kernel_plan.h"
#include "hw/compute/planned_kernels.h"
#include "hw/compute/tensor_memory.h"
#include "hw/rank/rank_device.h"
#include "hw/rank/rank_memory.h"
#include "hw/rank/statistics_messages.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// The streams of a step; only sharded ones use more than `compute` and `moving`. A device without
// streams runs every copy where it is asked for.
enum class Lane : std::uint8_t {
    compute,
    filling,           // fills what is gathered
    moving,            // collectives, but for all-reduces between replicas
    between_replicas,  // these
    placing            // places what collectives brought
};
constexpr std::size_t lane_count = 5;

class Executor : public RankDevice {
  public:
    StepCheck check() final;
    StepCheck run_checked(const ReplayedStep& step, std::int64_t number) final;

  protected:
    // `workload` is the scenario's; `sync` decides where gradients live that are not sharded: every
    // later step synchronises in that way, or not at all. Throws std::bad_alloc.
    Executor(const Scenario& scenario, const Workload& workload, const SyncSettings& sync,
             const RankPlace& place, TensorSource source);

    // Keeps the step by reference until the next one begins. Lays memory out anew if its plan
    // differs. Parameters change with every step, as an optimizer changes them.
    void begin_step(const ReplayedStep& step, std::int64_t number, Communicate communicate);
    // To run the same step once more, with gradients of another number.
    void begin_step_again(std::int64_t number) {
        number_ = number;
        micro_step_ = -1;
        next_backward_ = 0;
    }
    // Runs the instruction, or puts it on a stream, whichever the device does.
    virtual void execute(std::size_t instruction);

    [[nodiscard]] const Transfer& transfer(std::size_t number) const { return transfers_[number]; }
    // The one that computes now, or computed last.
    [[nodiscard]] std::int64_t micro_step() const { return micro_step_; }
    // The copies that are part of a collective, which was launched in `micro_step`: by the time
    // they are made the next one may compute.
    void copy_before(std::int32_t collective, Lane lane, std::int64_t micro_step);
    void copy_after(std::int32_t collective, Lane lane, std::int64_t micro_step);

    [[nodiscard]] const ReplayedStep& step() const { return *step_; }
    [[nodiscard]] bool communicates() const { return communicate_ == Communicate::yes; }
    [[nodiscard]] const Collective& collective(std::int32_t index) const {
        return step_->program.collectives[static_cast<std::size_t>(index)];
    }
    [[nodiscard]] RankExchange exchange_of(std::int32_t collective) const {
        return memory_.exchange(step_->program, collective, statistics_);
    }
    [[nodiscard]] const RankMemory& memory() const { return memory_; }
    [[nodiscard]] const Workload& workload() const { return memory_.workload(); }
    [[nodiscard]] const KernelPlan& kernel_plan() const { return kernel_plan_; }
    // For kernels that only update own parts.
    [[nodiscard]] const KernelPlan& no_operations() const { return no_operations_; }
    [[nodiscard]] std::int64_t memory_bytes() const { return source_.count.current; }
    [[nodiscard]] double mean_factor() const {
        return 1.0 / static_cast<double>(memory_.place().all());
    }
    // The map of unused parameters and BatchNorm's statistics before the step, which exchanges and
    // does not compute them; from RankMemory::unused_map() on.
    [[nodiscard]] const std::vector<std::byte>& initially_exchanged() const { return exchanged_; }
    // The time or kind of an optimizer that updates own parts.
    [[nodiscard]] static std::variant<Duration, Optimizer> part_of_optimizer(
        const Scenario& scenario, const SyncSettings& sync);

    // Compares gradients that are not sharded; tolerances are relative, by gradient.
    virtual StepCheck check_gradients(double mean, const std::vector<double>& tolerances);

  private:
    [[nodiscard]] virtual PlannedKernels& kernels() = 0;
    [[nodiscard]] virtual PlannedKernels& optimizer() = 0;
    // Tensors lie elsewhere, so that earlier transfers no longer count.
    virtual void rearranged() = 0;
    // Everything that the step which begins needs and that is no part of it.
    virtual void prepare_step() = 0;
    // Returns once all ranks have come here, if they communicate; nothing is in flight.
    virtual void set_out() = 0;
    // Returns once everything that was executed has been done.
    virtual void settle() = 0;
    // A transfer that later steps copy or add by; transfers are numbered in this order.
    virtual void prepare(const Transfer& transfer) = 0;
    virtual void copy(std::size_t transfer, double factor, Lane lane) = 0;
    virtual void add(std::size_t transfer, Lane lane) = 0;
    // Looks for what is no number.
    virtual void examine(std::size_t transfer, Lane lane) = 0;
    // `instruction` launches the collective.
    virtual void launch(std::size_t instruction, std::int32_t collective) = 0;
    virtual void wait_for(std::int32_t collective) = 0;
    // There when they return. Reading: in host memory, until the next call.
    virtual void write(std::byte* to, const std::byte* from, std::int64_t bytes) = 0;
    virtual const std::byte* read(const std::byte* from, Bytes size) = 0;

    void clear(const TensorMemory& memory);
    void plan_transfers();
    [[nodiscard]] std::size_t transfer_of(Copy copy, std::int32_t subject);
    void perform(Copy copy, std::size_t transfer, Lane lane, std::int64_t micro_step);
    void backward(std::int32_t operation);
    void write_shards();

    void check_after(const Instruction& instruction, StepCheck& check);
    void check_move(std::int32_t move, CopyRoute route, StepCheck& check);
    void check_gathered(std::int32_t parameter, StepCheck& check);
    void check_reduced(std::int32_t parameter, std::int64_t micro_steps, StepCheck& check);
    void check_unused_map(StepCheck& check);
    void check_statistics(StepCheck& check);
    [[nodiscard]] int ranks() const { return static_cast<int>(memory_.place().all()); }

    TensorSource source_;
    RankMemory memory_;
    std::int64_t accumulation_;
    bool accumulates_;   // gradients of several micro-steps, as backward leaves them
    bool adds_shares_;   // those of several micro-steps
    float value_scale_;  // of the gradients' known values, a power of two
    KernelPlan kernel_plan_;
    KernelPlan no_operations_;
    StatisticsMessages statistics_;
    std::vector<std::byte> exchanged_;

    const ReplayedStep* step_ = nullptr;
    std::int64_t number_ = 0;  // of the gradients of the step in progress
    std::int64_t parameters_number_ = 0;
    std::int64_t micro_step_ = -1;  // from its backward on
    std::int32_t next_backward_ = 0;
    Communicate communicate_ = Communicate::yes;

    std::vector<Transfer> transfers_;
    std::map<std::pair<CopyRoute, std::int32_t>, std::size_t> numbers_;  // of these, by subject
    std::vector<std::size_t> of_instruction_;  // its transfer, of those that copy
    std::vector<std::size_t> of_before_;       // by collective
    std::vector<std::size_t> of_after_;
};

}  // namespace bucketwise
