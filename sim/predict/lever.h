// Changes of a step beside its caps or groups: knobs of the strategy, and what they save.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/names.h"
#include "sim/base/units.h"
#include "sim/predict/overlap.h"

namespace bucketwise {

enum class LeverKind : std::uint8_t {
    // For a step that shards.
    gradient_sync,
    all_reduce,
    reshard_after_backward,
    reduce_dtype,
    parameter_dtype,
    shard_ranks,
    without_sharding,
    // For one that does not.
    comm_hook,
    views,
    // For both.
    micro_batch,  // a larger one, and fewer micro-steps
    sync_each_step,
    activation_checkpointing,  // less of it
    accumulation,              // more of it, which changes the training
    // For processes and computing; tried where they are asked for.
    nccl_max_ctas,
    nccl_nvls,
    one_hardware_queue,
    execution,
    arithmetic
};

template <>
inline constexpr auto names_of<LeverKind> =
    names("gradient_sync", "all_reduce", "reshard_after_backward", "reduce_dtype",
          "parameter_dtype", "shard_ranks", "without_sharding", "comm_hook", "views", "micro_batch",
          "sync_each_step", "activation_checkpointing", "accumulation", "nccl_max_ctas",
          "nccl_nvls", "one_hardware_queue", "execution", "arithmetic");

// Groups of knobs that are tried one by one where they are asked for.
enum class Tuned : std::uint8_t {
    nccl,      // NCCL's variables, and the device's hardware queues
    computing  // torch.compile, float8
};

template <>
inline constexpr auto names_of<Tuned> = names("nccl", "computing");

struct LeverChange {
    LeverKind kind = LeverKind::views;
    std::string value;  // that the knob gets
    bool operator==(const LeverChange&) const = default;
};

// Changes that are made together, with the best of the advised caps or groups and one's own.
struct Lever {
    std::vector<LeverChange> changes;
    Duration step{0};         // for as many samples as the scenario's step
    double typical = 0;       // saved of the advised step, as a share
    DrawnShare saved = {};    // the same over both ends of presets, and without overlap's costs
    std::int64_t memory = 0;  // bytes beyond the advised step's need; negative: less
    bool operator==(const Lever&) const = default;
};

// Those that save most.
struct Levers {
    std::vector<Lever> alone = {};       // at most two knobs, the one that saves more first
    std::optional<Lever> together = {};  // both of them, where that saves noticeably more
    // Another strategy or micro-batch, and more micro-steps for each reduction.
    std::vector<Lever> others = {};
    bool operator==(const Levers&) const = default;
};

}  // namespace bucketwise
