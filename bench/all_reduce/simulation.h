// The simulation of collectives without any rank: time from a link; of all-reduces memory and
// rounding from the algorithm's working.
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
    std::string name;  // by its name in --algorithms
    LinkParameters link;
    bool over_gloo = false;  // memory and rounding are known
};

struct SimulationRequest {
    CollectiveKind kind = CollectiveKind::all_reduce;
    std::vector<SimulatedAlgorithm> algorithms;
    // Memory of a rank without messages and their sums.
    std::optional<Bytes> process_memory = {};
};

// The links of --link, one for all `algorithms` or one for each. With one for all, "ring", "direct"
// and the like replace its algorithm; "library" leaves it. Throws InputError.
std::vector<SimulatedAlgorithm> read_simulated_algorithms(
    const std::string& links, const std::vector<std::string>& algorithms);

// Empty where the request lacks the algorithm. The time is the engine's, of one collective alone.
std::optional<SimulatedAllReduce> simulate_all_reduce(const SimulationRequest& request,
                                                      const AllReducePlace& place, DType dtype);

// A sentence per range of sizes: the number of ranks, up to 4096, from which on the other one of
// ring and direct is the faster than on two.
std::vector<std::string> crossovers(const SimulationRequest& request,
                                    const std::vector<Bytes>& sizes);

}  // namespace bucketwise
