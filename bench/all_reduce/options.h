// The options of `bucketwise bench allreduce`, `allgather` and `reducescatter`, and the table that
// they print.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/all_reduce/simulation.h"
#include "bench/bench.h"
#include "hw/launch/rank_identity.h"
#include "sim/base/dtype.h"
#include "sim/base/names.h"
#include "sim/base/units.h"

namespace bucketwise {

enum class BenchFormat : std::uint8_t {
    text,
    csv,  // one row per ranks, size and algorithm
    json,
    nccl_tests  // the output of all_reduce_perf and its like, a block per ranks and algorithm
};

template <>
inline constexpr auto names_of<BenchFormat> = names("text", "csv", "json", "nccl-tests");

// The request leaves the implementation open.
struct AllReduceOptions : BenchOptions {
    CollectiveKind kind = CollectiveKind::all_reduce;
    std::vector<AllReduceImplementation> algorithms;  // to measure
    std::vector<std::int64_t> ranks;                  // to measure; rising
    std::vector<Bytes> sizes;                         // rising
    DType dtype = DType::float32;
    std::optional<std::int64_t> iterations;  // none: by size
    BenchFormat format = BenchFormat::text;
    std::string output;  // empty: records are not kept

    // For the process that prints; empty in ranks that it starts.
    std::optional<SimulationRequest> simulation = {};
    std::vector<std::int64_t> simulated_ranks = {};  // rising
    std::vector<PublishedAllReduce> published = {};
};

CommandHelp all_reduce_help(CollectiveKind kind);

// `identity`: this process as a rank, if a launcher started it; its number of ranks then holds.
// Throws InputError and UsageError.
AllReduceOptions all_reduce_options(CollectiveKind kind, const CommandLine& line,
                                    const std::optional<RankIdentity>& identity);

// The largest part of `size` that is whole elements for each rank, where the kind has parts.
Bytes whole_parts(const AllReduceOptions& options, Bytes size, std::int64_t ranks);

// The table of the measured records, beside the requested simulation and the published rows.
std::string all_reduce_report(const AllReduceOptions& options,
                              const std::vector<Measurement>& records);

// The same as nccl-tests prints it. `rows`: all measured.
std::string nccl_tests_report(const EnvironmentRecord* environment,
                              const std::vector<AllReduceRow>& rows);

// Bytes of the message per second; and the part of it that crosses each rank's link in a ring and
// in a direct exchange, 2(p-1)/p or half of that: nccl-tests' bus bandwidth. Precondition:
// measured.
double algorithm_gb_per_s(const AllReduceRow& row);
double bus_gb_per_s(const AllReduceRow& row);

}  // namespace bucketwise
