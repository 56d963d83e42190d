#include "sim/frameworks/framework_step.h"

#include <algorithm>
#include <utility>

#include "sim/base/invariant.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

// The exact search takes some tens of milliseconds for so many.
constexpr std::size_t most_gradients_for_optimum = 500;

StepInput held_in(StepInput input, const SyncRequest& request) {
    input.workload = held_by(std::move(input.workload), request);
    return input;
}

PlanPolicy line_policy() {
    return {.order = Order::readiness, .launch = LaunchRule::in_order, .limits = {}};
}

}  // namespace

FrameworkStep::FrameworkStep(const StepInput& input, const SyncRequest& request,
                             const FrameworkUse& use)
    : use_(use),
      rule_(rule_of(use)),
      request_(used_as(request, use)),
      input_(held_in(input, request_)),
      unit_(cap_bytes_of_limit(use, input_.workload)),
      parameters_(narrowest_of(input.workload.gradients)),
      sync_(settings_for(request_, input_, parameters_)),
      line_(input_.workload.gradients, input_.workload.readiness, line_policy()),
      before_(input_, without_buckets_before(sync_)),
      step_(before_),
      moments_(backward_moments(input_, sync_)) {}

FusedPlan FrameworkStep::plan(std::optional<Bytes> limit, Duration cycle) const {
    SyncRequest request = limit ? with_cap(request_, unit_ * *limit) : without_caps(request_);
    request.options.cycle = cycle;
    FusedPlan fused = fused_plan(input_, settings_for(request, input_, parameters_), moments_);
    CapRange& same = fused.plan.same_plan;
    same.lowest = {divided(same.lowest.count, unit_)};
    if (same.highest) {
        same.highest->count /= unit_;
    }
    return fused;
}

FusedPlan FrameworkStep::plan_of_list(const std::vector<Bytes>& list) const {
    invariant(rule_.unit == SettingUnit::mib, "only PyTorch takes a list of caps");
    SyncRequest request = without_caps(request_);
    request.bucket_cap_list = list;
    return fused_plan(input_, settings_for(request, input_), moments_);
}

// --- steps ---

Duration FrameworkStep::step(const FusedPlan& fused) {
    return step_with(sync_, fused.plan);
}

std::optional<StepTimes> FrameworkStep::times(const FusedPlan& fused) {
    if (depends_on_plan(input_, sync_)) {
        return std::nullopt;
    }
    build_closing(input_, sync_, fused.plan, program_);
    return step_.closed_by(program_);
}

Program FrameworkStep::program(const FusedPlan& fused) const {
    return build_program(input_, sync_, fused.plan);
}

Bytes FrameworkStep::buffers(const BucketPlan& plan, std::optional<Bytes> limit) const {
    const Bytes set = limit.value_or(default_limit(use_, input_.group.ranks));
    if (is_deepspeed(use_)) {
        const std::int64_t count = !use_.contiguous_gradients ? 0 : use_.overlaps ? 2 : 1;
        return count * set.count * element_size(narrowest_of(input_.workload.gradients));
    }
    if (sync_.policy.launch == LaunchRule::cycle) {
        return horovod_threshold(set, input_.group.ranks_per_node);
    }
    Bytes sum;
    for (const Bucket& bucket : plan.buckets) {
        const bool casts = hook_casts(sync_, bucket.dtype);
        const bool is_beside = sync_.copies_back || is_megatron(use_);
        sum += casts ? bytes_on_wire(sync_, bucket) : Bytes{0};
        if (is_beside) {
            sum += casts ? bucket.size : bytes_on_wire(sync_, bucket);
        }
    }
    return sum;
}

Duration FrameworkStep::at_least(const FusedPlan& fused) const {
    const std::vector<Bucket>& buckets = fused.plan.buckets;
    std::vector<std::pair<Duration, Duration>> sent;  // ready, taking
    for (std::size_t i = 0; i < buckets.size(); ++i) {
        Duration ready = fused.times.empty() ? Duration{0} : fused.times[i];
        for (const std::int32_t gradient : buckets[i].gradients) {
            ready = std::max(ready, moments_.gradients[static_cast<std::size_t>(gradient)].ready);
        }
        Duration taking{0};
        for (const Bytes bytes : buckets[i].pieces.empty()
                                     ? std::vector{bytes_on_wire(sync_, buckets[i])}
                                     : buckets[i].pieces) {
            taking += collective_time(sync_.framework.reduction, bytes, input_.group, input_.link);
        }
        sent.emplace_back(ready, taking);
    }
    if (sync_.policy.launch != LaunchRule::in_order) {
        std::ranges::stable_sort(sent, {}, &std::pair<Duration, Duration>::first);
    }
    const std::int64_t updating_ranks = sync_.framework.updating_ranks;
    Duration end = moments_.end();
    Duration network{0};
    for (const auto& [ready, taking] : sent) {
        network = std::min(std::max(network, ready) + taking, longest_duration);
    }
    end = std::max(end, network) + input_.step.optimizer / updating_ranks;
    for (const Bytes size : sync_.framework.gathers) {
        end += collective_time(CollectiveKind::all_gather, size, input_.group, input_.link);
    }
    for (const TimedOperation& operation : input_.step.optimizer_operations) {
        end += operation.order.is_beside() ? Duration{0} : operation.device / updating_ranks;
    }
    return end;
}

