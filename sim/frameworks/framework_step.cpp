#include "sim/frameworks/framework_step.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <utility>

#include "sim/base/invariant.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

// The exact search takes some tens of milliseconds for so many.
constexpr std::size_t most_gradients_for_optimum = 500;

SyncRequest as_ddp(SyncRequest request) {
    request = without_list(std::move(request));
    request.strategy = Strategy::ddp;
    request.bucket_cap = {};
    request.closing.reset();
    request.order.reset();
    request.launch.reset();
    return request;
}

// The part before the last backward, without any bucket.
SyncSettings without_buckets_before(SyncSettings sync) {
    sync.framework.every_micro_step = false;
    sync.framework.gathers_in_forward = false;
    return sync;
}

PlanPolicy line_policy() {
    return {.order = Order::readiness, .launch = LaunchRule::in_order, .limits = {}};
}

}  // namespace

FrameworkStep::FrameworkStep(const StepInput& input, const SyncRequest& request,
                             const FrameworkUse& use)
    : use_(use),
      rule_(rule_of(use)),
      input_(input_of(input, use)),
      request_(as_ddp(request)),
      sync_(settings_of(request_, input_, use, narrowest_of(input.workload.gradients))),
      line_(input_.workload.gradients, input_.workload.readiness, line_policy()),
      before_(input_, without_buckets_before(sync_)),
      step_(before_) {
    StepInput alike = input_;
    alike.classes.clear();
    const StepBeforeClosing before(alike, without_buckets_before(sync_));
    start_ = StepToClose(before).progress().front();
    find_moments();
}

// Taken from a run of backward without any bucket.
void FrameworkStep::find_moments() {
    const Workload& workload = input_.workload;
    SyncSettings none = sync_;
    none.communicates = false;
    Program program;
    build_closing(input_, none, {}, program);
    const Timeline timeline = simulate({&program, 1}, Record::timeline, start_).timeline;
    std::vector<Span> computed(program.instructions.size());
    for (const Span& span : timeline.spans) {
        if (span.track == Track::compute || span.track == Track::side) {
            computed[static_cast<std::size_t>(span.subject)] = span;
        }
    }
    std::vector<Duration> issued;  // when the host is done with each operation
    Duration host = start_.host;
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        const Instruction& instruction = program.instructions[i];
        if (instruction.kind == InstructionKind::backward && instruction.order.is_beside()) {
            // It does not hold up computing, so its place is where computing is.
            ends_.push_back(ends_.empty() ? start_.device : ends_.back());
            starts_.push_back(ends_.back());
            issued.emplace_back();
        } else if (instruction.kind == InstructionKind::backward) {
            starts_.push_back(computed[i].start);
            ends_.push_back(computed[i].end);
            issued.emplace_back();
        }
        host += instruction.host;
        host = instruction.host_waits ? std::max(host, computed[i].end) : host;
        if (instruction.phase == Phase::backward) {
            issued.back() = host;
        }
    }
    // A workload without launch costs has a host that keeps pace with the device.
    const bool runs_ahead = !workload.host_is_device &&
                            std::ranges::any_of(workload.backward, [](const TimedOperation& o) {
                                return o.host > Duration{0};
                            });
    moments_.resize(workload.gradients.size());
    std::size_t ready = 0;
    for (std::size_t i = 0; i < workload.backward.size(); ++i) {
        for (std::int32_t k = 0; k < workload.backward[i].ready_count; ++k) {
            const auto gradient = static_cast<std::size_t>(workload.readiness[ready++]);
            moments_[gradient] = {runs_ahead ? issued[i] : ends_[i], ends_[i]};
        }
    }
}

// The moments belong to a step without interference, on a rank that no class slows down. Slower
// computing moves the places along.
std::vector<BackwardPlace> FrameworkStep::places_of(const std::vector<Duration>& times) const {
    std::vector<BackwardPlace> places;
    std::size_t operation = 0;
    for (const Duration time : times) {
        while (operation < ends_.size() && ends_[operation] <= time) {
            ++operation;
        }
        const Duration begin = operation < ends_.size() ? starts_[operation]
                               : ends_.empty()          ? start_.device
                                                        : ends_.back();
        places.push_back({operation, std::max(time - begin, Duration{0})});
    }
    return places;
}

