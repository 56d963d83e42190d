// The named strategies: each is a preset of a few fields, with no code of its own.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

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
    python_async          // the same, each all-reduce as its bucket fills
};

template <>
inline constexpr auto names_of<Strategy> = names("none", "naive", "flat", "overlap", "bucketed",
                                                 "ddp", "ddp_first_iteration", "python_sync",
                                                 "python_async");

// What each of them is, in a line, as --help lists them.
inline constexpr std::array<std::string_view, names_of<Strategy>.size()> strategy_texts{
    "no communication: the floor of the others",
    "one all-reduce per gradient, after backward",
    "one all-reduce of all gradients, after backward",
    "one all-reduce per gradient, as it becomes ready",
    "strict buckets in reverse order, each as it fills (CS336)",
    "PyTorch's DistributedDataParallel, from its second iteration on",
    "the same before it has seen in which order gradients become ready",
    "PyTorch's compare_ddp benchmark, all-reduces after backward",
    "the same, each all-reduce as its bucket fills"};

// Whether PyTorch's DistributedDataParallel does the work, with a default cap and buffers of its
// own.
constexpr bool is_ddp(Strategy strategy) {
    return strategy == Strategy::ddp || strategy == Strategy::ddp_first_iteration;
}

// PyTorch's gradient compression hooks: cast, all-reduce at half the bytes, cast back.
enum class CommHook : std::uint8_t { none, fp16, bf16 };

template <>
inline constexpr auto names_of<CommHook> = names("none", "fp16", "bf16");

template <>
inline constexpr std::array other_names_of<CommHook>{
    OtherName<CommHook>{"float16", CommHook::fp16}, OtherName<CommHook>{"half", CommHook::fp16},
    OtherName<CommHook>{"bfloat16", CommHook::bf16}};

// ZeRO stage 1: each rank updates its part of the parameters, which all then get in one all-gather,
// or from one rank after another by a broadcast of its part, flattened before and copied out of
// after, as in CS336's assignment.
enum class ShardedOptimizer : std::uint8_t { all_gather, broadcast };

template <>
inline constexpr auto names_of<ShardedOptimizer> = names("all_gather", "broadcast");

// What a user says about synchronisation. Where a field is left out, the strategy decides.
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
    // Where the step comes from, and so where its bucket size is typed; none: not said.
    std::optional<SettingPlace> framework = {};
    std::optional<FrameworkVersion> framework_version = {};
    bool operator==(const SyncRequest&) const = default;
};

// What the compute stream waits for beside the end of backward.
enum class ComputingWaits : std::uint8_t {
    at_the_end,  // nothing: what is reduced is waited for after backward
    for_others,  // before a bucket goes out: for all that went out before it
    at_once      // after a bucket went out: for it
};

// What the communication stream does to a bucket besides reducing it, in passes over all of it,
// each of which reads and writes as many bytes.
struct StreamPasses {
    double of_one = 0;      // a bucket of a single gradient
    double of_several = 0;  // any other
    bool operator==(const StreamPasses&) const = default;
};

// What frameworks other than PyTorch do; as it is here, what PyTorch does.
struct FrameworkSync {
    CollectiveKind reduction = CollectiveKind::all_reduce;  // of a bucket
    std::optional<DType> reduced_as = {};  // what buckets hold; none: their gradients' dtype
    bool adds_into_bucket = false;         // copies in add to what is there
    // Before a bucket goes out, on the compute stream: half a pass over it, whose result the host
    // waits for, and a whole one.
    bool checks_at_launch = false;
    bool scales_at_launch = false;
    StreamPasses passes = {};
    ComputingWaits wait = ComputingWaits::at_the_end;
    bool host_waits = false;          // once the buckets are reduced, until the device is idle
    bool every_micro_step = false;    // reduces gradients
    std::vector<Bytes> gathers = {};  // of parameters, after the optimizer, one after another
    bool gathers_in_forward = false;  // BucketPlan::gathers, else after the optimizer
    bool operator==(const FrameworkSync&) const = default;
};

// What the program builder needs to know.
struct SyncSettings {
    bool communicates = true;
    PlanPolicy policy;
    bool copies_in = false;         // into the bucket; with views this is the division in place
    bool copies_at_launch = false;  // those in: of a whole bucket when it goes out, not one by one
    bool copies_back = false;       // out of the bucket, after its all-reduce
    bool fused_copies = false;  // a bucket's copies are one launch each way, with the hook's casts
    bool batched_copies = false;  // the same without what else is done to the bucket
    CommHook comm_hook = CommHook::none;
    // What a hook has cast is cast back as soon as it is reduced, on a stream of its own, where
    // host and device are apart: PyTorch's fut.then(decompress).
    bool casts_back_beside = false;
    bool broadcasts_buffers = false;  // at the start of forward
    bool reduces_unused_map = false;  // an int32 per parameter, all-reduced after the last bucket
    std::optional<ShardedOptimizer> sharded_optimizer = {};
    // Where the workload's operations ask for it: BatchNorm's statistics, in every micro-step.
    bool exchanges_statistics = false;
    FrameworkSync framework = {};
    bool operator==(const SyncSettings&) const = default;
};

SyncSettings settings_for(const SyncRequest& request);

// The same of ranks that replay the step: they cast back where they compute.
SyncSettings settings_of_replay(const SyncRequest& request);

// Whether the strategy's buckets depend on a cap that a sweep can vary.
bool has_cap(const SyncRequest& request);

// The smallest cap that can be named. torch.compile refuses those below its first piece's 1 MiB.
Bytes least_cap(const SyncRequest& request);

// That cap; none where they do not.
Cap cap_of(const SyncRequest& request);

// The request with this cap, where it has one; else as it is.
SyncRequest with_cap(SyncRequest request, Cap cap);

// The request with one cap, the framework's default, in the place of a list of caps, if it names
// one.
SyncRequest without_list(SyncRequest request);

// Does anybody but the framework say at which sizes buckets close?
bool names_caps(const SyncRequest& request);

// The request to a framework that is left at its default: no cap, no first bucket, no list.
SyncRequest without_caps(SyncRequest request);

}  // namespace bucketwise
