#include "hw/launch/rank_identity.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "sim/base/error.h"

namespace bucketwise {
namespace {

[[noreturn]] void fail(const std::string& variable, const std::string& expected,
                       const std::string& got) {
    throw InputError("environment", variable, expected, got);
}

std::string in_quotes(const std::string& text) {
    constexpr std::size_t longest = 60;
    return "'" + (text.size() > longest ? text.substr(0, longest) + "..." : text) + "'";
}

// The whole of `text` as a number that is not negative.
template <typename Number>
std::optional<Number> number_in(std::string_view text) {
    Number number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    return whole && number >= 0 ? std::optional(number) : std::nullopt;
}

struct Environment {
    const VariableLookup& text;

    [[nodiscard]] bool has(const std::string& name) const { return text(name).has_value(); }

    [[nodiscard]] int number(const std::string& name) const {
        const std::string value = text(name).value_or("");
        const std::optional<int> number = number_in<int>(value);
        if (!number) {
            fail(name, "an integer of at least 0", in_quotes(value));
        }
        return *number;
    }

    // The values of those that are set, joined so that they can be part of a file's name.
    [[nodiscard]] std::string job(const std::vector<std::string>& names,
                                  const std::string& otherwise) const {
        std::string job;
        for (const std::string& name : names) {
            const std::string value = text(name).value_or("");
            job += job.empty() || value.empty() ? value : "." + value;
        }
        for (char& c : job) {
            const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                               (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
            c = plain ? c : '-';
        }
        return job.empty() ? otherwise : job;
    }
};

// One launcher's names of the four numbers.
struct Names {
    std::string rank;
    std::string ranks;
    std::string local_rank;
    std::string local_ranks;
};

struct Launcher {
    std::string name;
    Names names;
    std::string marked_by;         // a variable that it sets too; empty: none tells it apart
    std::vector<std::string> job;  // variables whose values tell one run from the next
};

// In the order of asking. The run's id of torchrun is "none" unless the user names one; a restart
// is another run. Hydra, MPICH's, sets nothing that tells one run from the next and is the same on
// all ranks.
const std::vector<Launcher>& launchers() {
    static const Names torchrun{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
    static const Names open_mpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
    static const Names mpich{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
    static const std::vector<Launcher> all{
        {"bucketwise", torchrun, "BUCKETWISE_LAUNCHER", {"BUCKETWISE_LAUNCHER"}},
        {"torchrun",
         torchrun,
         "",
         {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"}},
        {"mpirun", open_mpi, "PMIX_NAMESPACE", {"PMIX_NAMESPACE"}},
        {"mpirun", open_mpi, "", {"OMPI_MCA_ess_base_jobid"}},
        {"mpirun", mpich, "", {}}};
    return all;
}

void check_below(int value, const std::string& name, int limit, const std::string& limit_name) {
    if (value >= limit) {
        fail(name, fmt::format("less than {}, {}", limit_name, limit), std::to_string(value));
    }
}

RankIdentity checked(RankIdentity identity, const Names& names) {
    check_below(identity.rank, names.rank, identity.ranks, names.ranks);
    check_below(identity.local_rank, names.local_rank, identity.local_ranks, names.local_ranks);
    if (identity.local_ranks > identity.ranks) {
        fail(names.local_ranks, fmt::format("at most {}, {}", names.ranks, identity.ranks),
             std::to_string(identity.local_ranks));
    }
    return identity;
}

std::string first_missing(const Environment& environment, const Names& names) {
    for (const std::string& name : {names.rank, names.ranks, names.local_rank, names.local_ranks}) {
        if (!environment.has(name)) {
            return name;
        }
    }
    return "";
}

// A launcher that names all four numbers, each in a variable of its own.
std::optional<RankIdentity> read(const Environment& environment, const Launcher& launcher) {
    const Names& names = launcher.names;
    if (!first_missing(environment, names).empty() ||
        !(launcher.marked_by.empty() || environment.has(launcher.marked_by))) {
        return std::nullopt;
    }
    return checked({.rank = environment.number(names.rank),
                    .ranks = environment.number(names.ranks),
                    .local_rank = environment.number(names.local_rank),
                    .local_ranks = environment.number(names.local_ranks),
                    .launcher = launcher.name,
                    .job = environment.job(launcher.job, launcher.name)},
                   names);
}

struct TasksOnNodes {
    int tasks;  // on each of them
    int nodes;
};

// Tasks on each node of a step: "2(x3),1" is 2, 2, 2, 1. `name`: the variable that says so.
std::vector<TasksOnNodes> tasks_per_node(const std::string& text, const std::string& name) {
    // No cluster has more; so the sum of what an environment can hold cannot overflow.
    constexpr int most = 1'000'000;
    std::vector<TasksOnNodes> runs;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t comma = std::min(text.find(',', begin), text.size());
        std::string_view tasks = std::string_view(text).substr(begin, comma - begin);
        std::string_view nodes = "1";
        const std::size_t open = tasks.find("(x");
        if (open != std::string_view::npos && tasks.ends_with(')')) {
            nodes = tasks.substr(open + 2, tasks.size() - open - 3);
            tasks = tasks.substr(0, open);
        }
        const std::optional<int> task_count = number_in<int>(tasks);
        const std::optional<int> node_count = number_in<int>(nodes);
        if (!task_count || !node_count || *task_count > most || *node_count > most) {
            fail(name, "tasks per node such as '2(x3),1'", in_quotes(text));
        }
        runs.push_back({*task_count, *node_count});
        begin = comma + 1;
    }
    return runs;
}

// Slurm gives the script of sbatch and the shell of salloc a SLURM_PROCID too. A rank is only what
// srun started in a step of several tasks. The steps that Slurm makes for itself (batch script,
// interactive shell, ...) have numbers from 0xfffffff0 on, or none in the environment; the shell
// that older salloc starts through srun is a step of one task.
bool is_task_of_slurm_step(const Environment& environment) {
    constexpr std::int64_t first_special_step = 0xfffffff0;
    const std::optional<std::int64_t> step =
        number_in<std::int64_t>(environment.text("SLURM_STEP_ID").value_or(""));
    return step && *step < first_special_step && environment.has("SLURM_PROCID");
}

std::optional<RankIdentity> read_slurm(const Environment& environment) {
    if (!is_task_of_slurm_step(environment)) {
        return std::nullopt;
    }
    // SLURM_NTASKS may still be that of the allocation (srun --preserve-env).
    const std::string ranks_name =
        environment.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    const std::string per_node_name = "SLURM_STEP_TASKS_PER_NODE";
    RankIdentity identity;
    identity.ranks = environment.number(ranks_name);
    if (identity.ranks == 1) {
        return std::nullopt;
    }
    identity.rank = environment.number("SLURM_PROCID");
    identity.local_rank = environment.number("SLURM_LOCALID");
    const std::string per_node = environment.text(per_node_name).value_or("");
    const std::vector<TasksOnNodes> runs = tasks_per_node(per_node, per_node_name);
    std::int64_t total = 0;
    for (const TasksOnNodes& run : runs) {
        total += std::int64_t{run.tasks} * run.nodes;
    }
    if (total != identity.ranks) {
        fail(per_node_name, fmt::format("as many tasks as {}, {}", ranks_name, identity.ranks),
             in_quotes(per_node));
    }
    const int node = environment.number("SLURM_NODEID");
    std::int64_t nodes = 0;
    const auto of_node = std::find_if(runs.begin(), runs.end(), [&](const TasksOnNodes& run) {
        nodes += run.nodes;
        return node < nodes;
    });
    if (of_node == runs.end()) {
        fail("SLURM_NODEID", "a node of " + per_node_name, std::to_string(node));
    }
    identity.local_ranks = of_node->tasks;
    identity.launcher = "srun";
    identity.job = environment.job({"SLURM_JOB_ID", "SLURM_STEP_ID"}, "srun");
    return checked(identity, {"SLURM_PROCID", ranks_name, "SLURM_LOCALID", per_node_name});
}

// Nobody has set all that a launcher sets, but somebody a part: to go on alone would start as many
// jobs of one rank as there are processes. Where there is but one, it may go on: srun with PMI sets
// PMI_RANK and PMI_SIZE alone.
void check_nothing_began(const Environment& environment) {
    for (const Launcher& launcher : launchers()) {
        const Names& names = launcher.names;
        const bool is_one = environment.text(names.ranks) == "1";
        if (!is_one && (environment.has(names.rank) || environment.has(names.ranks))) {
            const bool has_rank = environment.has(names.rank);
            fail(first_missing(environment, names),
                 fmt::format("a number, as {} is set", has_rank ? names.rank : names.ranks),
                 "nothing");
        }
    }
}

}  // namespace

std::optional<RankIdentity> rank_from_environment(const VariableLookup& lookup) {
    const Environment environment{lookup};
    for (const Launcher& launcher : launchers()) {
        if (std::optional<RankIdentity> identity = read(environment, launcher)) {
            return identity;
        }
    }
    if (std::optional<RankIdentity> identity = read_slurm(environment)) {
        return identity;
    }
    check_nothing_began(environment);
    return std::nullopt;
}

std::optional<std::string> environment_variable(const std::string& name) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody here changes the environment
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace bucketwise
