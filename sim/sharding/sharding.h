// A scenario's settings of a sharded step: each rank holds an equal part of every parameter,
// gradient and optimizer state, and gathers parameters to compute with them.
//
// fsdp is PyTorch's fully_shard (FSDP2); hsdp shards within groups of ranks and all-reduces
// gradients between them; zero3 is DeepSpeed's stage 3.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/names.h"

namespace bucketwise {

enum class ShardedStrategy : std::uint8_t { fsdp, hsdp, zero3 };

template <>
inline constexpr auto names_of<ShardedStrategy> = names("fsdp", "hsdp", "zero3");

// One line for each strategy in --help.
inline constexpr std::array<std::string_view, names_of<ShardedStrategy>.size()>
    sharded_strategy_texts{
        "PyTorch's fully_shard (FSDP2): parameters, gradients and optimizer sharded",
        "the same among shard_ranks ranks, gradients all-reduced between such groups",
        "DeepSpeed's stage 3, which gathers module by module"};

// Micro-steps of an accumulating step whose backward communicates.
enum class MicroSteps : std::uint8_t { every, last };

template <>
inline constexpr auto names_of<MicroSteps> = names("every_micro_step", "last_micro_step");

// DeepSpeed's zero_optimization, in elements; the defaults are its own.
struct Zero3Settings {
    std::int64_t prefetch_elements = 50'000'000;        // stage3_prefetch_bucket_size
    std::int64_t persistence_threshold = 100'000;       // stage3_param_persistence_threshold
    std::int64_t max_live_parameters = 1'000'000'000;   // stage3_max_live_parameters
    std::int64_t max_reuse_distance = 1'000'000'000;    // stage3_max_reuse_distance
    std::int64_t reduce_bucket_elements = 500'000'000;  // reduce_bucket_size
    bool operator==(const Zero3Settings&) const = default;
};

// The defaults are PyTorch's.
struct ShardingRequest {
    ShardedStrategy strategy = ShardedStrategy::fsdp;
    // Neighbouring blocks per fully_shard call; 0: everything belongs to the root.
    std::int64_t layers_per_group = 1;
    // Instead, the modules of each call; the rest belongs to the root.
    std::vector<std::vector<std::string>> groups = {};
    // Whether forward frees a group's parameters after use; the root's, with which backward begins,
    // only with reshard_after_forward of the root itself.
    bool reshard_after_forward = true;
    bool reshard_root = false;
    // Kept among so many ranks instead of all (reshard_after_forward=N).
    std::optional<std::int64_t> reshard_ranks = {};
    // Groups gathered ahead (set_modules_to_forward_prefetch, ..._backward_prefetch). 0: forward
    // gathers each group on entering, and only the host's lead prefetches.
    std::int64_t forward_prefetch = 0;
    std::int64_t backward_prefetch = 1;
    bool asynchronous_unshard = false;  // _set_unshard_async_op
    std::optional<DType> parameter_dtype =
        {};  // MixedPrecisionPolicy's, gathered and computed with
    std::optional<DType> reduce_dtype = {};
    // Weights of linear layers are cast on the shard and gathered in one byte per element
    // (torchao's enable_fsdp_float8_all_gather).
    bool float8_all_gather = false;
    // Without reduce_dtype: in the parameters' own dtype, as from PyTorch 2.15 on; before that in
    // parameter_dtype.
    bool reduces_in_own_dtype = true;
    std::int64_t reduce_scatter_buffers = 1;       // set_reduce_scatter_max_input_buffers
    MicroSteps gradient_sync = MicroSteps::every;  // set_requires_gradient_sync
    bool reshard_after_backward = true;            // set_reshard_after_backward
    MicroSteps all_reduce = MicroSteps::every;     // set_requires_all_reduce
    std::optional<std::int64_t> shard_ranks = {};  // of hsdp; none: those of a node
    Zero3Settings zero3 = {};
    bool operator==(const ShardingRequest&) const = default;
};

// The request with the knobs of `of` that predict() turns.
inline ShardingRequest with_turned_knobs(ShardingRequest request, const ShardingRequest& of) {
    request.groups = of.groups;
    request.layers_per_group = of.layers_per_group;
    request.reshard_after_forward = of.reshard_after_forward;
    request.reshard_ranks = of.reshard_ranks;
    request.forward_prefetch = of.forward_prefetch;
    request.backward_prefetch = of.backward_prefetch;
    request.asynchronous_unshard = of.asynchronous_unshard;
    request.zero3.prefetch_elements = of.zero3.prefetch_elements;
    request.zero3.reduce_bucket_elements = of.zero3.reduce_bucket_elements;
    request.zero3.max_reuse_distance = of.zero3.max_reuse_distance;
    return request;
}

}  // namespace bucketwise