SyncSettings FrameworkStep::in_order_settings() const {
    SyncSettings sync = sync_;
    sync.policy = line_policy();
    sync.framework.wait = ComputingWaits::at_the_end;
    sync.framework.host_waits = sync.framework.checks_at_launch = false;
    // The same optimum serves both where there is one micro-step.
    sync.framework.every_micro_step =
        sync.framework.every_micro_step && input_.step.accumulation > 1;
    return sync;
}

Duration FrameworkStep::step_with(const SyncSettings& sync, const BucketPlan& plan) {
    if (!depends_on_plan(input_, sync)) {
        build_closing(input_, sync, plan, program_);
        return step_.step_closed_by(program_);
    }
    // Micro-steps are alike, so a few give the time of each further one.
    constexpr std::int64_t enough = 6;
    const std::int64_t micro_steps = input_.step.accumulation;
    if (micro_steps <= enough) {
        return step_of_micro_steps(micro_steps, sync, plan);
    }
    const Duration few = step_of_micro_steps(enough - 1, sync, plan);
    const Duration more = step_of_micro_steps(enough, sync, plan);
    const double seconds = std::chrono::duration<double>(more).count() +
                           std::chrono::duration<double>(more - few).count() *
                               static_cast<double>(micro_steps - enough);
    check_length(seconds);
    return more + (micro_steps - enough) * (more - few);
}

Duration FrameworkStep::step_of_micro_steps(std::int64_t micro_steps, const SyncSettings& sync,
                                            const BucketPlan& plan) {
    if (few_.workload.gradients.empty()) {
        few_ = input_;
    }
    few_.step.accumulation = micro_steps;
    const StepBeforeClosing before(few_, sync, plan);
    build_closing(few_, sync, plan, program_);
    return StepToClose(before).step_closed_by(program_);
}

Duration FrameworkStep::step_in_order(const BucketPlan& plan) {
    BucketPlan own = plan;
    own.readiness.reset();
    add_gathers(input_, sync_, moments_, own);
    return step_with(in_order_settings(), own);
}

Duration FrameworkStep::step_after_backward() {
    SyncSettings sync = sync_;
    sync.policy.closing = Closing::single;
    sync.policy.launch = LaunchRule::after_backward;
    return step_with(sync, fused_plan(input_, sync, moments_).plan);
}

bool FrameworkStep::can_be_optimised() const {
    // Sums of a search stay far from the longest duration.
    constexpr double longest_s = 86400;
    double seconds = std::chrono::duration<double>(moments_.start.device).count();
    for (const Gradient& gradient : input_.workload.gradients) {
        const Duration alone =
            collective_time(CollectiveKind::all_reduce, gradient.size(), input_.group, input_.link);
        seconds += std::chrono::duration<double>(alone).count();
    }
    return seconds < longest_s && line_.uniform() && line_.size() > 0 &&
           line_.size() <= most_gradients_for_optimum && input_.classes.empty() &&
           !interferes(input_.link) && !depends_on_plan(input_, sync_) &&
           !sync_.framework.gathers_buckets;
}

FrameworkStep::Optimum FrameworkStep::optimum_below(Duration limit) {
    invariant(can_be_optimised(), "an exact search in little time");
    const SyncSettings sync = in_order_settings();
    MaxPlusPlanner planner(input_, sync, line_, before_.loop(), moments_.start);
    Optimum optimum;
    optimum.found = planner.best_below(limit, [](double) {});
    optimum.exact = planner.slack() == Duration{0};
    if (optimum.found) {
        // A launch queue that fills may make it longer.
        const Duration step = step_in_order(line_.plan(optimum.found->cuts));
        optimum.exact = optimum.exact && step == optimum.found->step;
        optimum.found->step = step;
        if (step >= limit) {
            optimum.found.reset();
        }
    }
    return optimum;
}

}  // namespace bucketwise
