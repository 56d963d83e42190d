#include "sim/frameworks/framework.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <utility>

#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

// By framework.
constexpr std::array rules{
    // PyTorch: torch/csrc/distributed/c10d/reducer.cpp; see sim/plan/plan.h.
    FrameworkRule{
        .key = "bucket_cap_mb",
        .default_limit = default_bucket_cap,
        .assumes = "from the second iteration on; copies, views and hooks as the scenario says"},
    // Megatron-LM, core 0.15: megatron/core/distributed/param_and_grad_buffer.py,
    // _ParamAndGradBuffer: one buffer per dtype, parameters in reverse order, a bucket closes once
    // it holds at least bucket_size elements; register_grad_ready: a bucket goes out once all its
    // gradients are there, whatever others do; finish_grad_sync waits for one after another. Hooks
    // add each gradient to main_grad, which is the bucket's memory, and the optimizer reads it
    // there. distributed_data_parallel.py: max(40000000, 1000000 * dp size).
    FrameworkRule{
        .key = "ddp_bucket_size",
        .unit = SettingUnit::elements,
        .order = Order::reverse,
        .launch = LaunchRule::as_filled,
        .default_limit = {40'000'000},
        .default_limit_per_rank = {1'000'000},
        .typed = "--overlap-grad-reduce --ddp-bucket-size {}",
        .assumes =
            "all-reduce, no distributed optimizer, one pipeline stage; each gradient is added "
            "to main_grad, nothing is copied back"},
    // DeepSpeed 0.16: deepspeed/runtime/zero/stage_1_and_2.py,
    // reduce_independent_p_g_buckets_and_remove_grads: a gradient with which the bucket would hold
    // more than reduce_bucket_size elements flushes it first, so one that is larger goes alone;
    // hooks run in order of readiness; the epilogue of backward flushes the rest.
    // contiguous_gradients copies each into the bucket. Buckets of one dtype each, as since 0.17.
    // The default: runtime/zero/config.py.
    FrameworkRule{.key = "reduce_bucket_size",
                  .unit = SettingUnit::elements,
                  .closing = Closing::strict,
                  .launch = LaunchRule::next_gradient,
                  .default_limit = {500'000'000},
                  .typed = R"("overlap_comm": true, "reduce_bucket_size": {})",
                  .assumes =
                      "ZeRO stage 1 or 2 with overlap_comm and contiguous_gradients, gradients "
                      "all-reduced; the all-gather of parameters after the step is not in it"},
    // Horovod: fuse_in_cycles(). The default: operations.cc, SetTensorFusionThresholdBytes.
    FrameworkRule{
        .key = "HOROVOD_FUSION_THRESHOLD",
        .unit = SettingUnit::bytes,
        .closing = Closing::strict,
        .launch = LaunchRule::cycle,
        .default_limit = {128 * bytes_per_mib},
        .typed = "HOROVOD_FUSION_THRESHOLD={} HOROVOD_CYCLE_TIME={}",
        .assumes = "cycles count from the step's beginning, and agreeing on what is ready is free; "
                   "copies into and out of the fusion buffer are the communication stream's"}};

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

const FrameworkRule& rule_of(Framework framework) {
    return rules[static_cast<std::size_t>(framework)];
}

Bytes default_limit(Framework framework, std::int64_t ranks) {
    const FrameworkRule& rule = rule_of(framework);
    return std::max(rule.default_limit, ranks * rule.default_limit_per_rank);
}

FusedPlan fuse_in_cycles(const std::vector<Gradient>& gradients,
                         const std::vector<std::int32_t>& readiness,
                         const std::vector<GradientMoments>& moments, Bytes threshold,
                         Duration cycle) {
    invariant(cycle > Duration{0}, "a cycle takes time");
    FusedPlan fused;
    ThresholdRange range;
    Duration now{0};
    std::deque<std::int32_t> left;
    for (std::size_t next = 0; next < readiness.size();) {
        const auto moment = [&](std::int32_t gradient) {
            return moments[static_cast<std::size_t>(gradient)];
        };
        now = waking_from(now, moment(readiness[next]).enqueued, cycle);
        const Duration begin = now;
        while (next < readiness.size() && moment(readiness[next]).enqueued <= now) {
            left.push_back(readiness[next++]);
        }
        while (!left.empty()) {
            Bucket bucket = fuse_one(gradients, left, threshold, range);
            for (const std::int32_t gradient : bucket.gradients) {
                now = std::max(now, moment(gradient).ready);
            }
            fused.plan.buckets.push_back(std::move(bucket));
            fused.times.push_back(now);
        }
        now = std::max(now, begin + cycle);
    }
    fused.plan.same_plan.lowest = range.lowest;
    if (range.highest < Bytes{std::numeric_limits<std::int64_t>::max()}) {
        fused.plan.same_plan.highest = range.highest;
    }
    return fused;
}

}  // namespace bucketwise
