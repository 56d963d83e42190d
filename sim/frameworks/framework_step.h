// The step under a framework's rule: its buckets on a scenario's workload and link.
#pragma once

#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/bucket_planner.h"
#include "sim/engine/step_loop.h"
#include "sim/engine/step_parts.h"
#include "sim/optimum/max_plus_plan.h"
#include "sim/plan/gradient_line.h"
#include "sim/plan/strategy.h"
#include "sim/program/framework.h"
#include "sim/program/program.h"

namespace bucketwise {

class FrameworkStep {
  public:
    // `request` decides what the rule does not: BatchNorm's statistics, and for PyTorch the hook,
    // views, buffers, the first bucket and the version, but not its caps.
    // Throws InputError when the step could last longer than longest_duration.
    FrameworkStep(const StepInput& input, const SyncRequest& request, const FrameworkUse& use);
    FrameworkStep(const FrameworkStep&) = delete;
    FrameworkStep& operator=(const FrameworkStep&) = delete;

    // The buckets of a limit in the rule's unit, elements or bytes; none: the framework's default.
    // Horovod's go out at the moments that its cycle gives.
    [[nodiscard]] FusedPlan plan(std::optional<Bytes> limit, Duration cycle = default_cycle) const;

    // The buckets with PyTorch's list of caps.
    [[nodiscard]] FusedPlan plan_of_list(const std::vector<Bytes>& list) const;

    // Throws InputError as the constructor does.
    Duration step(const FusedPlan& fused);

    // The step's phases; none where several micro-steps reduce.
    std::optional<StepTimes> times(const FusedPlan& fused);

    // The whole step, as a host issues it.
    [[nodiscard]] Program program(const FusedPlan& fused) const;

    // A rank's memory for buckets. PyTorch: the buckets (none with views) and the casts of a hook.
    // Megatron-LM: the float32 buffers of gradients (param_and_grad_buffer.py). DeepSpeed: one
    // buffer of the limit, two with overlap, however small the model is (setup_buckets() in
    // stage_1_and_2.py). Horovod: the threshold (fusion_buffer_manager.cc).
    [[nodiscard]] Bytes buffers(const BucketPlan& plan, std::optional<Bytes> limit) const;

    // A lower bound of the step: nothing copied or launched, only the network busy.
    [[nodiscard]] Duration at_least(const FusedPlan& fused) const;

    // The smallest limit that may be set.
    [[nodiscard]] Bytes least_limit() const { return in_pieces() ? least_cap(request_) : Bytes{1}; }
    // Whether gradients become ready in pieces of the graph that its limit cuts.
    [[nodiscard]] bool in_pieces() const { return sync_.policy.pieces.has_value(); }

    // The gradients in the order of their readiness.
    [[nodiscard]] const GradientLine& line() const { return line_; }

    // The step where each bucket goes out once it and all before it are full, with this framework's
    // copies (Horovod: without), and nothing waits for a bucket before the end of backward. Throws
    // InputError as the constructor does.
    Duration step_in_order(const BucketPlan& plan);

    // Whether the shortest such step over all cuts of the line can be found in little time: not
    // with interference, several dtypes, ranks that differ, parameters gathered bucket by bucket,
    // or many gradients.
    [[nodiscard]] bool can_be_optimised() const;

    // The cuts with the shortest step, if one is below `limit`. Not `exact` where the search took
    // steps for equal that differ by very little. Precondition (asserted): it can be optimised.
    struct Optimum {
        std::optional<CutStep> found;
        bool exact = true;
    };
    [[nodiscard]] Optimum optimum_below(Duration limit);

    // The optimum depends on these and on the input.
    [[nodiscard]] SyncSettings in_order_settings() const;

    // Megatron-LM without overlap: one bucket per dtype, after backward.
    Duration step_after_backward();

  private:
    Duration step_with(const SyncSettings& sync, const BucketPlan& plan);
    Duration step_of_micro_steps(std::int64_t micro_steps, const SyncSettings& sync,
                                 const BucketPlan& plan);

    FrameworkUse use_;
    const FrameworkRule& rule_;
    SyncRequest request_;  // without caps
    StepInput input_;
    StepInput few_;      // the same with fewer micro-steps, once it is needed
    std::int64_t unit_;  // bytes of a cap for each of a limit
    DType parameters_;   // dtype
    SyncSettings sync_;  // without limits
    GradientLine line_;
    StepBeforeClosing before_;
    StepToClose step_;
    BackwardMoments moments_;  // of a step without buckets
    Program program_;
};

}  // namespace bucketwise
