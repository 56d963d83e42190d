#include "sim/workload/compiled.h"

#include "sim/workload/recompute.h"

namespace bucketwise {
namespace {

bool is_over_memory(const Operation& operation) {
    return !operation.product && operation.kind != OperationKind::gate;
}

// A residual sum's gradient is a sum as well, where forward branched off. A loss moves more
// backward than forward.
bool sums_gradients(const Operation& operation, Pass pass) {
    return pass == Pass::input_gradient && operation.kind == OperationKind::stream &&
           operation.input_gradient.elements <= operation.forward.elements;
}

}  // namespace

CompiledGraphs::CompiledGraphs(const Model& model, Execution execution, bool by_block)
    : model_(model), in_block_(model.operations.size()), graph_(model.operations.size()) {
    const std::vector<RecomputedBlock> blocks = recomputed_blocks(model, {}, false);
    const bool compiles_all = execution == Execution::compiled && (!by_block || blocks.empty());
    if (compiles_all) {
        graph_.assign(graph_.size(), 0);
    }
    for (std::size_t block = 0; block < blocks.size(); ++block) {
        for (std::size_t i = blocks[block].first; i < blocks[block].end; ++i) {
            in_block_[i] = true;
            if (execution == Execution::compiled && !compiles_all) {
                graph_[i] = block;
            }
        }
    }
}

std::vector<PassPlace> CompiledGraphs::places(const std::vector<OperationPass>& passes) const {
    std::vector<PassPlace> places(passes.size());
    for (std::size_t i = 0; i < passes.size(); ++i) {
        PassPlace& place = places[i];
        place.in_block = in_block_[static_cast<std::size_t>(passes[i].operation)];
        place.compiled = graph_of(passes[i]).has_value();
        place.enters_graph =
            place.compiled && (i == 0 || graph_of(passes[i - 1]) != graph_of(passes[i]));
        place.fused = place.compiled && (sums_gradients(operation_of(passes[i]), passes[i].pass) ||
                                         (i > 0 && is_fused(passes[i - 1], passes[i])));
    }
    return places;
}

// A norm's two gradients, and passes of both directions, are kernels of their own.
bool CompiledGraphs::is_fused(const OperationPass& before, const OperationPass& pass) const {
    return before.operation != pass.operation && graph_of(before) == graph_of(pass) &&
           is_forward(before.pass) == is_forward(pass.pass) &&
           is_over_memory(operation_of(before)) && is_over_memory(operation_of(pass));
}

}  // namespace bucketwise
