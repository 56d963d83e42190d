#include "sim/program/framework.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <numeric>
#include <utility>

#include "sim/base/invariant.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

// PyTorch: torch/csrc/distributed/c10d/reducer.cpp; see sim/plan/plan.h. The scenario says how its
// versions differ (SyncRequest::explicit_cap_sets_first).
constexpr FrameworkRule pytorch_rule{
    .newest = {2, 15, 0},
    .key = "bucket_cap_mb",
    .default_limit = default_bucket_cap,
    .assumes = "from the second iteration on; copies, views and hooks as the scenario says"};

// Megatron-LM: megatron/core/distributed/param_and_grad_buffer.py. _ParamAndGradBuffer: one buffer
// per dtype, parameters in reverse order, a bucket closes once it holds at least bucket_size
// elements. _ParamAndGradBucketGroup: register_grad_ready sends a bucket once all its gradients are
// there, whatever others do; start_grad_sync looks for NaN and scales the bucket; finish_grad_sync
// waits for one after another. distributed_data_parallel.py: hooks add each gradient to main_grad,
// which is the bucket's memory, and the optimizer reads it there; the default is max(40000000,
// 1000000 * dp size). megatron/training/arguments.py: gradients of bfloat16 are float32 there
// unless --grad-reduce-in-bf16.
constexpr FrameworkRule megatron_rule{
    .newest = {0, 19, 0},
    .key = "ddp_bucket_size",
    .unit = SettingUnit::elements,
    .default_limit = {40'000'000},
    .default_limit_per_rank = {1'000'000},
    .sync = {.adds_into_bucket = true, .checks_at_launch = true, .scales_at_launch = true},
    .reduces_bfloat16_as_float32 = true,
    .typed = "--overlap-grad-reduce --ddp-bucket-size {}",
    .assumes =
        "all-reduce, no distributed optimizer, one pipeline stage; each gradient is added to "
        "main_grad, float32 unless --grad-reduce-in-bf16, nothing is copied back; buckets are "
        "checked for NaN unless --no-check-for-nan-in-loss-and-grad, and scaled"};

// As above with padding, reduce-scatters, and all-gathers of parameters, one a bucket, in forward:
// finish_param_sync waits for a bucket's where a module first needs it, and then issues the next.
constexpr FrameworkRule with_distributed_optimizer(FrameworkRule rule) {
    rule.sync.reduction = CollectiveKind::reduce_scatter;
    rule.shards_optimizer = true;
    rule.typed =
        "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather "
        "--ddp-bucket-size {}";
    rule.assumes =
        "reduce-scatter of padded buckets, all-gather of each bucket's parameters in forward, in "
        "the order that mirrors backward's, the optimizer on a rank's share, one pipeline stage; "
        "copies, dtypes, checks and scaling as without it";
    return rule;
}

// DeepSpeed: deepspeed/runtime/zero/stage_1_and_2.py. reduce_independent_p_g_buckets_and_remove_
// grads: a gradient with which the bucket would hold more than reduce_bucket_size elements flushes
// it first. A larger gradient goes alone, from its place; contiguous_gradients copies the others
// into the bucket. Hooks run in order of readiness; independent_gradient_partition_epilogue flushes
// the rest after backward and synchronises the device. average_tensor, since 0.14.3 (pull request
// 5606): before a bucket goes out, the compute stream waits for the reduction stream, and so for
// the bucket before. On that stream a bucket is divided, all-reduced (also with reduce_scatter,
// unless use_multi_rank_bucket_allreduce is off), and a rank's share of it copied twice.
// reduce_ready_partitions_and_remove_grads: stage 2 does so in every micro-step, stage 1 in the
// last. step() ends with one all-gather of all parameters; allgather_bucket_size counts only where
// PyTorch has no all_gather_into_tensor. The default: config.py.
constexpr FrameworkRule zero1_rule{
    .newest = {0, 19, 8},
    .key = "reduce_bucket_size",
    .unit = SettingUnit::elements,
    .default_limit = {500'000'000},
    .sync = {.passes = {1, 1},
             .copies = StreamCopies::share,
             .wait = ComputingWaits::for_others,
             .host_waits = true},
    .shards_optimizer = true,
    .typed = R"("stage": 1, "overlap_comm": true, "reduce_bucket_size": {})",
    .assumes =
        "ZeRO stage 1, reduced in the last micro-step, contiguous_gradients; all-reduces, also "
        "where reduce_scatter is on, one all-gather of all parameters after the step, the "
        "optimizer on a rank's share; a bucket that goes out holds up computing until the one "
        "before is reduced"};
