// This process's rank, and the number of ranks, when a launcher started it.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace bucketwise {

struct RankIdentity {
    int rank = 0;
    int ranks = 1;
    int local_rank = 0;    // among those of this host
    int local_ranks = 1;   // on this host
    std::string launcher;  // "bucketwise", "torchrun", "mpirun" or "srun"
    std::string job;       // the same on all ranks of a run; differs between runs as far as the
                           // launcher's variables allow; letters, digits, '.', '_' and '-' only
    bool operator==(const RankIdentity&) const = default;
};

// The value of an environment variable, if it is set.
using VariableLookup = std::function<std::optional<std::string>(const std::string& name)>;

// Reads the variables of the first launcher, in this order, that has set all four numbers:
// ours and torchrun (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE), Open MPI, MPICH, Slurm. For
// mpirun within a Slurm job sets its own beside Slurm's, and scripts export RANK or WORLD_SIZE for
// programs that know nothing else.
//
// Nothing if no launcher has: also in a batch script or interactive shell of Slurm, and in a step
// of one task, which are no ranks. Throws InputError (file: "environment", pointer: the variable)
// when numbers are no numbers or contradict each other, and when no launcher's are complete but
// RANK, WORLD_SIZE or their like are set for more than one rank.
std::optional<RankIdentity> rank_from_environment(const VariableLookup& lookup);

// A variable of this process, if it is set.
std::optional<std::string> environment_variable(const std::string& name);

}  // namespace bucketwise
