// torch.compile, of a whole model or block by block: which operations a graph holds, and which of
// its passes over memory share a kernel.
//
// Under fully_shard blocks are compiled one by one (torchtitan: fully_shard(compile(checkpoint(
// block)))), as its hooks run between them: no kernel reaches over a block's end, a block's
// gradients come out together when its backward ends, and everything outside of blocks is eager. A
// model without repeated blocks is one graph.
//
// TorchInductor's kernels within a graph, as far as they are modelled:
//  - A pass over memory behind another one joins its kernel. The result between them stays on the
//    chip and need not be read: the pass moves half. So a residual sum and the norm behind it are
//    one kernel, and so are chains of elementwise operations.
//  - SwiGLU's activation joins the kernel of its multiplication, which reads the activation's input
//    in place of its result, and costs nothing of its own.
//  - A sum of gradients of the residual stream, or of those of several projections, joins the
//    backward of the norm before them, which reads one more tensor: a third of its traffic.
//  - Casts of autocast join the kernel that writes their input, but for casts of weights.
//  - Any other pass is one kernel: an RMS norm forward, the gradients of its input and of its
//    weight, a rotary embedding.
// Matrix products and attention are the kernels they are in eager mode.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "sim/workload/gpu_prior.h"
#include "sim/workload/model.h"

namespace bucketwise {

// One pass of one operation of a model, which a real rank runs for a TimedOperation.
struct OperationPass {
    std::int32_t operation = 0;  // index into Model::operations
    Pass pass = Pass::forward;
    bool operator==(const OperationPass&) const = default;
};

// How a pass of an operation runs.
struct PassPlace {
    bool in_block = false;  // one of the model's repeated blocks
    bool compiled = false;
    bool fused = false;         // in the kernel of a neighbour of its graph
    bool enters_graph = false;  // first of its graph's forward or backward
    bool operator==(const PassPlace&) const = default;
};

class CompiledGraphs {
  public:
    // The model is kept by reference.
    CompiledGraphs(const Model& model, Execution execution, bool by_block);

    // The place of each of these passes, which run in this order: forward's, or backward's with
    // what it computes again.
    [[nodiscard]] std::vector<PassPlace> places(const std::vector<OperationPass>& passes) const;

    // The graph of an operation; none: it is eager.
    [[nodiscard]] std::optional<std::size_t> graph_of(std::size_t operation) const {
        return graph_[operation];
    }

  private:
    [[nodiscard]] bool is_fused(const OperationPass& before, const OperationPass& pass) const;
    [[nodiscard]] const Operation& operation_of(const OperationPass& pass) const {
        return model_.operations[static_cast<std::size_t>(pass.operation)];
    }
    [[nodiscard]] std::optional<std::size_t> graph_of(const OperationPass& pass) const {
        return graph_[static_cast<std::size_t>(pass.operation)];
    }

    const Model& model_;
    std::vector<bool> in_block_;                     // by operation
    std::vector<std::optional<std::size_t>> graph_;  // by operation
};

}  // namespace bucketwise
