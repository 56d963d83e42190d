// What replaying a step has in common on every device: which instruction calls what, the values
// that gradients take, and what is compared with them afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hw/batch_norm/statistics_messages.h"
#include "hw/compute/kernel_plan.h"
#include "hw/compute/planned_kernels.h"
#include "hw/rank/rank_device.h"
#include "hw/rank/replay_rules.h"
#include "sim/plan/plan.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/workload.h"

namespace bucketwise {

class ReplayRank : public RankDevice {
  public:
    std::vector<Duration> backward_alone() final;

  protected:
    // `workload` is the scenario's; `sync` decides where gradients live: every later step
    // synchronises in that way, or not at all.
    ReplayRank(const Scenario& scenario, const Workload& workload, const SyncSettings& sync,
               int rank, int ranks);

    // The step in progress.
    struct Step {
        const Program* program = nullptr;
        ReplayRules rules;
        bool reduces_unused_map = false;
        std::int64_t number = 0;
        std::int64_t micro_step = 0;
        Communicate communicate = Communicate::yes;
    };

    // `program` is kept by reference until the next one begins. Lays the buckets out anew if `plan`
    // has some that differ.
    void begin_step(const Program& program, const SyncSettings& sync, const BucketPlan& plan,
                    std::int64_t number, Communicate communicate);
    // To run the same one once more, with the values of another number.
    void begin_step_again(std::int64_t number) {
        step_.number = number;
        step_.micro_step = 0;
    }
    // Does what the instruction says, or puts it on a queue, whatever the device does.
    void execute(const Instruction& instruction);

    [[nodiscard]] const Step& step() const { return step_; }
    [[nodiscard]] const Workload& workload() const { return workload_; }
    [[nodiscard]] const KernelPlan& kernel_plan() const { return kernel_plan_; }
    // What the buffers are laid out for.
    [[nodiscard]] const BucketPlan& plan() const { return plan_; }
    [[nodiscard]] const Gradient& gradient(std::int32_t index) const {
        return workload_.gradients[static_cast<std::size_t>(index)];
    }
    [[nodiscard]] const Bucket& bucket(std::int32_t index) const {
        return plan_.buckets[static_cast<std::size_t>(index)];
    }
    // Whether a hook casts the bucket for its all-reduce, and what then travels.
    [[nodiscard]] DType wire_dtype_of(std::int32_t index) const {
        return step_.rules.on_the_wire(bucket(index).dtype);
    }
    [[nodiscard]] bool casts(std::int32_t index) const {
        return step_.rules.casts(bucket(index).dtype);
    }
    // What packing the bucket fills and unpacking empties: what travels, or, where packing does not
    // cast, the bucket.
    [[nodiscard]] bool packs_what_travels(std::int32_t index) const {
        return casts(index) && !step_.rules.packs_undivided();
    }
    [[nodiscard]] DType packed_dtype_of(std::int32_t index) const {
        return packs_what_travels(index) ? wire_dtype_of(index) : bucket(index).dtype;
    }
    [[nodiscard]] Movement movement(std::int32_t collective) const {
        return movement_of(*step_.program, collective, plan_, statistics_, step_.rules);
    }

    // to[i] = factor * from[i], i < numel.
    struct Copy {
        std::byte* to = nullptr;
        DType to_dtype = DType::float32;
        const std::byte* from = nullptr;
        DType from_dtype = DType::float32;
        std::int64_t numel = 0;
        double factor = 1.0;
    };
    // What to copy: a gradient into its bucket or back, a bucket into what travels or back, or what
    // travels onto itself, divided.
    template <typename Buffers>
    [[nodiscard]] Copy copy_of(InstructionKind kind, std::int32_t subject, Buffers& buffers) const {
        if (kind == InstructionKind::copy_in || kind == InstructionKind::copy_back) {
            std::byte* own = buffers.gradient(subject);
            std::byte* place = buffers.place_in_bucket(subject);
            const Gradient& g = gradient(subject);
            return kind == InstructionKind::copy_in
                       ? Copy{place,   g.dtype, own,
                              g.dtype, g.numel, step_.rules.copy_in_factor(g.dtype)}
                       : Copy{own, g.dtype, place, g.dtype, g.numel, 1.0};
        }
        std::byte* full = buffers.bucket(subject);
        std::byte* half = buffers.compressed(subject);
        const Bucket& b = bucket(subject);
        const DType wire = wire_dtype_of(subject);
        if (kind == InstructionKind::scale) {
            std::byte* travels = casts(subject) ? half : full;
            return {travels, wire, travels, wire, numel_of(b), step_.rules.mean_factor()};
        }
        return kind == InstructionKind::cast_down
                   ? Copy{half, wire, full, b.dtype, numel_of(b), 1.0}
                   : Copy{full, b.dtype, half, wire, numel_of(b), 1.0};
    }

    // What every gradient's known values are multiplied by after the step, but for its own factor.
    [[nodiscard]] double exact_mean() const;
    // Relative, by gradient.
    [[nodiscard]] std::vector<double> tolerances() const;
    // `map`: one value per parameter, after the step. Says what is wrong unless something else is.
    void check_unused_map(std::span<const float> map, StepCheck& check) const;
    // What stands for BatchNorm's statistics in the step. `block`: after it.
    [[nodiscard]] const StatisticsMessages& statistics() const { return statistics_; }
    void check_statistics(const std::vector<std::byte>& block, StepCheck& check) const;

  private:
    [[nodiscard]] virtual PlannedKernels& kernels() = 0;
    // The buckets of plan() in the buffers' memory. What they held is lost.
    virtual void lay_out() = 0;

    // Instructions that do not only compute, by their subjects.
    virtual void copy_buffers(std::int32_t group) = 0;
    // What copy_of() says.
    virtual void copy(InstructionKind kind, std::int32_t subject) = 0;
    virtual void pack(std::int32_t bucket) = 0;
    virtual void launch(std::int32_t collective) = 0;
    virtual void wait_for(std::int32_t collective) = 0;
    virtual void unpack(std::int32_t bucket) = 0;

    // Every operation of backward, once. What the second returns: the time of each.
    virtual void warm_up_backward() = 0;
    virtual std::vector<Duration> time_backward() = 0;

    void backward(std::int32_t operation);

    Workload workload_;
    int rank_;
    std::int64_t accumulation_;
    float value_scale_;  // of the gradients' known values, a power of two
    KernelPlan kernel_plan_;
    BucketPlan plan_;
    Step step_;
    StatisticsMessages statistics_;
};

}  // namespace bucketwise
