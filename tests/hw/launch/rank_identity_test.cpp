#include "hw/launch/rank_identity.h"

#include <cstdlib>
#include <map>

#include "sim/base/error.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<RankIdentity> rank_from(const Variables& variables) {
    return rank_from_environment([&](const std::string& name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
}

// Later entries win.
Variables with(Variables variables, const Variables& more) {
    for (const auto& [name, value] : more) {
        variables[name] = value;
    }
    return variables;
}

Variables without(Variables variables, const std::string& name) {
    variables.erase(name);
    return variables;
}

// The variable at fault, and nothing else in the place.
std::string variable_at_fault(const Variables& variables) {
    try {
        rank_from(variables);
    } catch (const InputError& error) {
        CHECK(error.file() == "environment");
        return error.pointer();
    }
    return "none";
}

// Rank 3 of 4 on two hosts of two.
const Variables torchrun{{"RANK", "3"},
                         {"WORLD_SIZE", "4"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "2"},
                         {"TORCHELASTIC_RUN_ID", "none"},
                         {"TORCHELASTIC_RESTART_COUNT", "1"},
                         {"MASTER_ADDR", "10.0.0.1"},
                         {"MASTER_PORT", "29500"}};

const Variables open_mpi{{"OMPI_COMM_WORLD_RANK", "5"},
                         {"OMPI_COMM_WORLD_SIZE", "8"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                         {"PMIX_NAMESPACE", "prterun-node1-4242@1"}};

const Variables mpich{
    {"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}};

// The last of 7 tasks on 4 nodes: 2 + 2 + 2 + 1.
const Variables slurm{{"SLURM_JOB_ID", "77"},        {"SLURM_STEP_ID", "2"},
                      {"SLURM_PROCID", "6"},         {"SLURM_NTASKS", "7"},
                      {"SLURM_STEP_NUM_TASKS", "7"}, {"SLURM_LOCALID", "0"},
                      {"SLURM_NODEID", "3"},         {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}};

TEST_CASE("a process that nobody launched is no rank") {
    CHECK_FALSE(rank_from({}));
    CHECK_FALSE(rank_from({{"MASTER_ADDR", "localhost"}, {"PATH", "/bin"}, {"LOCAL_RANK", "0"}}));
}

TEST_CASE("torchrun's variables are read") {
    CHECK(rank_from(torchrun) == RankIdentity{3, 4, 1, 2, "torchrun", "none.1.29500"});
}

TEST_CASE("our own launcher's variables are torchrun's, and name the job") {
    CHECK(rank_from(with(torchrun, {{"BUCKETWISE_LAUNCHER", "123-456"}})) ==
          RankIdentity{3, 4, 1, 2, "bucketwise", "123-456"});
}

TEST_CASE("Open MPI's variables are read, and the job can be part of a file's name") {
    CHECK(rank_from(open_mpi) == RankIdentity{5, 8, 1, 4, "mpirun", "prterun-node1-4242-1"});
    const Variables older =
        with(without(open_mpi, "PMIX_NAMESPACE"), {{"OMPI_MCA_ess_base_jobid", "9911"}});
    CHECK(rank_from(older)->job == "9911");
}

TEST_CASE("MPICH's variables are read") {
    CHECK(rank_from(mpich) == RankIdentity{2, 3, 0, 1, "mpirun", "mpirun"});
}

TEST_CASE("Slurm's variables are read, the number of local ranks from the node's place in a list") {
    CHECK(rank_from(slurm) == RankIdentity{6, 7, 0, 1, "srun", "77.2"});
    CHECK(rank_from(with(slurm,
                         {{"SLURM_PROCID", "5"}, {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "2"}})) ==
          RankIdentity{5, 7, 1, 2, "srun", "77.2"});
    CHECK(rank_from(without(slurm, "SLURM_STEP_NUM_TASKS"))->ranks == 7);
}

TEST_CASE("a step's own number of tasks counts, not the allocation's") {
    CHECK(rank_from(with(slurm, {{"SLURM_NTASKS", "64"}}))->ranks == 7);
}

TEST_CASE("a batch script of Slurm is no rank, though it has a SLURM_PROCID") {
    const Variables script{{"SLURM_JOB_ID", "77"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"},
                           {"SLURM_NODEID", "0"},  {"SLURM_NTASKS", "8"}, {"SLURM_NPROCS", "8"}};
    CHECK_FALSE(rank_from(script));
    CHECK_FALSE(rank_from(with(script, {{"SLURM_STEP_ID", "4294967291"}})));  // 0xfffffffb, batch
    CHECK_FALSE(rank_from(with(script, {{"SLURM_STEP_ID", "4294967290"}})));  // interactive
}

TEST_CASE("a shell that salloc starts as a step of one task is no rank") {
    CHECK_FALSE(rank_from(with(slurm, {{"SLURM_STEP_NUM_TASKS", "1"},
                                       {"SLURM_NTASKS", "8"},
                                       {"SLURM_PROCID", "0"},
                                       {"SLURM_STEP_TASKS_PER_NODE", "1"},
                                       {"PMI_RANK", "0"},
                                       {"PMI_SIZE", "1"}})));
}

TEST_CASE("the inner launcher counts where several have set their variables") {
    CHECK(rank_from(with(slurm, open_mpi))->rank == 5);
    CHECK(rank_from(with(slurm, mpich))->rank == 2);
    CHECK(rank_from(with(mpich, open_mpi))->rank == 5);
    CHECK(rank_from(with(with(slurm, open_mpi), torchrun))->launcher == "torchrun");
}

TEST_CASE("an incomplete set gives way to a complete one") {
    // A script that exports two for its own sake; srun with PMI-2.
    CHECK(rank_from(with(slurm, {{"RANK", "6"}, {"WORLD_SIZE", "7"}}))->launcher == "srun");
    CHECK(rank_from(with(slurm, {{"PMI_RANK", "6"}, {"PMI_SIZE", "7"}}))->launcher == "srun");
}

TEST_CASE("an incomplete set alone is an error that names what is missing") {
    CHECK(variable_at_fault({{"RANK", "0"}}) == "WORLD_SIZE");
    CHECK(variable_at_fault({{"WORLD_SIZE", "2"}}) == "RANK");
    CHECK(variable_at_fault(without(torchrun, "LOCAL_RANK")) == "LOCAL_RANK");
    CHECK(variable_at_fault(without(torchrun, "LOCAL_WORLD_SIZE")) == "LOCAL_WORLD_SIZE");
    CHECK(variable_at_fault(without(open_mpi, "OMPI_COMM_WORLD_SIZE")) == "OMPI_COMM_WORLD_SIZE");
    CHECK(variable_at_fault(without(mpich, "MPI_LOCALRANKID")) == "MPI_LOCALRANKID");
    for (const std::string name : {"SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE"}) {
        CHECK(variable_at_fault(without(slurm, name)) == name);
    }
    CHECK_THROWS_WITH(rank_from({{"RANK", "0"}}),
                      "environment: WORLD_SIZE: expected a number, as RANK is set, got nothing");
}

TEST_CASE("what is no number is an error") {
    for (const std::string bad : {"", " 1", "1 ", "-1", "+1", "0x1", "1.0", "one", "99999999999"}) {
        INFO(bad);
        CHECK(variable_at_fault(with(torchrun, {{"RANK", bad}})) == "RANK");
        CHECK(variable_at_fault(with(open_mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", bad}})) ==
              "OMPI_COMM_WORLD_LOCAL_SIZE");
        CHECK(variable_at_fault(with(slurm, {{"SLURM_NODEID", bad}})) == "SLURM_NODEID");
    }
}

TEST_CASE("numbers that contradict each other are an error") {
    CHECK(variable_at_fault(with(torchrun, {{"RANK", "4"}})) == "RANK");
    CHECK(variable_at_fault(with(torchrun, {{"WORLD_SIZE", "0"}})) == "RANK");
    CHECK(variable_at_fault(with(torchrun, {{"LOCAL_RANK", "2"}})) == "LOCAL_RANK");
    CHECK(variable_at_fault(with(torchrun, {{"LOCAL_WORLD_SIZE", "5"}})) == "LOCAL_WORLD_SIZE");
    CHECK(variable_at_fault(with(slurm, {{"SLURM_NODEID", "4"}})) == "SLURM_NODEID");
    CHECK(variable_at_fault(with(slurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(x4)"}})) ==
          "SLURM_STEP_TASKS_PER_NODE");  // 8 tasks, not 7
    CHECK(variable_at_fault(with(slurm, {{"SLURM_LOCALID", "1"}})) == "SLURM_LOCALID");
}

TEST_CASE("a damaged list of tasks per node is an error") {
    for (const std::string bad :
         {"", ",", "2(x3),", "2(x3)1", "2(x),1", "2(x3", "2x3,1", "(x3)", "2(x-3)", "2 (x3),1",
          "2000000000(x2000000000)", "1(x99999999999)"}) {
        INFO(bad);
        CHECK(variable_at_fault(with(slurm, {{"SLURM_STEP_TASKS_PER_NODE", bad}})) ==
              "SLURM_STEP_TASKS_PER_NODE");
    }
}

TEST_CASE("a variable of this process is found if it is set, also when empty") {
    ::setenv("BUCKETWISE_TEST_VARIABLE", "", 1);  // NOLINT(concurrency-mt-unsafe)
    CHECK(environment_variable("BUCKETWISE_TEST_VARIABLE") == "");
    ::unsetenv("BUCKETWISE_TEST_VARIABLE");  // NOLINT(concurrency-mt-unsafe)
    CHECK_FALSE(environment_variable("BUCKETWISE_TEST_VARIABLE"));
}

}  // namespace
}  // namespace bucketwise
