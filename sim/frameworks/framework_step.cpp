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

// The exact search takes some tens of milliseconds for as many.
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

DType narrowest_of(const std::vector<Gradient>& gradients) {
    const auto narrowest = std::ranges::min_element(
        gradients, {}, [](const Gradient& gradient) { return element_size(gradient.dtype); });
    return narrowest == gradients.end() ? DType::float32 : narrowest->dtype;
}

std::int64_t elements_of(const std::vector<Gradient>& gradients) {
    return std::accumulate(gradients.begin(), gradients.end(), std::int64_t{0},
                           [](std::int64_t sum, const Gradient& one) { return sum + one.numel; });
}

// DeepSpeed's flat parameters: a multiple of two elements for each rank.
std::int64_t flat_elements(const StepInput& input) {
    const std::int64_t unit = 2 * input.group.ranks;
    return (elements_of(input.workload.gradients) + unit - 1) / unit * unit;
}

bool is_megatron(const FrameworkUse& use) {
    return use.framework == Framework::megatron_lm ||
           use.framework == Framework::megatron_distributed_optimizer;
}

bool is_deepspeed(const FrameworkUse& use) {
    return use.framework == Framework::deepspeed_zero1 ||
           use.framework == Framework::deepspeed_zero2;
}

// The step as the framework has it.
StepInput input_of(StepInput input, const FrameworkUse& use) {
    const FrameworkRule& rule = rule_of(use);
    if (is_deepspeed(use)) {
        // It casts the whole model to one dtype; of a workload of several, the narrowest.
        const DType held = narrowest_of(input.workload.gradients);
        for (Gradient& gradient : input.workload.gradients) {
            gradient.dtype = use.reduced_as.value_or(held);
        }
    }
    if (rule.shards_optimizer) {
        input.step.optimizer /= input.group.ranks;
        for (TimedOperation& operation : input.step.optimizer_operations) {
            operation.device /= input.group.ranks;
        }
    }
    return input;
}

bool is_bfloat16(const Gradient& gradient) {
    return gradient.dtype == DType::bfloat16;
}

// `parameters`: their dtype.
FrameworkSync sync_of(const FrameworkRule& rule, const StepInput& input, const FrameworkUse& use,
                      DType parameters) {
    FrameworkSync sync = rule.sync;
    const std::vector<Gradient>& gradients = input.workload.gradients;
    const auto ranks = static_cast<double>(input.group.ranks);
    if (rule.reduces_bfloat16_as_float32 && !use.reduces_in_bfloat16 &&
        std::ranges::any_of(gradients, is_bfloat16)) {
        sync.reduced_as = DType::float32;
    }
    if (is_megatron(use)) {
        sync.checks_at_launch = use.checks_gradients;
        sync.scales_at_launch = !use.averages_in_collective;
        sync.gathers_in_forward = use.framework == Framework::megatron_distributed_optimizer &&
                                  use.overlaps && use.gathers_in_forward;
        sync.wait = use.overlaps ? sync.wait : ComputingWaits::at_once;
    }
    if (is_deepspeed(use)) {
        // A rank's share is copied out of the bucket, and once more to where the optimizer reads
        // it.
        sync.passes = {sync.passes.of_one + 2 / ranks, sync.passes.of_several + 2 / ranks};
        // On a CPU, and without overlap_comm, what reduces a bucket blocks.
        if (!use.overlaps || input.workload.host_is_device) {
            sync.wait = ComputingWaits::at_once;
            sync.host_waits = false;
        }
        if (!gradients.empty()) {
            sync.gathers = {flat_elements(input) * element_size(parameters)};
        }
    }
    return sync;
}