constexpr FrameworkRule of_stage_2(FrameworkRule rule) {
    rule.sync.every_micro_step = true;
    rule.typed = R"("stage": 2, "overlap_comm": true, "reduce_bucket_size": {})";
    rule.assumes =
        "ZeRO stage 2, reduced in every micro-step, contiguous_gradients; all-reduces, also where "
        "reduce_scatter is on, one all-gather of all parameters after the step, the optimizer on a "
        "rank's share; a bucket that goes out holds up computing until the one before is reduced";
    return rule;
}

// Horovod: fuse_in_cycles(). The default: operations.cc, SetTensorFusionThresholdBytes. Copies into
// and out of the fusion buffer are on the communication stream; a gradient that goes alone is not
// copied. synchronize() blocks the host.
constexpr FrameworkRule horovod_rule{
    .newest = {0, 28, 1},
    .key = "HOROVOD_FUSION_THRESHOLD",
    .unit = SettingUnit::bytes,
    .default_limit = {128 * bytes_per_mib},
    .sync = {.passes = {0, 2}, .copies = StreamCopies::fusion, .host_waits = true},
    .typed = "HOROVOD_FUSION_THRESHOLD={} HOROVOD_CYCLE_TIME={}",
    .assumes =
        "cycles count from the step's beginning, and agreeing on what is ready is free; "
        "copies into and out of the fusion buffer are the communication stream's"};

// By Framework.
constexpr std::array<FrameworkRule, names_of<Framework>.size()> rules{
    pytorch_rule, megatron_rule,          with_distributed_optimizer(megatron_rule),
    zero1_rule,   of_stage_2(zero1_rule), horovod_rule};

FrameworkSync sync_of(const StepInput& input, const FrameworkUse& use, DType parameters) {
    const FrameworkRule& rule = rule_of(use);
    FrameworkSync sync = rule.sync;
    const std::vector<Gradient>& gradients = input.workload.gradients;
    const auto ranks = static_cast<double>(input.group.ranks);
    if (rule.reduces_bfloat16_as_float32 && !use.reduces_in_bfloat16 &&
        std::ranges::find(gradients, DType::bfloat16, &Gradient::dtype) != gradients.end()) {
        sync.reduced_as = DType::float32;
    }
    sync.cycle = use.cycle;
    sync.updating_ranks = rule.shards_optimizer ? input.group.ranks : 1;
    if (is_megatron(use)) {
        sync.gathers_buckets = use.framework == Framework::megatron_distributed_optimizer;
        sync.checks_at_launch = use.checks_gradients;
        sync.scales_at_launch = !use.averages_in_collective;
        sync.gathers_in_forward = sync.gathers_buckets && use.overlaps && use.gathers_in_forward;
        sync.wait = use.overlaps ? sync.wait : ComputingWaits::at_once;
    }
    if (is_deepspeed(use)) {
        // A rank's share is copied out of the bucket, and once more for the optimizer.
        sync.passes = {sync.passes.of_one + 2 / ranks, sync.passes.of_several + 2 / ranks};
        // On a CPU, and without overlap_comm, the reduction of a bucket blocks.
        if (!use.overlaps || input.workload.host_is_device) {
            sync.wait = ComputingWaits::at_once;
            sync.host_waits = false;
        }
        if (!gradients.empty()) {
            sync.gathers = {flat_elements(gradients, input.group.ranks) * element_size(parameters)};
        }
    }
    return sync;
}

