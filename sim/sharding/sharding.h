// What a scenario says of a step whose parameters are sharded: each rank holds an equal part of
// every parameter, gradient and optimizer state, and gathers parameters when it computes with them.
//
// fsdp is PyTorch's fully_shard (FSDP2), hsdp the same among some of the ranks, between whose
// groups gradients are all-reduced; zero3 is DeepSpeed's stage 3.
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

// What each of them is, in a line, as --help lists them.
inline constexpr std::array<std::string_view, names_of<ShardedStrategy>.size()>
    sharded_strategy_texts{
        "PyTorch's fully_shard (FSDP2): parameters, gradients and optimizer sharded",
        "the same among shard_ranks ranks, gradients all-reduced between such groups",
        "DeepSpeed's stage 3, which gathers module by module"};

// Which backward of a step that accumulates does something.
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

// What PyTorch does where a field is left as it is.
struct ShardingRequest {
    ShardedStrategy strategy = ShardedStrategy::fsdp;
    // How many neighbouring blocks one fully_shard call takes; 0: none, all is the root's.
    std::int64_t layers_per_group = 1;
    // Instead: the modules of each call. What is in none of them is the root's.
    std::vector<std::vector<std::string>> groups = {};
    // Whether a group's parameters are freed once its forward is over; the root's, with which
    // backward begins, only where PyTorch is told so of the root itself.
    bool reshard_after_forward = true;
    bool reshard_root = false;
    // Kept among so many ranks instead of all (reshard_after_forward=N).
    std::optional<std::int64_t> reshard_ranks = {};
    // How many groups ahead are gathered (set_modules_to_forward_prefetch, ..._backward_prefetch).
    // 0: forward gathers what it comes to, and the host that runs ahead is all that prefetches.
    std::int64_t forward_prefetch = 0;
    std::int64_t backward_prefetch = 1;
    bool asynchronous_unshard = false;  // _set_unshard_async_op
    std::optional<DType> parameter_dtype =
        {};  // MixedPrecisionPolicy's, gathered and computed with
    std::optional<DType> reduce_dtype = {};
    // Where reduce_dtype is none: in the parameters' own, as from PyTorch 2.15 on; before that in
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

}  // namespace bucketwise
