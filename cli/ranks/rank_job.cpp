#include "cli/ranks/rank_job.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/ranks/temporary_folder.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/scenario_document.h"
#include "cli/shell/version.h"
#include "hw/nccl/nccl_backend.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/scenario/document_edit.h"
#include "sim/text/system_reason.h"

namespace bucketwise {

// Variables by which the launcher tells its ranks where to meet, on which interface to listen, and
// the file with the scenario.
constexpr const char* store_variable = "BUCKETWISE_STORE";
constexpr const char* interface_variable = "BUCKETWISE_INTERFACE";
constexpr const char* scenario_variable = "BUCKETWISE_SCENARIO";

namespace fs = std::filesystem;

// --- options ---

namespace {

std::chrono::milliseconds read_deadline(const std::string& text, const std::string& option) {
    const std::optional<double> seconds = number_in(text);
    if (!seconds || !(*seconds >= 0.1 && *seconds <= 86400)) {
        throw InputError(option, "", "0.1 to 86400 seconds", text);
    }
    return std::chrono::milliseconds(std::llround(*seconds * 1000));
}

void check_placement(const JobNetwork& network, const std::optional<RankIdentity>& identity,
                     const std::string& command) {
    if (!identity) {
        if (!network.store.empty() || !network.interface.empty()) {
            throw UsageError{command +
                             ": --store and --interface are for ranks that torchrun, mpirun or "
                             "srun started"};
        }
        return;
    }
    if (network.link_rate) {
        throw UsageError{fmt::format(
            "--link-rate: expected ranks that bucketwise starts itself, got one that {} started",
            identity->launcher)};
    }
    if (network.store.empty()) {
        throw UsageError{fmt::format(
            "{}: expected --store, where the {} ranks that {} started can meet, got none", command,
            identity->ranks, identity->launcher)};
    }
    if (network.interface.empty() && identity->local_ranks < identity->ranks) {
        throw UsageError{command +
                         ": expected --interface, as the ranks are on several machines, got none"};
    }
}

}  // namespace

std::vector<OptionText> network_rows(NetworkOptions& options, const std::string& deadline_text) {
    return {{"link-rate",
             "give each rank a network of its own with a link of, say, 1gbit (Linux)",
             {options.link_rate, parse_rate}},
            {"deadline", deadline_text, {options.deadline, read_deadline}},
            {"store",
             "where ranks of another launcher meet: a folder that all see, or redis://HOST:PORT",
             options.store},
            {"interface", "network interface of ranks of another launcher; default: loopback",
             options.interface}};
}

JobNetwork job_network(const NetworkOptions& options, const std::optional<RankIdentity>& identity,
                       const std::string& command, std::chrono::milliseconds standard_deadline) {
    JobNetwork network{.deadline = options.deadline.value_or(standard_deadline),
                       .link_rate = options.link_rate,
                       .store = options.store,
                       .interface = options.interface};
    if (is_own_rank(identity)) {
        network.store = environment_variable(store_variable).value_or("");
        network.interface = environment_variable(interface_variable).value_or("");
    } else {
        check_placement(network, identity, command);
    }
    return network;
}

bool is_own_rank(const std::optional<RankIdentity>& identity) {
    return identity && identity->launcher == "bucketwise";
}

std::optional<std::int64_t> requested_ranks(const std::optional<std::int64_t>& typed,
                                            const std::optional<RankIdentity>& identity,
                                            std::int64_t most) {
    if (!typed) {
        const bool foreign = identity && !is_own_rank(identity);
        return foreign ? std::optional<std::int64_t>(identity->ranks) : std::nullopt;
    }
    if (!identity) {
        return WholeNumbers{1, most}(std::to_string(*typed), "--ranks");
    }
    if (*typed != identity->ranks) {
        throw InputError(
            "--ranks", "",
            fmt::format("as many as {} started, {}", identity->launcher, identity->ranks),
            fmt::format("\"{}\"", *typed));
    }
    return typed;
}

Json scenario_for_ranks(const ScenarioOptions& options, const std::optional<RankIdentity>& identity,
                        const std::string& file) {
    const auto handed_over = environment_variable(scenario_variable);
    if (is_own_rank(identity) && handed_over) {
        return parse_json(read_text_file(*handed_over), file);
    }
    if (identity) {
        check_can_be_read_again(file);
        check_can_be_read_again(options.link.value_or(""));
    }
    Json document = read_scenario_document(options, file);
    if (const auto ranks = requested_ranks(options.ranks, identity, most_ranks_here)) {
        set_ranks(document, *ranks, identity ? identity->local_ranks : *ranks, "--ranks");
    }
    return document;
}

void check_local_ranks(const Scenario& scenario, const std::string& file) {
    if (scenario.group.ranks > most_ranks_here) {
        throw InputError(
            file, "/cluster/ranks",
            fmt::format("at most {} ranks on one machine (--ranks says how many)", most_ranks_here),
            std::to_string(scenario.group.ranks));
    }
}

void check_can_be_read_again(const std::string& file) {
    std::error_code ignored;
    const fs::file_status status = fs::status(file, ignored);
    if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status)) {
        throw InputError(file, "", "a file, which every rank reads", "a device or a pipe");
    }
}

