// A link fitted to the times of traced or logged collectives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "import/run/traced_run.h"
#include "sim/link/link.h"

namespace bucketwise {

// Among how many ranks collectives run.
struct LinkRanks {
    std::int64_t ranks = 1;   // of the run
    std::int64_t shards = 0;  // that share parameters; 0: nothing is sharded
};

// Fits a ring, NCCL's and Gloo's usual algorithm, to the median wire time of each size, per kind of
// collective. FSDP2 needs times of all-gathers and reduce-scatters; without all-reduces, an
// all-reduce costs as much per hop as an all-gather. Nothing where these times are missing. Sets
// ranks, messages and samples of the provenance. Throws InputError, which names `file`, for times
// that no link file can express.
std::optional<LinkParameters> link_through(const std::vector<TypicalCollective>& collectives,
                                           const LinkRanks& ranks, const std::string& file);

}  // namespace bucketwise