// After the optimizer, gathers go in the order of buckets. In forward, each is waited for where an
// operation begins: the mirror of the operation of backward that finishes the bucket. It then sets
// off the gather of the bucket before.
void FrameworkStep::add_gathers(BucketPlan& plan) const {
    if (!sync_.framework.gathers_in_forward) {
        for (const Bucket& bucket : plan.buckets) {
            plan.gathers.push_back({bucket.size});
        }
        return;
    }
    std::vector<Duration> finished;  // by bucket
    for (const Bucket& bucket : plan.buckets) {
        Duration last{0};
        for (const std::int32_t gradient : bucket.gradients) {
            last = std::max(last, moments_[static_cast<std::size_t>(gradient)].ready);
        }
        finished.push_back(last);
    }
    std::vector<std::size_t> order(plan.buckets.size());
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    std::ranges::stable_sort(order, std::ranges::greater{},
                             [&](std::size_t bucket) { return finished[bucket]; });
    for (const std::size_t bucket : order) {
        ParameterGather gather{plan.buckets[bucket].size, mirrored_operation(finished[bucket])};
        if (bucket > 0) {
            gather.next =
                static_cast<std::size_t>(std::ranges::find(order, bucket - 1) - order.begin());
        }
        plan.gathers.push_back(gather);
    }
}

// The operation of forward whose share of time before it equals backward's share after the moment.
std::size_t FrameworkStep::mirrored_operation(Duration moment) const {
    const Duration begin = starts_.empty() ? Duration{0} : starts_.front();
    const Duration backward = ends_.empty() ? Duration{0} : ends_.back() - begin;
    const double share = backward > Duration{0}
                             ? 1 - static_cast<double>((moment - begin).count()) /
                                       static_cast<double>(backward.count())
                             : 0;
    Duration forward{0};
    for (const TimedOperation& operation : input_.workload.forward) {
        forward += operation.order.is_beside() ? Duration{0} : operation.device;
    }
    const Duration before = scaled(forward, std::clamp(share, 0.0, 1.0));
    Duration done{0};
    std::size_t index = 0;
    for (const TimedOperation& operation : input_.workload.forward) {
        done += operation.order.is_beside() ? Duration{0} : operation.device;
        if (done > before) {
            break;
        }
        ++index;
    }
    const std::size_t operations = input_.workload.forward.size();
    return operations == 0 ? 0 : std::min(index, operations - 1);
}

// DeepSpeed's allreduce_and_scatter: a gradient larger than a bucket goes piece by piece, cut where
// the flat parameters are divided among ranks. Each piece but the last has more elements than the
// limit.
void FrameworkStep::split_large(Bytes limit, BucketPlan& plan) const {
    const std::vector<Gradient>& gradients = input_.workload.gradients;
    const std::int64_t share =
        std::max<std::int64_t>(flat_elements(input_) / input_.group.ranks, 1);
    std::vector<std::int64_t> begins;  // of each gradient in the flat parameters
    std::int64_t end = 0;
    for (const Gradient& gradient : gradients) {
        begins.push_back(end);
        end += gradient.numel;
    }
    for (Bucket& bucket : plan.buckets) {
        const std::int64_t elements = bucket.size.count / element_size(bucket.dtype).count;
        bucket.in_place = elements > limit.count;
        if (!bucket.in_place || !use_.reduce_scatter || !use_.contiguous_gradients) {
            continue;
        }
        std::int64_t at = begins[static_cast<std::size_t>(bucket.gradients.front())];
        const std::int64_t last = at + elements;
        std::int64_t piece = 0;
        while (at < last) {
            const std::int64_t next = std::min(last, (at / share + 1) * share);
            piece += next - at;
            at = next;
            if (piece > limit.count || at == last) {
                bucket.pieces.push_back(std::exchange(piece, 0) * element_size(bucket.dtype));
            }
        }
    }
}

BucketPlan FrameworkStep::plan_with(const PlanPolicy& policy) const {
    BucketPlan plan = make_plan(input_.workload, policy);
    if (is_megatron(use_)) {
        // One buffer per dtype, in the order of their first parameters.
        std::array<std::int32_t, every<DType>.size()> first{};
        for (std::size_t i = input_.workload.gradients.size(); i-- > 0;) {
            first[static_cast<std::size_t>(input_.workload.gradients[i].dtype)] =
                static_cast<std::int32_t>(i);
        }
        std::ranges::stable_sort(plan.buckets, {}, [&](const Bucket& bucket) {
            return first[static_cast<std::size_t>(bucket.dtype)];
        });
    }
    if (use_.framework == Framework::megatron_distributed_optimizer) {
        add_gathers(plan);
    }
    if (is_deepspeed(use_)) {
        split_large(policy.limits.cap, plan);
    }
    return plan;
}

