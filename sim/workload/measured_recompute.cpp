// Activation checkpointing where computing was measured: backward takes again as long as a block's
// forward took, as its operators are not known.

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "sim/base/invariant.h"
#include "sim/base/transformed.h"
#include "sim/workload/modules.h"
#include "sim/workload/workload.h"

namespace bucketwise {
namespace {

struct MeasuredBlock {
    std::vector<const Gradient*> gradients = {};
    std::vector<TimedOperation> forward = {};
    std::optional<std::size_t> begin = {};  // its first operation of backward
    Duration backward{0};
    const Gradient* first_ready = nullptr;
};

using Blocks = std::map<std::string, MeasuredBlock, std::less<>>;

// The last word says which pass an operation is of: "layers.0.mlp forward".
std::string module_of_operation(const std::string& name) {
    return name.substr(0, name.find(' '));
}

MeasuredBlock* find_block(Blocks& blocks, const std::optional<std::string>& name) {
    const auto found = name ? blocks.find(*name) : blocks.end();
    return found == blocks.end() ? nullptr : &found->second;
}

MeasuredBlock* block_of_operation(Blocks& blocks, const TimedOperation& operation) {
    return find_block(blocks, block_of(module_of_operation(operation.name) + "."));
}

// Without shapes none is a matrix.
std::int64_t matrix_numel(const Gradient& gradient) {
    return gradient.rows > 0 && gradient.rows < gradient.numel ? gradient.numel : 0;
}

double share_of_last_product(const MeasuredBlock& block) {
    if (block.first_ready == nullptr) {
        return 0;
    }
    const std::string_view first = block.first_ready->name;
    const std::string_view layer = first.substr(0, first.rfind('.'));
    std::int64_t all = 0;
    std::int64_t last = 0;
    for (const Gradient* gradient : block.gradients) {
        all += matrix_numel(*gradient);
        last += belongs_to(gradient->name, layer) ? matrix_numel(*gradient) : 0;
    }
    return all > 0 ? static_cast<double>(last) / static_cast<double>(all) : 0;
}

void find_backward(const Workload& measured, const std::vector<TimedOperation>& backward,
                   Blocks& blocks) {
    auto next = measured.readiness.begin();
    for (std::size_t i = 0; i < backward.size(); ++i) {
        const Gradient* first = backward[i].ready_count > 0
                                    ? &measured.gradients[static_cast<std::size_t>(*next)]
                                    : nullptr;
        next += backward[i].ready_count;
        MeasuredBlock* block = block_of_operation(blocks, backward[i]);
        if (block == nullptr && first != nullptr) {
            block = find_block(blocks, block_of(first->name));
        }
        if (block != nullptr) {
            block->begin = block->begin.value_or(i);
            block->backward += backward[i].device;
            block->first_ready = block->first_ready == nullptr ? first : block->first_ready;
        }
    }
}

// Forward's time by each block's share of backward's.
void share_forward(const Workload& measured, const std::vector<TimedOperation>& backward,
                   Blocks& blocks) {
    TimedOperation all;
    for (const TimedOperation& operation : measured.forward) {
        all.device += operation.device;
        all.host += operation.host;
    }
    Duration whole{0};
    for (const TimedOperation& operation : backward) {
        whole += operation.device;
    }
    for (auto& [name, block] : blocks) {
        const double share = whole > Duration{0} ? static_cast<double>(block.backward.count()) /
                                                       static_cast<double>(whole.count())
                                                 : 0;
        block.forward = {
            {.name = name, .device = scaled(all.device, share), .host = scaled(all.host, share)}};
    }
}

Blocks blocks_by_name(const Workload& measured, const std::vector<TimedOperation>& backward) {
    Blocks blocks;
    for (const Gradient& gradient : measured.gradients) {
        if (const auto name = block_of(gradient.name)) {
            blocks[*name].gradients.push_back(&gradient);
        }
    }
    bool is_named = false;
    for (const TimedOperation& operation : measured.forward) {
        MeasuredBlock* block = block_of_operation(blocks, operation);
        if (block != nullptr && !operation.order.is_beside()) {
            block->forward.push_back(operation);
            is_named = true;
        }
    }
    find_backward(measured, backward, blocks);
    if (!is_named) {
        share_forward(measured, backward, blocks);
    }
    return blocks;
}

}  // namespace

Duration take_out_recomputed(std::vector<TimedOperation>& backward) {
    Duration sum{0};
    for (TimedOperation& operation : backward) {
        const Duration again = scaled(operation.device, operation.recomputed);
        operation.device -= again;
        operation.host -= scaled(operation.host, operation.recomputed);
        operation.recomputed = 0;
        sum += again;
    }
    return sum;
}

std::vector<TimedOperation> backward_with(const std::optional<Recompute>& recompute,
                                          const Workload& measured) {
    invariant(!recompute || recompute->keeps == CheckpointKeeps::inputs,
              "which operators stay is known of a model alone");
    std::vector<TimedOperation> backward = measured.backward;
    take_out_recomputed(backward);
    if (!recompute) {
        return backward;
    }
    const Blocks blocks = blocks_by_name(measured, backward);
    const std::vector<std::string> in_order =
        blocks_of(transformed(measured.gradients, &Gradient::name));
    std::map<std::size_t, std::vector<TimedOperation>> again;  // by what they run before
    for (std::size_t i = 0; i < in_order.size(); ++i) {
        const MeasuredBlock& block = blocks.at(in_order[i]);
        if (!is_chosen(*recompute, static_cast<std::int64_t>(i)) || !block.begin) {
            continue;
        }
        const double share = recompute->reentrant ? 1.0 : 1.0 - share_of_last_product(block);
        for (TimedOperation operation : block.forward) {
            operation.name = module_of_operation(operation.name) + " recomputed";
            operation.device = scaled(operation.device, share);
            operation.host = scaled(operation.host, share);
            operation.recomputed = 1;
            again[*block.begin].push_back(std::move(operation));
        }
    }
    std::vector<TimedOperation> result;
    for (std::size_t i = 0; i < backward.size(); ++i) {
        if (const auto found = again.find(i); found != again.end()) {
            result.insert(result.end(), found->second.begin(), found->second.end());
        }
        result.push_back(std::move(backward[i]));
    }
    return result;
}

}  // namespace bucketwise