Transport transport_of(const RankJob& job) {
    return job.backend->transport(job.request, job.ranks);
}

// --- the launcher's side ---

std::optional<LaunchFailure> launch_job(const RankJob& job, const Variables& variables,
                                        MeasureProgress& line) {
    const TemporaryFolder folder;
    const std::string store = folder.path() + "/store";
    std::error_code error;
    if (!fs::create_directory(store, error)) {
        throw std::runtime_error(
            fmt::format("{}: cannot be made: {}", store, system_reason(error.value())));
    }
    LaunchRequest launch;
    launch.command = job.command;
    launch.command.front() = fs::read_symlink("/proc/self/exe").string();
    launch.variables = variables;
    launch.variables.emplace_back(store_variable, store);
    if (!job.document.empty()) {
        const std::string file = folder.path() + "/scenario.json";
        write_text_file(file, job.document);
        launch.variables.emplace_back(scenario_variable, file);
    }
    launch.ranks = job.ranks;
    // Ranks that wait for a hung rank give up first, and so name it.
    launch.deadline = 2 * job.network.deadline;
    std::optional<ShapedNetwork> network;
    if (job.network.link_rate) {
        network.emplace(job.ranks, *job.network.link_rate);
        launch.before_exec = [&](int rank) { return network->enter(rank); };
        launch.variables.emplace_back(interface_variable, ShapedNetwork::interface());
    }
    return launch_ranks(launch, [&](const LaunchProgress& progress) {
        if (progress.rank == 0) {
            line.show(progress.text);
        }
    });
}

std::string text_of(const LaunchFailure& failure) {
    return (failure.rank ? fmt::format("rank {} ", *failure.rank) : "") + failure.reason;
}

// --- the rank's side ---

void ProgressReporter::operator()(const std::string& text) {
    report_.progress(text);
    if (identity_.rank == 0 && !report_.has_launcher()) {
        line_.show(text);
    }
}

RankSession meet(const RankJob& job, const RankIdentity& identity, RankSession::Show show,
                 RankSession::Keep keep, std::string_view world) {
    const JobNetwork& network = job.network;
    const MeetingPoint meeting{
        .rank = identity.rank,
        .ranks = identity.ranks,
        .store = network.store,
        .job = world.empty() ? identity.job : fmt::format("{}.{}", identity.job, world),
        .address = network.interface.empty() ? "127.0.0.1" : "",
        .interface = network.interface,
        .deadline = network.deadline};
    return RankSession(job.backend->connect(meeting, identity, job.request), std::move(show),
                       std::move(keep));
}

EnvironmentRecord environment_of(const RankJob& job, const RankIdentity& identity,
                                 const RankSession& session) {
    EnvironmentRecord record;
    record.version = program_version();
    record.date = utc_now();
    record.libraries = job.backend->libraries();
    record.machine = read_environment();
    record.machine.gpu_libraries = gpu_libraries();
    record.gpu = session.connection().gpu();
    record.transport = transport_of(job);
    record.hosts = (identity.ranks + identity.local_ranks - 1) / identity.local_ranks;
    record.link_rate = job.network.link_rate ? text_of(*job.network.link_rate) : "";
    record.seed = job.order.seed;
    record.rounds = job.order.rounds;
    return record;
}

namespace {

void tell(const LauncherReport& report, const RankIdentity& identity, const std::string& reason,
          bool blames_peer = false) {
    if (report.has_launcher()) {
        report.failure(reason, blames_peer);
    } else {
        complain(fmt::format("rank {}: {}", identity.rank, reason));
    }
}

}  // namespace

int run_rank(const RankIdentity& identity, const std::function<void(const LauncherReport&)>& act) {
    const LauncherReport report;
    try {
        act(report);
        return exit_done;
    } catch (const InputError& error) {
        tell(report, identity, error.what());
        return exit_bad_input;
    } catch (const PeerFailure& error) {
        tell(report, identity, error.what(), true);
    } catch (const std::bad_alloc&) {
        tell(report, identity, "out of memory");
    } catch (const std::exception& error) {
        tell(report, identity, error.what());
    }
    return exit_failed;
}

}  // namespace bucketwise
