#include "sim/plan/strategy.h"

#include <algorithm>
#include <array>
#include <utility>

namespace bucketwise {
namespace {

struct Preset {
    Closing closing;
    Order order;
    LaunchRule launch;
    bool copies = false;
    bool copies_at_launch = false;  // CS336 concatenates a bucket's gradients when it goes out
};

// By Strategy, in the order of its declaration.
constexpr std::array<Preset, every<Strategy>.size()> presets{{
    {Closing::per_gradient, Order::forward, LaunchRule::after_backward},        // none
    {Closing::per_gradient, Order::forward, LaunchRule::after_backward},        // naive
    {Closing::single, Order::forward, LaunchRule::after_backward, true, true},  // flat
    {Closing::per_gradient, Order::readiness, LaunchRule::as_filled},           // overlap
    {Closing::strict, Order::reverse, LaunchRule::as_filled, true, true},       // bucketed
    {Closing::overshoot, Order::readiness, LaunchRule::in_order, true},         // ddp
    {Closing::single, Order::forward, LaunchRule::in_order, true},         // ddp_first_iteration
    {Closing::strict, Order::forward, LaunchRule::after_backward, true},   // python_sync
    {Closing::strict, Order::forward, LaunchRule::as_filled, true},        // python_async
    {Closing::overshoot, Order::reverse, LaunchRule::as_filled, true},     // megatron_lm
    {Closing::overshoot, Order::reverse, LaunchRule::as_filled, true},     // and sharded
    {Closing::strict, Order::readiness, LaunchRule::next_gradient, true},  // deepspeed_zero1
    {Closing::strict, Order::readiness, LaunchRule::next_gradient, true},  // deepspeed_zero2
    {Closing::strict, Order::readiness, LaunchRule::cycle},  // horovod: on its own stream
}};

// The reducer groups parameters at construction, in forward order, and again once it has seen the
// readiness order. With find_unused_parameters it never regroups. Without it and without a list of
// caps, construction puts everything into one bucket. With static_graph the reducer looks for
// unused parameters in the first iteration only, and regroups.
bool looks_for_unused(const SyncRequest& request) {
    return request.find_unused_parameters && !request.static_graph;
}
bool buckets_of_construction(const SyncRequest& request) {
    return looks_for_unused(request) ||
           (request.strategy == Strategy::ddp_first_iteration && !request.bucket_cap_list.empty());
}

BucketLimits limits_for(const SyncRequest& request) {
    BucketLimits limits;
    limits.cap = request.bucket_cap.size().value_or(default_bucket_cap);
    limits.first = request.first_bucket;
    limits.list = request.bucket_cap_list;
    const bool cap_is_first = request.bucket_cap.named() && request.explicit_cap_sets_first;
    if (!limits.first && is_ddp(request.strategy) && !cap_is_first) {
        limits.first = default_first_bucket;
    }
    return limits;
}

// Megatron-LM then has one bucket a dtype; stage 1 reduces in reduce_gradients().
void reduce_after_backward(Strategy strategy, PlanPolicy& policy) {
    if (strategy == Strategy::deepspeed_zero1) {
        policy.order = Order::forward;
    } else {
        policy.closing = Closing::single;
    }
    policy.launch = LaunchRule::after_backward;
}

}  // namespace

FrameworkUse use_of(const SyncRequest& request) {
    FrameworkUse use = request.options;
    use.framework = framework_of(request.strategy).value_or(Framework::pytorch_ddp);
    return use;
}

SyncRequest used_as(const SyncRequest& request, const FrameworkUse& use) {
    SyncRequest used;
    if (use.framework == Framework::pytorch_ddp) {
        used = without_list(request);
        used.bucket_cap = {};
        used.closing.reset();
        used.order.reset();
        used.launch.reset();
    }
    used.strategy = strategy_of(use.framework);
    used.batch_norm = request.batch_norm;
    used.options = use;
    return used;
}

SyncSettings settings_for(const SyncRequest& request) {
    const Preset& preset = presets[static_cast<std::size_t>(request.strategy)];
    const bool ddp = is_ddp(request.strategy);
    SyncSettings settings;
    settings.communicates = request.strategy != Strategy::none;
    settings.policy.closing = request.closing.value_or(preset.closing);
    settings.policy.order = request.order.value_or(preset.order);
    settings.policy.launch = request.launch.value_or(preset.launch);
    settings.policy.limits = limits_for(request);
    if (ddp && buckets_of_construction(request)) {
        settings.policy.closing = request.closing.value_or(Closing::overshoot);
        settings.policy.order = request.order.value_or(Order::forward);
        settings.policy.reversed_after_sort = true;
    }
    if (ddp && request.compiled) {
        const BucketLimits& limits = settings.policy.limits;
        settings.policy.pieces = PieceLimits{
            .cap = limits.list.empty() ? limits.cap : *std::ranges::max_element(limits.list)};
    }
    if (!request.options.overlaps && framework_of(request.strategy) &&
        request.strategy != Strategy::deepspeed_zero2 && request.strategy != Strategy::horovod) {
        reduce_after_backward(request.strategy, settings.policy);
    }
    settings.reduces_unused_map = ddp && looks_for_unused(request);
    settings.copies_in = preset.copies;
    settings.copies_at_launch = preset.copies_at_launch;
    settings.copies_back = preset.copies && !request.views && !framework_of(request.strategy);
    if (framework_of(request.strategy)) {
        settings.exchanges_statistics = true;
        return settings;
    }
    settings.fused_copies = request.fused_copies && settings.copies_in;
    settings.batched_copies = ddp && request.batched_grad_copy && settings.copies_in;
    settings.comm_hook = request.comm_hook;
    settings.casts_back_beside =
        ddp && request.comm_hook != CommHook::none && !settings.fused_copies;
    settings.broadcasts_buffers = ddp && request.broadcast_buffers;
    settings.exchanges_statistics = settings.communicates;
    if (settings.communicates) {
        settings.sharded_optimizer = request.sharded_optimizer;
    }
    return settings;
}

SyncSettings settings_of_replay(const SyncRequest& request) {
    SyncSettings settings = settings_for(request);
    settings.casts_back_beside = false;
    return settings;
}

bool has_cap(const SyncRequest& request) {
    const Closing closing = settings_for(request).policy.closing;
    return request.strategy != Strategy::none && request.bucket_cap_list.empty() &&
           (closing == Closing::overshoot || closing == Closing::strict);
}

Bytes least_cap(const SyncRequest& request) {
    return settings_for(request).policy.pieces ? PieceLimits{}.first : Bytes{1};
}

Cap cap_of(const SyncRequest& request) {
    return has_cap(request) ? request.bucket_cap : Cap::none();
}

SyncRequest with_cap(SyncRequest request, Cap cap) {
    if (has_cap(request)) {
        request.bucket_cap = cap;
    }
    return request;
}

SyncRequest without_list(SyncRequest request) {
    request.bucket_cap_list.clear();
    return request;
}

bool names_caps(const SyncRequest& request) {
    return request.bucket_cap.named() || request.first_bucket || !request.bucket_cap_list.empty();
}

SyncRequest without_caps(SyncRequest request) {
    request.bucket_cap = {};
    request.first_bucket.reset();
    return without_list(std::move(request));
}

}  // namespace bucketwise
