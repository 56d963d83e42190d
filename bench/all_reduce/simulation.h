// What `bucketwise bench allreduce --simulate`, or its like of another kind, says without any rank:
// time from a link; of all-reduces memory and
// rounding from how the algorithm works.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/all_reduce/rows.h"
#include "sim/base/dtype.h"
#include "sim/base/units.h"
#include "sim/link/link.h"

namespace bucketwise {

struct SimulatedAlgorithm {
    std::string name;  // as --algorithms names it
    LinkParameters link;
    bool over_gloo = false;  // of which memory and rounding are known
};

struct SimulationRequest {
    CollectiveKind kind = CollectiveKind::all_reduce;
    std::vector<SimulatedAlgorithm> algorithms;
    std::optional<Bytes> process_memory = {};  // of a rank, but for messages and their summing
};

// The links that --link names, one for all `algorithms` or one for each. With one for all, "ring",
// "direct" and the like replace its algorithm; "library" leaves it. Throws InputError.
std::vector<SimulatedAlgorithm> read_simulated_algorithms(
    const std::string& links, const std::vector<std::string>& algorithms);

// Nothing where the algorithm is not one of those requested. The time is the engine's, of one
// collective with nothing beside it.
std::optional<SimulatedAllReduce> simulate_all_reduce(const SimulationRequest& request,
                                                      const AllReducePlace& place, DType dtype);

// A sentence per size: from how many ranks on, up to 4096, the other one of ring and direct is the
// faster than on two.
std::vector<std::string> crossovers(const SimulationRequest& request,
                                    const std::vector<Bytes>& sizes);

}  // namespace bucketwise
