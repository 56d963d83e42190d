#include "sim/workload/recompute.h"

#include <algorithm>

#include "sim/base/transformed.h"
#include "sim/workload/modules.h"

namespace bucketwise {
namespace {

std::vector<std::string> blocks_of_model(const Model& model) {
    return blocks_of(transformed(model.parameters, &Parameter::name));
}

// The next block's input, which its reader keeps, unless it is a norm's, which saves statistics.
bool is_only_result(const Model& model, const RecomputedBlock& block, std::size_t index) {
    return index + 1 == block.end && model.operations[index].kind != OperationKind::normalisation;
}

// The end of the operations that run again: behind the last one with a result that is saved.
std::size_t end_of_again(const Model& model, const RecomputedBlock& block, bool reentrant) {
    std::size_t end = block.end;
    while (!reentrant && end > block.first) {
        const Operation& last = model.operations[end - 1];
        const bool is_saved = last.kept_elements > 0 || last.kept_bytes > 0;
        if (is_saved && !is_only_result(model, block, end - 1)) {
            break;
        }
        --end;
    }
    return end;
}

void choose_operations(const Model& model, const Recompute& recompute, bool fused_attention,
                       RecomputedBlock& block) {
    const std::size_t end = end_of_again(model, block, recompute.reentrant);
    std::int64_t products = 0;
    for (std::size_t i = block.first; i < block.end; ++i) {
        const Operation& operation = model.operations[i];
        const bool is_linear = operation.kind == OperationKind::linear;
        products += is_linear ? 1 : 0;
        const bool stays =
            recompute.keeps == CheckpointKeeps::operators &&
            ((is_linear && products % 2 == 1) || (fused_attention && is_attention(operation.kind)));
        if (stays) {
            block.kept.push_back(i);
        } else if (i < end) {
            block.again.push_back(i);
        }
    }
}

}  // namespace

// torchtitan counts from one and wraps each block whose number is a multiple.
bool is_chosen(const Recompute& recompute, std::int64_t index) {
    return (index + 1) % recompute.every == 0 && index < recompute.blocks.value_or(index + 1);
}

std::size_t count_of_blocks(const Model& model) {
    return blocks_of_model(model).size();
}

std::vector<RecomputedBlock> recomputed_blocks(const Model& model, const Recompute& recompute,
                                               bool fused_attention) {
    std::vector<RecomputedBlock> found;
    const std::vector<std::string> blocks = blocks_of_model(model);
    const auto& operations = model.operations;
    auto end = operations.begin();  // of the block before: the next one mostly follows
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (!is_chosen(recompute, static_cast<std::int64_t>(i))) {
            continue;
        }
        const auto is_of_block = [&](const Operation& operation) {
            return belongs_to(operation.name, blocks[i]);
        };
        auto first = std::find_if(end, operations.end(), is_of_block);
        first = first == operations.end() ? std::ranges::find_if(operations, is_of_block) : first;
        end = std::find_if_not(first, operations.end(), is_of_block);
        if (first == end) {
            continue;
        }
        found.push_back({blocks[i], static_cast<std::size_t>(first - operations.begin()),
                         static_cast<std::size_t>(end - operations.begin())});
        choose_operations(model, recompute, fused_attention, found.back());
    }
    return found;
}

}  // namespace bucketwise
