// The step that a framework's rule gives: its buckets on a scenario's own workload and link.
#pragma once

#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/step_loop.h"
#include "sim/engine/step_parts.h"
#include "sim/frameworks/framework.h"
#include "sim/optimum/max_plus_plan.h"
#include "sim/plan/gradient_line.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"

namespace bucketwise {

class FrameworkStep {
  public:
    // What is not the rule's is as `request` has it: BatchNorm's statistics, and for PyTorch the
    // hook, views, buffers, the first bucket and the version, but not its caps.
    // Throws InputError when the step could last longer than longest_duration.
    FrameworkStep(const StepInput& input, const SyncRequest& request, const FrameworkUse& use);
    FrameworkStep(const FrameworkStep&) = delete;
    FrameworkStep& operator=(const FrameworkStep&) = delete;

    // The buckets with a limit in what the rule counts, elements or bytes; none: the framework's
    // default. Horovod's go out at the moments that its cycle gives.
    [[nodiscard]] FusedPlan plan(std::optional<Bytes> limit, Duration cycle = default_cycle) const;

    // The buckets with PyTorch's list of caps.
    [[nodiscard]] FusedPlan plan_of_list(const std::vector<Bytes>& list) const;

    // The step with them. Throws InputError likewise.
    Duration step(const FusedPlan& fused);

    // Its phases; none where several micro-steps reduce.
    std::optional<StepTimes> times(const FusedPlan& fused);

    // The whole step with them, as a host issues it.
    [[nodiscard]] Program program(const FusedPlan& fused) const;

    // What a rank holds for buckets: PyTorch's beside the gradients, or with views none, and what a
    // hook casts; the float32 that Megatron-LM's gradients live in (param_and_grad_buffer.py);
    // DeepSpeed's one buffer of the limit, with overlap two, however small the model is
    // (setup_buckets() in stage_1_and_2.py); Horovod's threshold (fusion_buffer_manager.cc).
    [[nodiscard]] Bytes buffers(const BucketPlan& plan, std::optional<Bytes> limit) const;

    // No step with these buckets is shorter: nothing copied or launched, only the network busy.
    [[nodiscard]] Duration at_least(const FusedPlan& fused) const;

    // The smallest limit that it takes.
    [[nodiscard]] Bytes least_limit() const { return in_pieces() ? least_cap(request_) : Bytes{1}; }
    // Whether gradients become ready in pieces of the graph that its limit cuts.
    [[nodiscard]] bool in_pieces() const { return sync_.policy.pieces.has_value(); }

    // The gradients in the order of their readiness.
    [[nodiscard]] const GradientLine& line() const { return line_; }

    // The step with buckets that each go out once they and all before them are full, with this
    // framework's copies (Horovod: without), and nothing waiting for them before the end of
    // backward. Throws likewise.
    Duration step_in_order(const BucketPlan& plan);

    // Whether the shortest such step of all cuts of the line can be found in little time: not with
    // interference, several dtypes, ranks that differ, parameters gathered bucket by bucket, or
    // many gradients.
    [[nodiscard]] bool can_be_optimised() const;

    // The cuts with the shortest step, if there are some below `limit`; not `exact` where the
    // search had to take some for no later that were so by very little. Precondition (asserted): it
    // can be optimised.
    struct Optimum {
        std::optional<CutStep> found;
        bool exact = true;
    };
    [[nodiscard]] Optimum optimum_below(Duration limit);

    // What the optimum depends on besides the input.
    [[nodiscard]] SyncSettings in_order_settings() const;

    // Megatron-LM without overlap: one bucket per dtype, after backward.
    Duration step_after_backward();

  private:
    void find_moments();
    [[nodiscard]] std::vector<BackwardPlace> places_of(const std::vector<Duration>& times) const;
    Duration step_with(const SyncSettings& sync, const BucketPlan& plan);
    Duration step_of_micro_steps(std::int64_t micro_steps, const SyncSettings& sync,
                                 const BucketPlan& plan);

    [[nodiscard]] BucketPlan plan_with(const PlanPolicy& policy) const;
    void add_gathers(BucketPlan& plan) const;
    [[nodiscard]] std::size_t mirrored_operation(Duration moment) const;
    void split_large(Bytes limit, BucketPlan& plan) const;

    FrameworkUse use_;
    const FrameworkRule& rule_;
    StepInput input_;  // as the framework has it
    StepInput few_;    // the same with fewer micro-steps, once it is needed
    SyncRequest request_;
    SyncSettings sync_;  // but for the limits
    GradientLine line_;
    RankProgress start_;  // of the closing part, on a rank that no class slows down
    StepBeforeClosing before_;
    StepToClose step_;
    // Had there been no bucket:
    std::vector<GradientMoments> moments_;  // by gradient
    std::vector<Duration> starts_;          // of each operation of backward, on the device
    std::vector<Duration> ends_;
    Program program_;
};

}  // namespace bucketwise
