// Training settings that somebody typed: which strategy runs, its bucket size or its groups, and
// the rest of what changes the step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/plan/setting_place.h"
#include "sim/plan/strategy.h"
#include "sim/program/framework.h"
#include "sim/sharding/sharding.h"
#include "sim/workload/device.h"
#include "sim/workload/recompute.h"

namespace bucketwise {

// Ranks along the dimensions that are not data-parallel.
struct ModelParallel {
    std::int64_t tensor = 1;
    std::int64_t pipeline = 1;
    std::int64_t context = 1;
    bool operator==(const ModelParallel&) const = default;

    // Ranks that hold one copy of the model, and ranks per member of a gradient's group.
    [[nodiscard]] std::int64_t of_model() const { return tensor * pipeline; }
    [[nodiscard]] std::int64_t all() const { return of_model() * context; }
};

// Samples of a step: of all ranks together, and of one rank's micro-step.
struct Batches {
    std::optional<std::int64_t> global;
    std::optional<std::int64_t> micro;
    bool operator==(const Batches&) const = default;
};

// DeepSpeed's "auto" in stage 3 and reduce_bucket_size: transformers fills it in from the hidden
// size h: h * h, 0.9 * h * h and 10 * h.
struct AutoSizes {
    bool reduce_bucket = false;
    bool prefetch = false;
    bool persistence = false;
    bool operator==(const AutoSizes&) const = default;

    [[nodiscard]] bool any() const { return reduce_bucket || prefetch || persistence; }
};

struct TypedSettings {
    SettingPlace place = SettingPlace::pytorch_ddp;
    FrameworkUse use;             // PyTorch, if the place is a wrapper
    std::optional<double> value;  // in the unit of the framework's rule; nothing: its default
    std::vector<double> list;     // PyTorch's bucket_cap_mb_list, in MiB
    std::optional<std::int64_t> accumulation;  // micro-steps
    Batches batches = {};                      // give the micro-steps where nothing else does
    ModelParallel parallel = {};
    AutoSizes auto_sizes = {};
    // DistributedDataParallel's other arguments.
    std::optional<bool> views;
    std::optional<bool> find_unused_parameters;
    std::optional<bool> static_graph;
    std::optional<bool> compiled;  // by torch.compile
    std::optional<CommHook> comm_hook;
    std::optional<DType> dtype;                 // of parameters and gradients
    std::optional<Recompute> recompute = {};    // activation checkpointing
    std::optional<Arithmetic> arithmetic = {};  // of products; none: the scenario's
    bool compiles_blocks = false;
    // Parameters are sharded: no bucket size of DDP counts.
    std::optional<ShardingRequest> sharding = {};
    std::string runs = {};  // the strategy, in its own words, where the place does not say it
    std::string not_simulated = {};  // why there is no step to predict; empty: there is
    std::vector<std::string> notes;  // sentences without a full stop, as the next two
    std::vector<std::string> suspicious;
    std::vector<std::string> left_out;  // open, or not simulated
};

}  // namespace bucketwise
