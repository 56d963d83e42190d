// The named strategies: each is a preset of a few fields, with no code of its own.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/base/names.h"
#include "sim/base/units.h"
#include "sim/plan/cap.h"
#include "sim/plan/plan.h"
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

// What a user says about synchronisation. Where a field is left out, the strategy decides.
struct SyncRequest {
    Strategy strategy = Strategy::ddp;
    Cap bucket_cap;
    std::optional<Bytes> first_bucket;
    std::vector<Bytes> bucket_cap_list;   // PyTorch's bucket_cap_mb_list (2025-11)
    bool explicit_cap_sets_first = true;  // PyTorch since pull request 121640 (2024)
    bool views = false;                   // gradient_as_bucket_view
    bool fused_copies = false;            // one launch packs a whole bucket, one unpacks it
    CommHook comm_hook = CommHook::none;
    bool find_unused_parameters = false;
    bool broadcast_buffers = true;
    BatchNormSync batch_norm = BatchNormSync::local;
    std::optional<Closing> closing;
    std::optional<Order> order;
    std::optional<LaunchRule> launch;
    bool operator==(const SyncRequest&) const = default;
};

// What the program builder needs to know.
struct SyncSettings {
    bool communicates = true;
    PlanPolicy policy;
    bool copies_in = false;         // into the bucket; with views this is the division in place
    bool copies_at_launch = false;  // those in: of a whole bucket when it goes out, not one by one
    bool copies_back = false;       // out of the bucket, after its all-reduce
    bool fused_copies = false;  // a bucket's copies are one launch each way, with the hook's casts
    CommHook comm_hook = CommHook::none;
    bool broadcasts_buffers = false;  // at the start of forward
    bool reduces_unused_map = false;  // an int32 per parameter, all-reduced after the last bucket
    // Where the workload's operations ask for it: BatchNorm's statistics, in every micro-step.
    bool exchanges_statistics = false;
    bool operator==(const SyncSettings&) const = default;
};

SyncSettings settings_for(const SyncRequest& request);

// Whether the strategy's buckets depend on a cap that a sweep can vary.
bool has_cap(const SyncRequest& request);

// That cap; none where they do not.
Cap cap_of(const SyncRequest& request);

// The request with this cap, where it has one; else as it is.
SyncRequest with_cap(SyncRequest request, Cap cap);

// The request with one cap, the framework's default, in the place of a list of caps, if it names
// one.
SyncRequest without_list(SyncRequest request);

// The request to a framework that is left at its default: no cap, no first bucket, no list.
SyncRequest without_caps(SyncRequest request);

}  // namespace bucketwise