FusedPlan FrameworkStep::plan(std::optional<Bytes> limit, Duration cycle) const {
    const Workload& workload = input_.workload;
    const Bytes set = limit.value_or(default_limit(use_, input_.group.ranks));
    if (rule_.launch == LaunchRule::cycle) {
        const std::int64_t local = input_.group.ranks_per_node;
        FusedPlan fused =
            fuse_in_cycles(workload.gradients, workload.readiness, moments_,
                           horovod_threshold(set, local), {cycle, workload.host_is_device});
        fused.plan.same_plan = typed_thresholds(fused.plan.same_plan, local);
        fused.plan.departures = places_of(fused.times);
        return fused;
    }
    PlanPolicy policy = sync_.policy;
    if (rule_.unit == SettingUnit::mib) {
        policy = settings_for(limit ? with_cap(request_, *limit) : without_caps(request_)).policy;
    } else {
        policy.limits.cap = set;
    }
    return {plan_with(policy), {}};
}

FusedPlan FrameworkStep::plan_of_list(const std::vector<Bytes>& list) const {
    invariant(rule_.unit == SettingUnit::mib, "only PyTorch takes a list of caps");
    SyncRequest request = without_caps(request_);
    request.bucket_cap_list = list;
    return {make_plan(input_.workload, settings_for(request).policy), {}};
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
    if (rule_.launch == LaunchRule::cycle) {
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
            ready = std::max(ready, moments_[static_cast<std::size_t>(gradient)].ready);
        }
        Duration taking{0};
        for (const Bytes bytes : buckets[i].pieces.empty()
                                     ? std::vector{bytes_on_wire(sync_, buckets[i])}
                                     : buckets[i].pieces) {
            taking += collective_time(sync_.framework.reduction, bytes, input_.group, input_.link);
        }
        sent.emplace_back(ready, taking);
    }
    if (rule_.launch != LaunchRule::in_order) {
        std::ranges::stable_sort(sent, {}, &std::pair<Duration, Duration>::first);
    }
    Duration end = ends_.empty() ? start_.device : ends_.back();
    Duration network{0};
    for (const auto& [ready, taking] : sent) {
        network = std::min(std::max(network, ready) + taking, longest_duration);
    }
    end = std::max(end, network) + input_.step.optimizer;
    for (const Bytes size : sync_.framework.gathers) {
        end += collective_time(CollectiveKind::all_gather, size, input_.group, input_.link);
    }
    for (const TimedOperation& operation : input_.step.optimizer_operations) {
        end += operation.order.is_beside() ? Duration{0} : operation.device;
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
    if (use_.framework == Framework::megatron_distributed_optimizer) {
        add_gathers(own);
    }
    return step_with(in_order_settings(), own);
}

Duration FrameworkStep::step_after_backward() {
    SyncSettings sync = sync_;
    sync.policy.closing = Closing::single;
    sync.policy.launch = LaunchRule::after_backward;
    return step_with(sync, plan_with(sync.policy));
}

bool FrameworkStep::can_be_optimised() const {
    // Sums of a search stay far from the longest duration.
    constexpr double longest_s = 86400;
    double seconds = std::chrono::duration<double>(start_.device).count();
    for (const Gradient& gradient : input_.workload.gradients) {
        const Duration alone =
            collective_time(CollectiveKind::all_reduce, gradient.size(), input_.group, input_.link);
        seconds += std::chrono::duration<double>(alone).count();
    }
    return seconds < longest_s && line_.uniform() && line_.size() > 0 &&
           line_.size() <= most_gradients_for_optimum && input_.classes.empty() &&
           !interferes(input_.link) && !depends_on_plan(input_, sync_) &&
           use_.framework != Framework::megatron_distributed_optimizer;
}

FrameworkStep::Optimum FrameworkStep::optimum_below(Duration limit) {
    invariant(can_be_optimised(), "an exact search in little time");
    const SyncSettings sync = in_order_settings();
    MaxPlusPlanner planner(input_, sync, line_, before_.loop(), start_);
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
