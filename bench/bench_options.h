// What the benches on real ranks are asked alike, described and read once; each bench adds its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/program_options.hpp>

#include "cli/ranks/rank_job.h"
#include "hw/backend/backend.h"

namespace bucketwise {

struct BenchOptions {
    std::vector<std::string> command;  // as typed, for the record
    const Backend* backend = nullptr;  // null: nothing is measured
    BackendRequest request;
    JobNetwork network;
    std::int64_t rounds = 0;
    std::uint64_t seed = 0;
    std::string document;  // the scenario, as RankJob has it
};

// "1 rank", "2 ranks"
std::string text_of_ranks(std::int64_t ranks);

// How long a rank waits for others unless --deadline says otherwise; what --help says of it.
constexpr std::chrono::milliseconds standard_deadline{60'000};
inline const std::string deadline_text =
    "seconds that a rank may be silent, or a collective take, before the run fails; default: 60";

// Ranks are measured unless they are only simulated: --simulate without a --backend.
bool is_measured(const boost::program_options::variables_map& values);

std::vector<std::string> bench_command(std::string_view name,
                                       const std::vector<std::string>& arguments);

// Reads --backend, what is asked of it and how ranks meet, for bench `name` on real ranks. Throws
// InputError for what the backend cannot do.
void read_job(std::string_view name, const boost::program_options::variables_map& values,
              const std::optional<RankIdentity>& identity, BenchOptions& options);

// How so many ranks carry it out.
RankJob job_of(const BenchOptions& options, std::int64_t ranks);

}  // namespace bucketwise
