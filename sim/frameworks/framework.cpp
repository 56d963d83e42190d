#include "sim/frameworks/framework.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <utility>

#include "sim/base/invariant.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

// PyTorch: torch/csrc/distributed/c10d/reducer.cpp; see sim/plan/plan.h. What changed with its
// versions is the scenario's to say (SyncRequest::explicit_cap_sets_first).
constexpr std::array pytorch_rules{FrameworkRule{
    .since = {1, 13, 0},
    .newest = {2, 15, 0},
    .key = "bucket_cap_mb",
    .default_limit = default_bucket_cap,
    .assumes = "from the second iteration on; copies, views and hooks as the scenario says"}};

// Megatron-LM: megatron/core/distributed/param_and_grad_buffer.py. _ParamAndGradBuffer: one buffer
// per dtype, parameters in reverse order, a bucket closes once it holds at least bucket_size
// elements; _ParamAndGradBucketGroup: register_grad_ready sends a bucket once all its gradients are
// there, whatever others do; start_grad_sync looks for NaN and scales what is sent;
// finish_grad_sync waits for one after another. distributed_data_parallel.py: hooks add each
// gradient to main_grad, which is the bucket's memory, and the optimizer reads it there; the
// default is max(40000000, 1000000 * dp size). megatron/training/arguments.py: gradients of
// bfloat16 are float32 there unless --grad-reduce-in-bf16.
constexpr FrameworkSync megatron_sync{
    .adds_into_bucket = true, .checks_at_launch = true, .scales_at_launch = true};
constexpr FrameworkRule megatron_rule{
    .since = {0, 12, 0},
    .newest = {0, 19, 0},
    .key = "ddp_bucket_size",
    .unit = SettingUnit::elements,
    .order = Order::reverse,
    .launch = LaunchRule::as_filled,
    .default_limit = {40'000'000},
    .default_limit_per_rank = {1'000'000},
    .sync = megatron_sync,
    .reduces_bfloat16_as_float32 = true,
    .typed = "--overlap-grad-reduce --ddp-bucket-size {}",
    .assumes =
        "all-reduce, no distributed optimizer, one pipeline stage; each gradient is added to "
        "main_grad, float32 unless --grad-reduce-in-bf16, nothing is copied back; buckets are "
        "checked for NaN unless --no-check-for-nan-in-loss-and-grad, and scaled"};
constexpr std::array megatron_rules{megatron_rule};

// The same with padding, reduce-scatters, and all-gathers of parameters, one a bucket, in forward:
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
constexpr std::array megatron_distributed_rules{with_distributed_optimizer(megatron_rule)};

// DeepSpeed: deepspeed/runtime/zero/stage_1_and_2.py. reduce_independent_p_g_buckets_and_remove_
// grads: a gradient with which the bucket would hold more than reduce_bucket_size elements flushes
// it first, so one that is larger goes alone, from where it lies; contiguous_gradients copies the
// others into the bucket. Hooks run in order of readiness; independent_gradient_partition_epilogue
// flushes the rest after backward and synchronises the device. average_tensor, since 0.14.3 (pull
// request 5606): the compute stream waits for the reduction stream, and so for the bucket before,
// whenever one goes out. On that stream a bucket is divided, all-reduced (also with reduce_scatter,
// unless use_multi_rank_bucket_allreduce is off), and a rank's share of it copied twice.
// reduce_ready_partitions_and_remove_grads: stage 2 does so in every micro-step, stage 1 in the
// last. step() ends with one all-gather of all parameters; allgather_bucket_size counts only where
// PyTorch has no all_gather_into_tensor. The default: config.py.
constexpr FrameworkSync deepspeed_sync{.passes = {1, 1}, .host_waits = true};
constexpr FrameworkRule oldest_deepspeed_rule{
    .since = {0, 9, 0},
    .newest = {0, 14, 2},
    .key = "reduce_bucket_size",
    .unit = SettingUnit::elements,
    .closing = Closing::strict,
    .launch = LaunchRule::next_gradient,
    .default_limit = {500'000'000},
    .sync = deepspeed_sync,
    .shards_optimizer = true,
    .typed = R"("stage": 1, "overlap_comm": true, "reduce_bucket_size": {})",
    .assumes =
        "ZeRO stage 1, reduced in the last micro-step, contiguous_gradients; all-reduces, also "
        "where reduce_scatter is on, one all-gather of all parameters after the step, the "
        "optimizer on a rank's share; any number of buckets may be in flight"};
