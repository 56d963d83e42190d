// torch.compile under DistributedDataParallel: backward runs in pieces of the graph, and gradients
// become ready a whole piece at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/units.h"
#include "sim/plan/cap.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// DDPOptimizer (torch/_dynamo/backends/distributed.py) walks the graph from its end and begins a
// new piece before an operation once the parameters of the current piece take this many bytes.
struct PieceLimits {
    Bytes first = default_first_bucket;  // of the first piece that backward runs
    Bytes cap;                           // of all others: DDP's, of a list the largest

    // It asserts that the cap is no smaller than the first.
    [[nodiscard]] bool is_refused() const { return cap < first; }
    bool operator==(const PieceLimits&) const = default;
};

// Readiness that depends on a plan's cap. It replaces TimedOperation::ready_count and
// Workload::readiness.
struct PieceReadiness {
    std::vector<std::int32_t> counts = {};  // by operation of backward
    std::vector<std::int32_t> order = {};   // all gradients
    std::int64_t pieces = 0;
    bool operator==(const PieceReadiness&) const = default;
};

struct GraphPieces {
    PieceReadiness readiness;
    CapRange same_pieces;  // of PieceLimits::cap
    bool operator==(const GraphPieces&) const = default;
};

// A piece ends with the operation that fills it; all its gradients are ready then. An operation
// counts the parameters whose gradients it finishes, and TimedOperation::used_before. Operations
// without parameters at the beginning of the graph belong to the last piece.
//
// Autograd's engine hands out a piece's gradients from a heap. All are equal there (they come
// before the next piece), so their order is libstdc++'s. The next piece is pushed first, then the
// parameters in forward's order of use. This holds for pieces that pass on a single tensor;
// branches can change the order.
GraphPieces ready_in_pieces(const Workload& workload, const PieceLimits& limits);

}  // namespace bucketwise
