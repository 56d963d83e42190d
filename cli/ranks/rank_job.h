// Jobs of real ranks: where ranks meet, who starts them, the environment record, and failures.
//
// A command that starts its ranks (launch_job) starts itself again with the same arguments. The
// environment holds whatever differs from rank to rank or cannot be an argument.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/shell/option_values.h"
#include "cli/shell/progress.h"
#include "cli/shell/scenario_document.h"
#include "hw/backend/backend.h"
#include "hw/launch/launcher.h"
#include "hw/launch/launcher_report.h"
#include "hw/launch/rank_identity.h"
#include "hw/launch/shaped_network.h"
#include "hw/measure/rank_session.h"
#include "hw/record/measurement.h"
#include "sim/base/json.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// More processes than this are not started on one machine.
constexpr std::int64_t most_ranks_here = 250;

struct JobNetwork {
    std::chrono::milliseconds deadline{0};
    std::optional<BitsPerSecond> link_rate;
    std::string store;      // empty: one is made
    std::string interface;  // empty: loopback
};

struct NetworkOptions {
    std::optional<BitsPerSecond> link_rate;
    std::optional<std::chrono::milliseconds> deadline;
    std::string store;
    std::string interface;
};

// --link-rate, --deadline, --store and --interface.
std::vector<OptionText> network_rows(NetworkOptions& options, const std::string& deadline_text);

// `command` begins errors; `standard_deadline` holds without --deadline. Throws InputError and
// UsageError.
JobNetwork job_network(const NetworkOptions& options, const std::optional<RankIdentity>& identity,
                       const std::string& command, std::chrono::milliseconds standard_deadline);

// Whether one of our own commands started this rank.
bool is_own_rank(const std::optional<RankIdentity>& identity);

// The number of ranks: --ranks, at most `most`, or as many as another launcher started; empty:
// neither says. Throws InputError where both differ.
std::optional<std::int64_t> requested_ranks(const std::optional<std::int64_t>& typed,
                                            const std::optional<RankIdentity>& identity,
                                            std::int64_t most);

// The scenario in `file`, changed by options, for the ranks that --ranks or another launcher says,
// all on one machine or as that launcher placed them. Ranks of our own commands get it from their
// launcher, as a pipe can be read only once.
Json scenario_for_ranks(const ScenarioOptions& options, const std::optional<RankIdentity>& identity,
                        const std::string& file);

// Throws InputError for more ranks than are started on one machine.
void check_local_ranks(const Scenario& scenario, const std::string& file);

// Throws InputError for a device or a pipe: every rank reads the file, some of them twice.
void check_can_be_read_again(const std::string& file);

struct RankJob {
    std::vector<std::string> command;  // as typed: for the record, and to start ranks with
    int ranks = 1;
    const Backend* backend = nullptr;
    BackendRequest request = {};
    JobNetwork network = {};
    MeasuringOrder order = {};
    std::string document = {};  // for scenario_for_ranks(), as JSON; empty: they read none
    std::string label = {};     // of one of several, for people: "ring on 2 ranks"
};

// The transport of its messages, as every record names it.
Transport transport_of(const RankJob& job);

// --- the launcher's side ---

// Variables by which our launcher names the file for rank 0's results, and the number of the job.
constexpr const char* output_variable = "BUCKETWISE_OUTPUT";
constexpr const char* job_variable = "BUCKETWISE_JOB";

using Variables = std::vector<std::pair<std::string, std::string>>;

// Runs the job's ranks to their end, in a network of their own if the link has a rate. `line` shows
// rank 0's progress.
std::optional<LaunchFailure> launch_job(const RankJob& job, const Variables& variables,
                                        MeasureProgress& line);

// "rank 1 was killed by signal 9 (Killed)"
std::string text_of(const LaunchFailure& failure);

// --- the rank's side ---

// Runs `act` as a rank and returns the exit code. Errors go to our launcher, or else to standard
// error.
int run_rank(const RankIdentity& identity, const std::function<void(const LauncherReport&)>& act);

// Progress of a rank goes to our launcher, or else from rank 0 to the terminal.
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

// Collective. `world` names one of several jobs that the same ranks run one after another.
RankSession meet(const RankJob& job, const RankIdentity& identity, RankSession::Show show,
                 RankSession::Keep keep = {}, std::string_view world = "");

// Everything but the command and the scenario.
EnvironmentRecord environment_of(const RankJob& job, const RankIdentity& identity,
                                 const RankSession& session);

}  // namespace bucketwise
