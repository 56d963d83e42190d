// The part of replaying a sharded step that is the same on every device: the rank's parts, the
// values that parameters and gradients take, and the comparison with them afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hw/compute/kernel_plan.h"
#include "hw/compute/known_message.h"
#include "hw/compute/planned_kernels.h"
#include "hw/compute/sharded_layout.h"
#include "hw/rank/rank_device.h"
#include "hw/rank/shard_place.h"
#include "sim/scenario/scenario.h"
#include "sim/sharding/shard_plan.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// The parameters that are gathered or reduced together.
struct ShardMove {
    ShardedLayout layout;          // among the ranks that share parameters
    ShardedLayout fewer = {};      // among the fewer that backward gathers among, if there are
    DType dtype = DType::float32;  // of the shards
    DType gathered_dtype = DType::float32;
    DType reduced_dtype = DType::float32;
};

class ShardedRank : public RankDevice {
  public:
    StepCheck check() final;
    StepCheck run_checked(const ReplayedStep& step, std::int64_t number) final;

  protected:
    // `scenario` shards, `workload` is the scenario's.
    ShardedRank(const Scenario& scenario, const Workload& workload, const ShardPlace& place);

    // Writes the shards: parameters change with every step, as an optimizer changes them. Lays
    // memory out anew if the step moves other parameters together. The step outlives it.
    void begin_step(const ReplayedStep& step, std::int64_t number, Communicate communicate);
    // To run the same step once more, with gradients of another number.
    void begin_step_again(std::int64_t number) { number_ = number; }

    [[nodiscard]] const ShardPlace& place() const { return place_; }
    [[nodiscard]] bool communicates() const { return communicate_ == Communicate::yes; }
    [[nodiscard]] const ReplayedStep& step() const { return *step_; }
    // Gradients have the dtypes of their wait for reduction.
    [[nodiscard]] const Workload& workload() const { return workload_; }
    // The rank's own parts, in the parameters' dtypes.
    [[nodiscard]] const std::vector<Gradient>& own_gradients() const { return own_gradients_; }
    [[nodiscard]] const KernelPlan& kernel_plan() const { return kernel_plan_; }
    [[nodiscard]] const std::vector<ShardMove>& moves() const { return moves_; }
    [[nodiscard]] const ShardMove& move(std::int32_t index) const {
        return moves_[static_cast<std::size_t>(index)];
    }
    [[nodiscard]] bool gathers_among_fewer(const ShardedCall& call) const {
        return call.among_fewer && place_.gathers_among_fewer();
    }
    // Whether moves share their memory, as they follow one another on one stream.
    [[nodiscard]] bool moves_one_by_one() const { return moves_one_by_one_; }
    // Bytes of a whole gathered parameter, with padding, and of a rank's part of it.
    [[nodiscard]] Bytes gathered_size(std::int32_t parameter) const;
    [[nodiscard]] Bytes shard_size(std::int32_t parameter) const;

    // Multiplies the gradient's pattern in backward.
    [[nodiscard]] float backward_value(std::int64_t micro_step) const;
    // Whether backward adds to the gradients of earlier micro-steps.
    [[nodiscard]] bool accumulates(std::int64_t micro_step) const {
        return accumulates_ && micro_step > 0;
    }
    // Multiplies gradients before they are summed.
    [[nodiscard]] double mean_factor() const { return 1.0 / static_cast<double>(place_.all()); }

  private:
    // Memory for new moves(). Its old contents are lost.
    virtual void lay_out() = 0;
    // Writes `count` known values from `first` on as the rank's shard.
    virtual void write_shard(const KnownParameter& known, std::int64_t first,
                             std::int64_t count) = 0;
    virtual void prepare() {}  // for the step that begins
    // Returns once all ranks have come here, if they communicate; nothing is in flight.
    virtual void set_out() = 0;
    virtual void execute(const ShardedCall& call) = 0;
    // Returns once everything that was executed has been done.
    virtual void settle() = 0;
    // In host memory, until the next call: a whole parameter as it was gathered last, and the own
    // part of its gradient.
    virtual const void* gathered_values(std::int32_t parameter) = 0;
    virtual const void* own_gradient_values(std::int32_t parameter) = 0;

    [[nodiscard]] const ShardGroup& group_of(std::int32_t parameter) const {
        return plan_.groups[plan_.group_of[static_cast<std::size_t>(parameter)]];
    }
    void take_moves(const ReplayedStep& step);
    void check_after(const ShardedCall& call, StepCheck& check);
    void check_gathered(std::int32_t parameter, StepCheck& check);
    void check_reduced(std::int32_t parameter, std::int64_t micro_steps, StepCheck& check);

    ShardPlace place_;
    std::int64_t accumulation_;
    bool accumulates_;  // gradients as backward leaves them, not reduced ones
    bool moves_one_by_one_;
    Cut cut_;
    float value_scale_;
    ShardPlan plan_;
    std::vector<std::vector<std::int32_t>> moved_;  // moves_ were made for these
    Workload workload_;
    ShardedLayout all_;  // every parameter, by its index
    std::vector<Gradient> own_gradients_;
    KernelPlan kernel_plan_;
    std::vector<ShardMove> moves_;
    const ReplayedStep* step_ = nullptr;
    std::int64_t number_ = 0;  // of the gradients of the step in progress
    std::int64_t parameters_number_ = 0;
    Communicate communicate_ = Communicate::yes;
};

}  // namespace bucketwise