constexpr FrameworkRule of_stage_2(FrameworkRule rule) {
    rule.sync.every_micro_step = true;
    rule.typed = R"("stage": 2, "overlap_comm": true, "reduce_bucket_size": {})";
    rule.assumes =
        "ZeRO stage 2, reduced in every micro-step, contiguous_gradients; all-reduces, also where "
        "reduce_scatter is on, one all-gather of all parameters after the step, the optimizer on a "
        "rank's share; any number of buckets may be in flight";
    return rule;
}
constexpr FrameworkRule with_one_in_flight(FrameworkRule rule, std::string_view assumes) {
    rule.since = {0, 14, 3};
    rule.newest = {0, 19, 8};
    rule.sync.wait = ComputingWaits::for_others;
    rule.assumes = assumes;
    return rule;
}
constexpr std::array zero1_rules{
    oldest_deepspeed_rule,
    with_one_in_flight(
        oldest_deepspeed_rule,
        "ZeRO stage 1, reduced in the last micro-step, contiguous_gradients; all-reduces, also "
        "where reduce_scatter is on, one all-gather of all parameters after the step, the "
        "optimizer on a rank's share; a bucket that goes out holds up computing until the one "
        "before is reduced")};
constexpr std::array zero2_rules{
    of_stage_2(oldest_deepspeed_rule),
    with_one_in_flight(
        of_stage_2(oldest_deepspeed_rule),
        "ZeRO stage 2, reduced in every micro-step, contiguous_gradients; all-reduces, also where "
        "reduce_scatter is on, one all-gather of all parameters after the step, the optimizer on a "
        "rank's share; a bucket that goes out holds up computing until the one before is reduced")};

// Horovod: fuse_in_cycles(). The default: operations.cc, SetTensorFusionThresholdBytes. Copies into
// and out of the fusion buffer are on the communication stream; a gradient that goes alone is not
// copied. synchronize() blocks the host.
constexpr FrameworkRule horovod_rule{
    .since = {0, 23, 0},
    .newest = {0, 28, 1},
    .key = "HOROVOD_FUSION_THRESHOLD",
    .unit = SettingUnit::bytes,
    .closing = Closing::strict,
    .launch = LaunchRule::cycle,
    .default_limit = {128 * bytes_per_mib},
    .sync = {.passes = {0, 2}, .host_waits = true},
    .typed = "HOROVOD_FUSION_THRESHOLD={} HOROVOD_CYCLE_TIME={}",
    .assumes =
        "cycles count from the step's beginning, and agreeing on what is ready is free; "
        "copies into and out of the fusion buffer are the communication stream's"};
constexpr FrameworkRule with_waiting_thread(FrameworkRule rule) {
    rule.since = {0, 20, 0};
    rule.newest = {0, 22, 1};
    rule.thread_waits_for_data = true;
    return rule;
}
constexpr std::array horovod_rules{with_waiting_thread(horovod_rule), horovod_rule};

// The decisions about a threshold, for FusedPlan's same_plan.
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

// One response of those that are left, taken out of them.
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
    return bucket;
}

// When a thread that wakes at `now` and every cycle from there first wakes at `time` or later.
Duration waking_from(Duration now, Duration time, Duration cycle) {
    const std::int64_t late = std::max<std::int64_t>((time - now).count(), 0);
    return now + ((late + cycle.count() - 1) / cycle.count()) * cycle;
}

}  // namespace

std::span<const FrameworkRule> rules_of(Framework framework) {
    switch (framework) {
        case Framework::pytorch_ddp:
            return pytorch_rules;
        case Framework::megatron_lm:
            return megatron_rules;
        case Framework::megatron_distributed_optimizer:
            return megatron_distributed_rules;
        case Framework::deepspeed_zero1:
            return zero1_rules;
        case Framework::deepspeed_zero2:
            return zero2_rules;
        case Framework::horovod:
            return horovod_rules;
    }
    return {};
}

const FrameworkRule& rule_of(const FrameworkUse& use) {
    const std::span<const FrameworkRule> rules = rules_of(use.framework);
    if (!use.version) {
        return rules.back();
    }
    const auto later = std::ranges::find_if(
        rules, [&](const FrameworkRule& rule) { return rule.since > *use.version; });
    return later == rules.begin() ? rules.front() : *std::prev(later);
}

std::vector<FrameworkUse> every_framework() {
    return transformed(every<Framework>,
                       [](Framework framework) { return FrameworkUse{.framework = framework}; });
}

Bytes default_limit(const FrameworkUse& use, std::int64_t ranks) {
    const FrameworkRule& rule = rule_of(use);
    return std::max(rule.default_limit, ranks * rule.default_limit_per_rank);
}

namespace {

Bytes threshold_unit(std::int64_t ranks_per_node) {
    constexpr std::int64_t elements = 64;
    return ranks_per_node * elements * element_size(DType::float64);
}

}  // namespace

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
