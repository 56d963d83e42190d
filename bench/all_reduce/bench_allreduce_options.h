// What `bucketwise bench allreduce` was asked for.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/all_reduce/bench_allreduce_report.h"
#include "bench/all_reduce/bench_allreduce_simulation.h"
#include "cli/ranks/rank_job.h"
#include "hw/backend/backend.h"
#include "hw/launch/rank_identity.h"
#include "sim/base/dtype.h"
#include "sim/base/units.h"

namespace bucketwise {

struct BenchAllReduceOptions {
    const Backend* backend = nullptr;
    BackendRequest request;            // but who sums
    std::vector<std::string> command;  // as typed, for the record
    bool measure = true;               // else nothing is started
    std::vector<AllReduceImplementation> algorithms;
    std::vector<int> ranks;    // to measure; rising
    std::vector<Bytes> sizes;  // rising
    DType dtype = DType::float32;
    std::int64_t rounds = 0;
    std::optional<std::int64_t> iterations;  // none: by size
    std::uint64_t seed = 0;
    JobNetwork network;
    BenchFormat format = BenchFormat::text;
    std::string output;  // empty: records are not kept

    // Of the process that prints; empty in ranks that it starts.
    std::optional<SimulationRequest> simulation = {};
    std::vector<std::int64_t> simulated_ranks = {};  // rising
    std::vector<PublishedAllReduce> published = {};
};

// Nothing when help was asked for and printed. `identity`: who this process is, if a launcher
// started it; its number of ranks then holds. Throws InputError and UsageError.
std::optional<BenchAllReduceOptions> bench_allreduce_options(
    const std::vector<std::string>& arguments, const std::optional<RankIdentity>& identity);

}  // namespace bucketwise
