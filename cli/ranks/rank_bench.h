// A bench on real ranks: rank 0's rows of one or more jobs arrive in the process that prints.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "cli/ranks/rank_job.h"

namespace bucketwise {

// Runs `measure`, which returns a list of rows, on every rank of each job in turn, and `print` with
// rank 0's environment and the rows of all jobs: in this process, if it launched the ranks, each
// job in processes of its own, or on rank 0 of another launcher. Returns the exit code. Throws
// std::runtime_error when a launched rank failed; the jobs before are printed.
int run_rank_bench(
    const std::vector<RankJob>& jobs, const std::optional<RankIdentity>& identity,
    const std::function<Json(const RankJob& job, RankSession& session)>& measure,
    const std::function<void(const EnvironmentRecord& environment, const Json& rows)>& print);

}  // namespace bucketwise
