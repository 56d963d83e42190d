// What every subcommand that runs real ranks has in common: where they meet, who starts them, what
// their file says of the machine, and how they fail.
//
// A command that starts its ranks itself (launch_job) starts itself again with the same arguments;
// what differs from rank to rank, or cannot be in the arguments, is in the environment.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/program_options.hpp>

#include "cli/shell/progress.h"
#include "hw/backend/backend.h"
#include "hw/launch/launcher.h"
#include "hw/launch/launcher_report.h"
#include "hw/launch/rank_identity.h"
#include "hw/launch/shaped_network.h"
#include "hw/measure/rank_session.h"
#include "hw/record/measurement.h"
#include "sim/base/json.h"

namespace bucketwise {

// More processes than this are not started on one machine.
constexpr std::int64_t most_ranks_here = 250;

struct JobNetwork {
    std::chrono::milliseconds deadline{0};
    std::optional<BitsPerSecond> link_rate;
    std::string store;      // empty: one is made
    std::string interface;  // empty: loopback
};

// --link-rate, --deadline, --store and --interface.
void add_network_options(boost::program_options::options_description& options,
                         const std::string& deadline_text);

// `command` begins messages; `standard_deadline` holds where --deadline is not given. Throws
// InputError and UsageError.
JobNetwork job_network(const boost::program_options::variables_map& values,
                       const std::optional<RankIdentity>& identity, const std::string& command,
                       std::chrono::milliseconds standard_deadline);

// Did one of our own commands start this rank?
bool is_own_rank(const std::optional<RankIdentity>& identity);

// As many ranks as --ranks says, up to `most`, or as a launcher of somebody else's has started;
// none: neither. Throws InputError where both differ.
std::optional<std::int64_t> requested_ranks(const boost::program_options::variables_map& values,
                                            const std::optional<RankIdentity>& identity,
                                            std::int64_t most);

// The scenario in `file`, changed as options say (read_scenario_document()). Ranks that one of our
// own commands started have it from their launcher, which has read it: a pipe can be read once.
Json scenario_for_ranks(const boost::program_options::variables_map& values,
                        const std::optional<RankIdentity>& identity, const std::string& file);

// Throws InputError for a device or a pipe: every rank reads the file, and some of them twice.
void check_can_be_read_again(const std::string& file);

// What every command that measures is asked for.
struct RankJob {
    std::vector<std::string> command;  // as typed: for the record, and what ranks are started with
    int ranks = 1;
    const Backend* backend = nullptr;
    BackendRequest request = {};
    JobNetwork network = {};
    MeasuringOrder order = {};
    std::string document = {};  // for scenario_for_ranks(), as JSON; empty: they read none
};

// What carries its messages, as every record names it.
Transport transport_of(const RankJob& job);

// --- the launcher's side ---

// How our launcher tells its ranks, beside where they meet, the file in which rank 0 puts what was
// measured, and which all-reduce is theirs.
constexpr const char* output_variable = "BUCKETWISE_OUTPUT";
constexpr const char* algorithm_variable = "BUCKETWISE_ALGORITHM";

using Variables = std::vector<std::pair<std::string, std::string>>;

// Runs the job's ranks to their end, in a network of their own if a rate is asked for. `line` shows
// what rank 0 reports.
std::optional<LaunchFailure> launch_job(const RankJob& job, const Variables& variables,
                                        MeasureProgress& line);

// "rank 1 was killed by signal 9 (Killed)"
std::string text_of(const LaunchFailure& failure);

// --- the rank's side ---

// Runs `act` as a rank and returns the exit code. What it throws goes to the launcher or, where
// there is none of ours, to standard error.
int run_rank(const RankIdentity& identity, const std::function<void(const LauncherReport&)>& act);

// What a rank shows goes to our launcher or, where there is none, from rank 0 to the terminal.
class ProgressReporter {
  public:
    // Both are kept by reference.
    ProgressReporter(const LauncherReport& report, const RankIdentity& identity)
        : report_(report), identity_(identity) {}
    void operator()(const std::string& text);

  private:
    const LauncherReport& report_;
    const RankIdentity& identity_;
    MeasureProgress line_;
};

// Collective. `world` tells jobs apart that the same ranks run one after another.
RankSession meet(const RankJob& job, const RankIdentity& identity, RankSession::Show show,
                 RankSession::Keep keep = {}, std::string_view world = "");

// All but the command and what belongs to a scenario.
EnvironmentRecord environment_of(const RankJob& job, const RankIdentity& identity,
                                 const RankSession& session);

}  // namespace bucketwise