// The thresholds that make the same decisions, for FusedPlan's same_plan.
struct ThresholdRange {
    Bytes lowest{1};
    Bytes highest{std::numeric_limits<std::int64_t>::max()};

    bool fits(Bytes size, Bytes threshold) {
        if (size <= threshold) {
            lowest = std::max(lowest, size);
            return true;
        }
        highest = std::min(highest, size - Bytes{1});
        return false;
    }
};

// Takes one response out of the gradients that are left.
Bucket fuse_one(const std::vector<Gradient>& gradients, std::deque<std::int32_t>& left,
                Bytes threshold, ThresholdRange& range) {
    const Gradient& first = gradients[static_cast<std::size_t>(left.front())];
    Bucket bucket{{left.front()}, first.dtype, first.size()};
    left.pop_front();
    std::deque<std::int32_t> passed;
    Bytes passed_size{0};
    while (!left.empty() && !first.sparse) {
        const Gradient& next = gradients[static_cast<std::size_t>(left.front())];
        const bool alike = next.dtype == first.dtype && !next.sparse;
        if (alike && range.fits(bucket.size + next.size(), threshold)) {
            bucket.gradients.push_back(left.front());
            bucket.size += next.size();
        } else {
            passed_size += next.size();
            if (!range.fits(bucket.size + passed_size, threshold)) {
                break;
            }
            passed.push_back(left.front());
        }
        left.pop_front();
    }
    left.insert(left.begin(), passed.begin(), passed.end());
    bucket.in_place = bucket.gradients.size() == 1;
    return bucket;
}

// A thread wakes at `now` and every cycle from there: the first of these at or after `time`.
Duration waking_from(Duration now, Duration time, Duration cycle) {
    const std::int64_t late = std::max<std::int64_t>((time - now).count(), 0);
    return now + ((late + cycle.count() - 1) / cycle.count()) * cycle;
}

Bytes threshold_unit(std::int64_t ranks_per_node) {
    constexpr std::int64_t elements = 64;
    return ranks_per_node * elements * element_size(DType::float64);
}

}  // namespace

const FrameworkRule& rule_of(const FrameworkUse& use) {
    return rules[static_cast<std::size_t>(use.framework)];
}

std::vector<FrameworkUse> every_framework() {
    return transformed(every<Framework>,
                       [](Framework framework) { return FrameworkUse{.framework = framework}; });
}

Bytes default_limit(const FrameworkUse& use, std::int64_t ranks) {
    const FrameworkRule& rule = rule_of(use);
    return std::max(rule.default_limit, ranks * rule.default_limit_per_rank);
}

DType narrowest_of(const std::vector<Gradient>& gradients) {
    const auto narrowest = std::ranges::min_element(
        gradients, {}, [](const Gradient& gradient) { return element_size(gradient.dtype); });
    return narrowest == gradients.end() ? DType::float32 : narrowest->dtype;
}

std::int64_t flat_elements(const std::vector<Gradient>& gradients, std::int64_t ranks) {
    const std::int64_t unit = 2 * ranks;
    std::int64_t elements = 0;
    for (const Gradient& gradient : gradients) {
        elements += gradient.numel;
    }
    return (elements + unit - 1) / unit * unit;
}

Workload held_by(Workload workload, const SyncRequest& request) {
    const FrameworkUse use = use_of(request);
    if (is_deepspeed(use)) {
        // The whole model is cast to one dtype: the narrowest of a workload with several.
        const DType held = narrowest_of(workload.gradients);
        for (Gradient& gradient : workload.gradients) {
            gradient.dtype = use.reduced_as.value_or(held);
        }
    }
    return workload;
}

std::int64_t cap_bytes_of_limit(const FrameworkUse& use, const Workload& workload) {
    return rule_of(use).unit == SettingUnit::elements
               ? element_size(narrowest_of(workload.gradients)).count
               : 1;
}

