// Memory of a rank's training on its device, so that nobody buys a plan that does not fit.
//
// Parameters, gradients, buckets and the optimizer's state are counted. Activations are estimated
// from what autograd keeps of each operation's result (Operation::kept_elements), in the arithmetic
// it runs in; under autocast sums of a transformer's stream and losses in float32, and, besides,
// the weights' copies in 16 bits. Attention in one kernel keeps no scores; compiled passes over
// memory are computed again. This is what Korthikanti et al. count (arXiv 2205.05198, section 4),
// who leave out what follows the layers. A checkpointed block keeps only its input and, where
// asked, some results; one whole block is there while backward computes it again. Left out are what
// the allocator, the CUDA context and NCCL take, and what kernels need while they run.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "sim/base/units.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// The moment of backward at which most is in use while a block is computed again.
struct RecomputedMemory {
    Bytes activations;  // earlier blocks' inputs, and all of the block's own
    Bytes gradients;    // of what backward has passed, the block's own included
    bool operator==(const RecomputedMemory&) const = default;
};

struct MemoryNeed {
    Bytes parameters;                           // and the model's buffers
    Bytes gradients;                            // with views: in their buckets
    Bytes buckets;                              // beside the gradients
    Bytes hook_copies;                          // of buckets, cast, while all of them travel
    Bytes gathered = {};                        // of a sharded step: parameters of other ranks, and
                                                // buffers of collectives
    std::optional<Bytes> optimizer_state = {};  // none: the optimizer is not named
    std::optional<Bytes> activations = {};      // of one micro-step; none: no model is given
    std::optional<RecomputedMemory> recomputed = {};  // none: nothing is computed again
    bool gradients_stay = false;       // from step to step, as views or accumulated ones do
    std::optional<Bytes> device = {};  // that there is; none: not known
    bool operator==(const MemoryNeed&) const = default;

    // Memory in use when backward begins, with all activations, and when it ends, with all
    // gradients: PyTorch frees gradients before forward (set_to_none) unless they stay.
    [[nodiscard]] Bytes at_begin() const;
    [[nodiscard]] Bytes at_end() const;
    [[nodiscard]] Bytes while_recomputing() const;
    [[nodiscard]] Bytes most() const {
        return std::max({at_begin(), while_recomputing(), at_end()});
    }
    [[nodiscard]] bool fits() const { return !device || most() <= *device; }
    // The device's memory beyond the need; none: not known.
    [[nodiscard]] std::optional<Bytes> spare() const {
        return device ? std::optional(Bytes{std::max((*device - most()).count, std::int64_t{0})})
                      : std::nullopt;
    }
};

// A scenario that shards counts with its own settings.
MemoryNeed memory_need(const Scenario& scenario);

// The need of a scenario that shards by another plan, which needs `sharded`.
MemoryNeed memory_need(const Scenario& scenario, const ShardedMemory& sharded);

// "needs about 96 GiB of the H100's 80: ...", the parts that make it; none: it fits, for all that
// is known.
std::optional<std::string> memory_warning(const Scenario& scenario);

}  // namespace bucketwise
