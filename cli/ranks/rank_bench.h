// A bench on real ranks: rank 0's measurements become values in the process that prints.
#pragma once

#include <functional>
#include <optional>

#include <nlohmann/json.hpp>

#include "cli/ranks/rank_job.h"

namespace bucketwise {

// Runs `measure` on every rank, and `print` with rank 0's environment and result: in this process,
// if it launched the ranks, or on rank 0 of another launcher. Returns the exit code. Throws
// std::runtime_error when a launched rank failed.
int run_rank_bench(const RankJob& job, const std::optional<RankIdentity>& identity,
                   const std::function<Json(RankSession&)>& measure,
                   const std::function<void(const EnvironmentRecord&, const Json&)>& print);

}  // namespace bucketwise
