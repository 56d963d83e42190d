// The named strategies: each is a preset of a few fields, with no code of its own. The rest of a
// framework's rule depends on the step: sim/program/framework.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/names.h"
#include "sim/base/units.h"
#include "sim/link/link.h"
#include "sim/plan/cap.h"
#include "sim/plan/plan.h"
#include "sim/plan/setting_place.h"
#include "sim/workload/batch_norm.h"

namespace bucketwise {

enum class Strategy : std::uint8_t {
    none,                 // no communication: the floor of the others
    naive,                // one all-reduce per gradient, after backward
    flat,                 // one all-reduce of everything, after backward
    overlap,              // one all-reduce per gradient, as it becomes ready
    bucketed,             // strict buckets in reverse order, each as it fills (CS336)
    ddp,                  // PyTorch DistributedDataParallel from its second iteration on
    ddp_first_iteration,  // the same before it has seen the readiness order
    python_sync,          // PyTorch's compare_ddp benchmark, all-reduces after backward
    python_async,         // the same, each all-reduce as its bucket fills
    // Frameworks' own rules, in the order of Framework.
    megatron_lm,
    megatron_distributed_optimizer,
    deepspeed_zero1,
    deepspeed_zero2,
    horovod
};

template <>
inline constexpr auto names_of<Strategy> = names("none", "naive", "flat", "overlap", "bucketed",
                                                 "ddp", "ddp_first_iteration", "python_sync",
                                                 "python_async", "megatron_lm",
                                                 "megatron_distributed_optimizer",
                                                 "deepspeed_zero1", "deepspeed_zero2", "horovod");

// One line for each, for --help.
inline constexpr std::array<std::string_view, names_of<Strategy>.size()> strategy_texts{
    "no communication: the floor of the others",
    "one all-reduce per gradient, after backward",
    "one all-reduce of all gradients, after backward",
    "one all-reduce per gradient, as it becomes ready",
    "strict buckets in reverse order, each as it fills (CS336)",
    "PyTorch's DistributedDataParallel, from its second iteration on",
    "the same before it has seen in which order gradients become ready",
    "PyTorch's compare_ddp benchmark, all-reduces after backward",
    "the same, each all-reduce as its bucket fills",
    "Megatron-LM's DistributedDataParallel",
    "the same with its distributed optimizer, which reduce-scatters and gathers parameters",
    "DeepSpeed's ZeRO stage 1",
    "DeepSpeed's ZeRO stage 2",
    "Horovod's DistributedOptimizer"};

// Whether PyTorch's DistributedDataParallel does the work, with its default cap and its buffers.
constexpr bool is_ddp(Strategy strategy) {
    return strategy == Strategy::ddp || strategy == Strategy::ddp_first_iteration;
}

// A framework other than PyTorch, whose own rule the strategy is; empty: none.
constexpr std::optional<Framework> framework_of(Strategy strategy) {
    const int beyond = static_cast<int>(strategy) - static_cast<int>(Strategy::megatron_lm);
    return beyond < 0 ? std::nullopt
                      : std::optional(static_cast<Framework>(
                            static_cast<int>(Framework::megatron_lm) + beyond));
}
constexpr Strategy strategy_of(Framework framework) {
    return framework == Framework::pytorch_ddp
               ? Strategy::ddp
               : static_cast<Strategy>(static_cast<int>(Strategy::megatron_lm) +
                                       static_cast<int>(framework) -
                                       static_cast<int>(Framework::megatron_lm));
}

// HOROVOD_CYCLE_TIME.
constexpr Duration default_cycle = std::chrono::milliseconds{1};

// How a framework is used.
struct FrameworkUse {
    Framework framework = Framework::pytorch_ddp;
    std::optional<FrameworkVersion> version = {};  // none: the newest
    // DeepSpeed's overlap_comm, Megatron-LM's --overlap-grad-reduce.
    bool overlaps = true;
    // Megatron-LM's --overlap-param-gather, --ddp-average-in-collective, --grad-reduce-in-bf16,
    // --check-for-nan-in-loss-and-grad and --ddp-pad-buckets-for-high-nccl-busbw.
    bool gathers_in_forward = true;
    bool averages_in_collective = false;
    bool reduces_in_bfloat16 = false;
    bool checks_gradients = true;
    bool pads_for_bandwidth = false;
    // DeepSpeed's communication_data_type, reduce_scatter and contiguous_gradients.
    std::optional<DType> reduced_as = {};
    bool reduce_scatter = true;
    bool contiguous_gradients = true;
    Duration cycle = default_cycle;  // Horovod's
    bool operator==(const FrameworkUse&) const = default;
};

constexpr bool is_megatron(const FrameworkUse& use) {
    return use.framework == Framework::megatron_lm ||
           use.framework == Framework::megatron_distributed_optimizer;
}
constexpr bool is_deepspeed(const FrameworkUse& use) {
    return use.framework == Framework::deepspeed_zero1 ||
           use.framework == Framework::deepspeed_zero2;
}

// PyTorch's gradient compression hooks: cast, all-reduce at half the bytes, cast back.
enum class CommHook : std::uint8_t { none, fp16, bf16 };

template <>
inline constexpr auto names_of<CommHook> = names("none", "fp16", "bf16");

template <>
inline constexpr std::array other_names_of<CommHook>{
    OtherName<CommHook>{"float16", CommHook::fp16}, OtherName<CommHook>{"half", CommHook::fp16},
    OtherName<CommHook>{"bfloat16", CommHook::bf16}};

// ZeRO stage 1: each rank updates its part of the parameters. All ranks then get the parts in one
// all-gather, or by a broadcast from one rank after another, flattened before and copied out after,
// as in CS336's assignment.
enum class ShardedOptimizer : std::uint8_t { all_gather, broadcast };

template <>
inline constexpr auto names_of<ShardedOptimizer> = names("all_gather", "broadcast");

// A user's choices of synchronisation. The strategy decides the fields left out.
struct SyncRequest {
    Strategy strategy = Strategy::ddp;
    Cap bucket_cap;
    std::optional<Bytes> first_bucket;
    std::vector<Bytes> bucket_cap_list;   // PyTorch's bucket_cap_mb_list (2025-11)
    bool explicit_cap_sets_first = true;  // PyTorch since pull request 121640 (2024)
    bool views = false;                   // gradient_as_bucket_view
    bool fused_copies = false;            // one launch packs a whole bucket, one unpacks it
    bool batched_grad_copy = false;       // PyTorch's (2.12): a launch copies, one divides
    CommHook comm_hook = CommHook::none;
    bool find_unused_parameters = false;
    bool static_graph = false;
    bool compiled = false;  // torch.compile, whose DDPOptimizer cuts the graph at the cap
    bool broadcast_buffers = true;
    BatchNormSync batch_norm = BatchNormSync::local;
    std::optional<ShardedOptimizer> sharded_optimizer = {};
    std::optional<Closing> closing;
    std::optional<Order> order;
    std::optional<LaunchRule> launch;
    // The origin of the step, where its bucket size is typed; none: unknown.
    std::optional<SettingPlace> framework = {};
    std::optional<FrameworkVersion> framework_version = {};
    FrameworkUse options = {};  // of the strategy's framework; see use_of()
    bool operator==(const SyncRequest&) const = default;
};

// The use of the strategy's framework; PyTorch's for strategies without one.
FrameworkUse use_of(const SyncRequest& request);

// The request with the strategy and the options of this use, and all else that it may have.
SyncRequest used_as(const SyncRequest& request, const FrameworkUse& use);

// When the compute stream waits for reductions.
enum class ComputingWaits : std::uint8_t {
    at_the_end,  // after backward
    for_others,  // before a bucket goes out, for all earlier buckets, too
    at_once      // after a bucket went out, for that bucket
};

// Additional work of the communication stream on a bucket: passes over all of it. Each pass reads
// and writes the bucket's bytes.
struct StreamPasses {
    double of_one = 0;      // a bucket of a single gradient
    double of_several = 0;  // any other
    bool operator==(const StreamPasses&) const = default;
};

// The copies behind these passes.
enum class StreamCopies : std::uint8_t {
    none,
    share,  // a bucket is divided, and a rank's share of it copied out (DeepSpeed)
    fusion  // several gradients are copied into their bucket, divided, and back (Horovod)
};

// How other frameworks synchronise. The defaults are PyTorch's.
struct FrameworkSync {
    CollectiveKind reduction = CollectiveKind::all_reduce;  // of a bucket
    std::optional<DType> reduced_as = {};  // the dtype of buckets; none: their gradients' dtype
    bool adds_into_bucket = false;         // copies in add to the bucket
    // On the compute stream, before a bucket goes out: half a pass over it, with the host waiting
    // for the result, and a whole pass.
    bool checks_at_launch = false;
    bool scales_at_launch = false;
    StreamPasses passes = {};
    StreamCopies copies = StreamCopies::none;
    ComputingWaits wait = ComputingWaits::at_the_end;
    bool host_waits = false;          // once the buckets are reduced, until the device is idle
    bool every_micro_step = false;    // reduces gradients
    std::vector<Bytes> gathers = {};  // all-gathers of parameters after the optimizer, in order
    // Those of each bucket, BucketPlan::gathers: in forward, else after the optimizer.
    bool gathers_buckets = false;
    bool gathers_in_forward = false;
    std::int64_t updating_ranks = 1;  // that share the optimizer's updates
    Duration cycle = default_cycle;   // with LaunchRule::cycle
    bool operator==(const FrameworkSync&) const = default;
};

// The program builder's input.
struct SyncSettings {
    bool communicates = true;
    PlanPolicy policy;
    bool copies_in = false;         // into the bucket; with views this is the division in place
    bool copies_at_launch = false;  // copies a whole bucket in when it goes out, not one by one
    bool copies_back = false;       // out of the bucket, after its all-reduce
    bool fused_copies = false;  // a bucket's copies are one launch each way, with the hook's casts
    bool batched_copies = false;  // as above, without the hook's casts and the division
    CommHook comm_hook = CommHook::none;
    // A hook's casts are undone as soon as a bucket is reduced, on a separate stream, where host
    // and device are apart: PyTorch's fut.then(decompress).
    bool casts_back_beside = false;
    bool broadcasts_buffers = false;  // at the start of forward
    bool reduces_unused_map = false;  // an int32 per parameter, all-reduced after the last bucket
    std::optional<ShardedOptimizer> sharded_optimizer = {};
    // BatchNorm's statistics, in every micro-step, where the workload's operations need it.
    bool exchanges_statistics = false;
    FrameworkSync framework = {};
    bool operator==(const SyncSettings&) const = default;
};

// Without the part of a framework's rule that depends on the step, which settings_for() of
// sim/program/framework.h adds.
SyncSettings settings_for(const SyncRequest& request);

// For ranks that replay the step: they cast back where they compute.
SyncSettings settings_of_replay(const SyncRequest& request);

// Whether the strategy's buckets depend on a cap that a sweep can vary.
bool has_cap(const SyncRequest& request);

// The smallest cap that can be named. torch.compile refuses caps below its first piece's 1 MiB.
Bytes least_cap(const SyncRequest& request);

// The cap of the strategy's buckets; Cap::none() where they have none.
Cap cap_of(const SyncRequest& request);

// The request with this cap; unchanged where it has none.
SyncRequest with_cap(SyncRequest request, Cap cap);

// The request without a list of caps: the framework's default cap takes its place.
SyncRequest without_list(SyncRequest request);

// Whether the request sets a cap, a first bucket or a list of caps.
bool names_caps(const SyncRequest& request);

// The request with the framework's defaults: no cap, no first bucket, no list.
SyncRequest without_caps(SyncRequest request);

}  // namespace bucketwise