SyncSettings settings_of(const FrameworkRule& rule, const SyncRequest& request,
                         const StepInput& input, const FrameworkUse& use, DType parameters) {
    SyncSettings sync = settings_for(request);
    if (rule.unit == SettingUnit::mib) {
        return sync;
    }
    sync.policy = {.closing = rule.closing,
                   .order = rule.order,
                   .launch = rule.launch,
                   .limits = {},
                   .limits_count_elements = rule.unit == SettingUnit::elements};
    if (use.framework == Framework::megatron_distributed_optimizer) {
        constexpr std::int64_t gradient_elements = 64;  // 128 bytes of 16-bit parameters
        constexpr std::int64_t bucket_elements = 128;
        constexpr std::int64_t for_bandwidth = 1 << 16;
        sync.policy.gradient_alignment = gradient_elements;
        sync.policy.bucket_alignment =
            std::lcm(input.group.ranks, use.pads_for_bandwidth ? for_bandwidth : bucket_elements);
    }
    if (is_megatron(use) && !use.overlaps) {
        sync.policy.closing = Closing::single;
        sync.policy.launch = LaunchRule::after_backward;
    }
    if (is_deepspeed(use) && !use.overlaps && use.framework == Framework::deepspeed_zero1) {
        sync.policy.order = Order::forward;  // reduce_gradients(), after backward
        sync.policy.launch = LaunchRule::after_backward;
    }
    // Horovod's copies are the communication stream's.
    sync.copies_in = rule.launch != LaunchRule::cycle;
    sync.copies_back = false;
    sync.copies_at_launch = false;
    sync.fused_copies = sync.batched_copies = false;
    sync.comm_hook = CommHook::none;
    sync.broadcasts_buffers = false;
    sync.reduces_unused_map = false;
    sync.framework = sync_of(rule, input, use, parameters);
    return sync;
}

// What comes before the last backward, had there been no bucket.
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
      sync_(settings_of(rule_, request_, input_, use, narrowest_of(input.workload.gradients))),
      line_(input_.workload.gradients, input_.workload.readiness, line_policy()),
      before_(input_, without_buckets_before(sync_)),
      step_(before_) {
    StepInput alike = input_;
    alike.classes.clear();
    const StepBeforeClosing before(alike, without_buckets_before(sync_));
    start_ = StepToClose(before).progress().front();
    find_moments();
}

// From a run of backward without any bucket.
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
            // Where computing is, which it does not hold up.
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
    // Where the workload does not say what launching costs, the host keeps pace with the device.
    const bool runs_ahead =
        !workload.host_is_device &&
        std::any_of(workload.backward.begin(), workload.backward.end(),
                    [](const TimedOperation& o) { return o.host > Duration{0}; });
    moments_.resize(workload.gradients.size());
    std::size_t ready = 0;
    for (std::size_t i = 0; i < workload.backward.size(); ++i) {
        for (std::int32_t k = 0; k < workload.backward[i].ready_count; ++k) {
            const auto gradient = static_cast<std::size_t>(workload.readiness[ready++]);
            moments_[gradient] = {runs_ahead ? issued[i] : ends_[i], ends_[i]};
        }
    }
}

// The moments are of a step in which nothing slows anything and of a rank that no class slows down;
// what slows computing moves the places along.
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

// After the optimizer, in the order of buckets. In forward each is waited for where the operation
// begins that mirrors the one of backward which finishes the bucket, and sets off the bucket's
// before it.
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

// The operation of forward that has the same share of time before it as backward has after this
// moment.
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

// DeepSpeed's allreduce_and_scatter, of a gradient that alone is larger than a bucket: it goes
// piece by piece, cut where the flat parameters are divided among ranks, each of more elements than
// the limit but the last.
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
        // Buffers in the order of their first parameters.
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
        FusedPlan fused = fuse_in_cycles(
            workload.gradients, workload.readiness, moments_, horovod_threshold(set, local),
            {cycle, rule_.thread_waits_for_data || workload.host_is_device});
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
        const bool casts = hook_casts(sync_, bucket);
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
        std::stable_sort(sent.begin(), sent.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
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
    // Micro-steps are alike, so that of many a few tell what one more takes.
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
    // No sum of what a search adds up comes near the end of durations.
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
