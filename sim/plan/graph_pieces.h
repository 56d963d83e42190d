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
// new piece before an operation once the parameters of the one it is in take this many bytes.
struct PieceLimits {
    Bytes first = default_first_bucket;  // of the first piece that backward runs
    Bytes cap;                           // of all others: DDP's, of a list the largest

    // It asserts that the cap is no smaller than the first.
    [[nodiscard]] bool is_refused() const { return cap < first; }
    bool operator==(const PieceLimits&) const = default;
};

// How gradients become ready where a plan's cap changes it: instead of TimedOperation::ready_count
// and Workload::readiness.
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

// A piece ends with the operation that fills it, and all its gradients are ready then. An operation
// counts the parameters whose gradients it finishes, and TimedOperation::used_before. What needs no
// parameters at the beginning of the graph belongs to the last piece.
//
// Autograd's engine hands out a piece's gradients from a heap in which all are equal (they come
// before the next piece), so in an order of libstdc++'s making: what it puts there is first what
// the next piece needs, then the parameters in the order in which forward uses them. That holds for
// pieces that hand a single tensor to one another; branches can put it elsewhere.
GraphPieces ready_in_pieces(const Workload& workload, const PieceLimits& limits);

}  // namespace bucketwise