SyncSettings settings_for(const SyncRequest& request, const StepInput& input,
                          std::optional<DType> parameters) {
    SyncSettings sync = settings_for(request);
    if (!framework_of(request.strategy)) {
        return sync;
    }
    const FrameworkUse use = use_of(request);
    PlanPolicy& policy = sync.policy;
    policy.limits_count_elements = rule_of(use).unit == SettingUnit::elements;
    policy.cap_bytes_of_limit = cap_bytes_of_limit(use, input.workload);
    const std::optional<Bytes> named = request.bucket_cap.named();
    policy.limits = {
        .first = {},
        .cap = named ? Bytes{std::max<std::int64_t>(named->count / policy.cap_bytes_of_limit, 1)}
                     : default_limit(use, input.group.ranks),
        .list = {}};
    policy.dtype_after_dtype = is_megatron(use);
    policy.large_in_place = is_deepspeed(use);
    if (is_deepspeed(use) && use.reduce_scatter && use.contiguous_gradients) {
        policy.large_cut_every = std::max<std::int64_t>(
            flat_elements(input.workload.gradients, input.group.ranks) / input.group.ranks, 1);
    }
    if (use.framework == Framework::megatron_distributed_optimizer) {
        constexpr std::int64_t gradient_elements = 64;  // 128 bytes of 16-bit parameters
        constexpr std::int64_t bucket_elements = 128;
        constexpr std::int64_t for_bandwidth = 1 << 16;
        policy.gradient_alignment = gradient_elements;
        policy.bucket_alignment =
            std::lcm(input.group.ranks, use.pads_for_bandwidth ? for_bandwidth : bucket_elements);
    }
    sync.framework =
        sync_of(input, use, parameters.value_or(narrowest_of(input.workload.gradients)));
    return sync;
}

SyncSettings settings_of_replay(const SyncRequest& request, const StepInput& input) {
    SyncSettings settings = settings_for(request, input);
    settings.casts_back_beside = false;
    return settings;
}

Bytes horovod_threshold(Bytes typed, std::int64_t ranks_per_node) {
    const Bytes unit = threshold_unit(ranks_per_node);
    return (typed.count + unit.count - 1) / unit.count * unit;
}

CapRange typed_thresholds(const CapRange& taken, std::int64_t ranks_per_node) {
    const Bytes unit = threshold_unit(ranks_per_node);
    CapRange typed{(taken.lowest.count - 1) / unit.count * unit + Bytes{1}, std::nullopt};
    if (taken.highest) {
        typed.highest = taken.highest->count / unit.count * unit;
    }
    return typed;
}

FusedPlan fuse_in_cycles(const std::vector<Gradient>& gradients,
                         const std::vector<std::int32_t>& readiness,
                         const std::vector<GradientMoments>& moments, Bytes threshold,
                         const CycleThread& thread) {
    invariant(thread.cycle > Duration{0}, "a cycle takes time");
    FusedPlan fused;
    ThresholdRange range;
    Duration now{0};
    std::deque<std::int32_t> left;
    for (std::size_t next = 0; next < readiness.size();) {
        const auto moment = [&](std::int32_t gradient) {
            return moments[static_cast<std::size_t>(gradient)];
        };
        now = waking_from(now, moment(readiness[next]).enqueued, thread.cycle);
        const Duration begin = now;
        while (next < readiness.size() && moment(readiness[next]).enqueued <= now) {
            left.push_back(readiness[next++]);
        }
        while (!left.empty()) {
            Bucket bucket = fuse_one(gradients, left, threshold, range);
            // One stream: no later bucket begins earlier.
            Duration begins = fused.times.empty() ? now : std::max(now, fused.times.back());
            for (const std::int32_t gradient : bucket.gradients) {
                begins = std::max(begins, moment(gradient).ready);
            }
            fused.plan.buckets.push_back(std::move(bucket));
            fused.times.push_back(begins);
            now = thread.waits_for_data ? begins : now;
        }
        now = std::max(now, begin + thread.cycle);
    }
    fused.plan.same_plan.lowest = range.lowest;
    if (range.highest < Bytes{std::numeric_limits<std::int64_t>::max()}) {
        fused.plan.same_plan.highest = range.highest;
    }
    return fused;
}

}  // namespace bucketwise
