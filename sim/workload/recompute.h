// Activation checkpointing: backward computes a block's forward again instead of reading what
// forward kept. Autograd then keeps each such block's input alone.
//
// torch.utils.checkpoint without reentry stops early: once every saved tensor is there again, the
// rest of the block does not run. A product saves its inputs before it runs, so a block's last
// product is not computed again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/names.h"
#include "sim/workload/model.h"

namespace bucketwise {

// The tensors that a checkpointed block keeps for backward.
enum class CheckpointKeeps : std::uint8_t {
    inputs,    // of the block
    operators  // besides, results of attention in one kernel and of every other product of its
               // linear layers, the first included: torchtitan's selective "op"
};

template <>
inline constexpr auto names_of<CheckpointKeeps> = names("inputs", "operators");

struct Recompute {
    CheckpointKeeps keeps = CheckpointKeeps::inputs;
    std::int64_t every = 1;                   // of the blocks, each so many-th
    std::optional<std::int64_t> blocks = {};  // only so many, the first ones; none: all
    bool reentrant = false;                   // runs the whole block again
    bool operator==(const Recompute&) const = default;
};

// Whether backward computes the block again. `index`: of all blocks, in order.
bool is_chosen(const Recompute& recompute, std::int64_t index);

// A block of a model that backward computes again, by indices into Model::operations.
struct RecomputedBlock {
    std::string name;
    std::size_t first = 0;  // its operations: [first, end)
    std::size_t end = 0;
    std::vector<std::size_t> again = {};  // run again before its backward, in forward's order
    std::vector<std::size_t> kept = {};   // operations whose results stay
    bool operator==(const RecomputedBlock&) const = default;
};

// The blocks that are computed again, in forward's order; empty: the model has no repeated blocks,
// or none is chosen. `fused_attention`: one kernel computes it, and autograd keeps its result.
std::vector<RecomputedBlock> recomputed_blocks(const Model& model, const Recompute& recompute,
                                               bool fused_attention);

// How many repeated blocks the model has.
std::size_t count_of_blocks(const Model& model);

}  // namespace bucketwise
