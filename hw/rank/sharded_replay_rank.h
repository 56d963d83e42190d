// What replaying a sharded step has in common on every device: who holds which parts, the values
// that parameters and gradients take, and what is compared with them afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hw/compute/kernel_plan.h"
#include "hw/compute/known_parameters.h"
#include "hw/compute/sharded_layout.h"
#include "hw/rank/shard_place.h"
#include "hw/rank/sharded_device.h"
#include "sim/scenario/scenario.h"
#include "sim/sharding/shard_plan.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// What is gathered or reduced together.
struct ShardMove {
    ShardedLayout layout;          // among the ranks that share parameters
    ShardedLayout fewer = {};      // among the fewer that backward gathers among, if there are
    DType dtype = DType::float32;  // of the shards
    DType gathered_dtype = DType::float32;
    DType reduced_dtype = DType::float32;
    bool operator==(const ShardMove&) const = default;
};

class ShardedReplayRank : public ShardedDevice {
  public:
    StepCheck check() final;
    StepCheck run_checked(const ShardedReplay& replay, std::int64_t number) final;

  protected:
    // `scenario` shards, `workload` is its. Throws std::bad_alloc.
    ShardedReplayRank(const Scenario& scenario, const Workload& workload, const ShardPlace& place);

    // Writes the shards, for parameters change with every step, as an optimizer changes them. Lays
    // memory out anew if the replay moves other parameters together.
    void begin_step(const ShardedReplay& replay, std::int64_t number, Communicate communicate);
    // To run the same one once more, with gradients of another number.
    void begin_step_again(std::int64_t number) { number_ = number; }

    [[nodiscard]] const ShardPlace& place() const { return place_; }
    [[nodiscard]] Communicate communicate() const { return communicate_; }
    // Gradients in the dtypes in which they wait to be reduced.
    [[nodiscard]] const Workload& workload() const { return workload_; }
    // The rank's own parts, in the parameters' dtypes.
    [[nodiscard]] const std::vector<Gradient>& own_gradients() const { return own_gradients_; }
    [[nodiscard]] const KernelPlan& kernel_plan() const { return kernel_plan_; }
    [[nodiscard]] const std::vector<ShardMove>& moves() const { return moves_; }
    [[nodiscard]] const ShardMove& move(const ShardedCall& call) const {
        return moves_[static_cast<std::size_t>(call.move)];
    }
    // Among whom a call gathers, and where this rank stands among them.
    struct Gathering {
        const ShardedLayout& layout;
        std::int64_t rank = 0;
        std::int64_t ranks = 1;
        bool among_fewer = false;  // of those that share parameters
    };
    [[nodiscard]] Gathering gathering(const ShardedCall& call) const;
    // Whether moves share their memory, as they follow one another on one stream.
    [[nodiscard]] bool moves_one_by_one() const { return moves_one_by_one_; }
    // The parameter, with what is padded, when all of it has been gathered; and its part of a rank.
    [[nodiscard]] Bytes gathered_size(std::int32_t parameter) const;
    [[nodiscard]] Bytes shard_size(std::int32_t parameter) const;
    [[nodiscard]] const ShardGroup& group_of(std::int32_t parameter) const {
        return plan_.groups[plan_.group_of[static_cast<std::size_t>(parameter)]];
    }

    // What backward leaves, times the gradient's pattern.
    [[nodiscard]] float backward_value(std::int64_t micro_step) const;
    // Whether backward adds to what an earlier micro-step left.
    [[nodiscard]] bool accumulates(std::int64_t micro_step) const {
        return accumulates_ && micro_step > 0;
    }
    // What gradients are multiplied by before they are summed.
    [[nodiscard]] double mean_factor() const { return 1.0 / static_cast<double>(place_.all()); }

  private:
    // moves() are others: memory for them. What it held is lost.
    virtual void lay_out() = 0;
    // The known values from `first` on, so many of them, as the rank's shard.
    virtual void write_shard(const KnownParameter& known, std::int64_t first,
                             std::int64_t count) = 0;
    // The step that begins is of this replay, which outlives it.
    virtual void prepare(const ShardedReplay& /*replay*/) {}
    // Returns once all ranks have come here, if they communicate; nothing is in flight.
    virtual void set_out() = 0;
    virtual void execute(const ShardedCall& call) = 0;
    // Returns once everything that was executed has been done.
    virtual void settle() = 0;
    // Of a parameter, in host memory, until the next call: all of it as it was gathered last, and
    // the own part of its gradient.
    virtual const void* gathered_values(std::int32_t parameter) = 0;
    virtual const void* own_gradient_values(std::int32_t parameter) = 0;

    void arrange_moves(const ShardedReplay& replay);
    void write_shards();
    void check_after(const ShardedReplay& replay, const ShardedCall& call, StepCheck& check);
    void check_gathered(std::int32_t parameter, StepCheck& check);
    // After so many micro-steps.
    void check_reduced(std::int32_t parameter, std::int64_t micro_steps, StepCheck& check);

    ShardPlace place_;
    std::int64_t accumulation_;
    bool accumulates_;  // gradients as backward leaves them, not what was reduced
    bool moves_one_by_one_;
    Cut cut_;
    float value_scale_;
    ShardPlan plan_;
    std::vector<std::vector<std::int32_t>> moved_;  // what moves_ were made for
    Workload workload_;
    ShardedLayout all_;  // every parameter, by its index
    std::vector<Gradient> own_gradients_;
    KernelPlan kernel_plan_;
    std::vector<ShardMove> moves_;
    std::int64_t number_ = 0;  // of the gradients of the step in progress
    std::int64_t parameters_number_ = 0;
    Communicate communicate_ = Communicate::yes;
};

}  // namespace bucketwise
