// What every subcommand that runs real ranks has in common: where they meet, who starts them, what
// their file says of the machine, and how they fail.
//
// A command that starts its ranks itself (launch_job) starts itself again with the same arguments;
// what differs from rank to rank, or cannot be in the arguments, is in the environment.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/program_options.hpp>

#include "hw/backend/meeting_point.h"
#include "hw/launch/launcher.h"
#include "hw/launch/launcher_report.h"
#include "hw/launch/rank_identity.h"
#include "hw/launch/shaped_network.h"
#include "hw/rank/communicator.h"
#include "hw/record/measurement.h"

namespace bucketwise {

// A folder that only this user sees, removed at the end. Throws std::system_error.
class TemporaryFolder {
  public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    [[nodiscard]] std::string path() const { return path_.string(); }

  private:
    std::filesystem::path path_;
};

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

struct JobRequest {
    std::vector<std::string> arguments;  // of this program
    std::vector<std::pair<std::string, std::string>> variables;
    int ranks = 1;
    JobNetwork network;
};

// Runs `request.ranks` ranks to their end, in a network of their own if a rate is asked for.
// `on_progress` gets what rank 0 reports.
std::optional<LaunchFailure> launch_job(const JobRequest& request,
                                        const std::function<void(const std::string&)>& on_progress);

MeetingPoint meeting_point(const JobNetwork& network, const RankIdentity& identity);

// All that does not depend on what is measured.
EnvironmentRecord machine_record(const RankIdentity& identity, const JobNetwork& network);

// Runs `act` as a rank and returns the exit code. What it throws goes to the launcher or, where
// there is none of ours, to standard error.
int run_rank(const RankIdentity& identity, const std::function<void(const LauncherReport&)>& act);

}  // namespace bucketwise
