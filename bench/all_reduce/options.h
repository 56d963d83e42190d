// What `bucketwise bench allreduce` was asked for, or its like of all-gathers and reduce-scatters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/all_reduce/simulation.h"
#include "bench/bench_options.h"
#include "cli/shell/command_help.h"
#include "hw/launch/rank_identity.h"
#include "sim/base/dtype.h"
#include "sim/base/names.h"
#include "sim/base/units.h"

namespace bucketwise {

enum class BenchFormat : std::uint8_t {
    text,
    csv,  // one row per ranks, size and algorithm
    json,
    nccl_tests  // as all_reduce_perf or its like prints it, a block per ranks and algorithm
};

template <>
inline constexpr auto names_of<BenchFormat> = names("text", "csv", "json", "nccl-tests");

// The request says all but who sums.
struct BenchAllReduceOptions : BenchOptions {
    CollectiveKind kind = CollectiveKind::all_reduce;
    bool measure = true;  // else nothing is started
    std::vector<AllReduceImplementation> algorithms;
    std::vector<std::int64_t> ranks;  // to measure; rising
    std::vector<Bytes> sizes;         // rising
    DType dtype = DType::float32;
    std::optional<std::int64_t> iterations;  // none: by size
    BenchFormat format = BenchFormat::text;
    std::string output;  // empty: records are not kept

    // For the process that prints; empty in ranks that it starts.
    std::optional<SimulationRequest> simulation = {};
    std::vector<std::int64_t> simulated_ranks = {};  // rising
    std::vector<PublishedAllReduce> published = {};
};

// `identity`: who this process is, if a launcher started it; its number of ranks then holds. Throws
// InputError and UsageError.
BenchAllReduceOptions bench_allreduce_options(CollectiveKind kind, const CommandLine& line,
                                              const std::optional<RankIdentity>& identity);

// As many bytes of `size` as are a part of whole elements for each rank, where the kind has parts.
Bytes whole_parts(const BenchAllReduceOptions& options, Bytes size, std::int64_t ranks);

}  // namespace bucketwise
