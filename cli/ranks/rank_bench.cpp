#include "cli/ranks/rank_bench.h"

#include <stdexcept>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/ranks/temporary_folder.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"

namespace bucketwise {
namespace {

// CBOR keeps every number, NaN included, such as the loss of a run that diverged.
void hand_over(const Json& measured) {
    const std::vector<std::uint8_t> bytes = Json::to_cbor(measured);
    write_text_file(environment_variable(output_variable).value_or(""),
                    {bytes.begin(), bytes.end()});
}

// Adds what a job measured, environment and rows, to the jobs before it.
void add_measured(const Json& measured, Json& all) {
    all["environment"] = measured["environment"];
    for (const Json& row : measured["rows"]) {
        all["rows"].push_back(row);
    }
}

// Returns the failure that ended the jobs early, if one did.
std::optional<std::string> launch_jobs(const std::vector<RankJob>& jobs, Json& all) {
    const TemporaryFolder folder;
    MeasureProgress line;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        const std::string file = fmt::format("{}/measured{}", folder.path(), i);
        const Variables variables{{output_variable, file}, {job_variable, std::to_string(i)}};
        if (const auto failure = launch_job(jobs[i], variables, line)) {
            return text_of(*failure) +
                   (jobs[i].label.empty() ? "" : fmt::format(" ({})", jobs[i].label));
        }
        add_measured(Json::from_cbor(read_text_file(file)), all);
    }
    return std::nullopt;
}

}  // namespace

int run_rank_bench(
    const std::vector<RankJob>& jobs, const std::optional<RankIdentity>& identity,
    const std::function<Json(const RankJob& job, RankSession& session)>& measure,
    const std::function<void(const EnvironmentRecord& environment, const Json& rows)>& print) {
    Json all{{"rows", Json::array()}};
    const auto print_all = [&] {
        if (all.contains("environment")) {
            print(std::get<EnvironmentRecord>(read_measurement(all["environment"], "", 1)),
                  all["rows"]);
        }
    };
    if (!identity) {
        const std::optional<std::string> failure = launch_jobs(jobs, all);
        print_all();
        if (failure) {
            throw std::runtime_error(*failure);
        }
        return exit_done;
    }
    const bool own = is_own_rank(identity);
    const std::string only = own ? environment_variable(job_variable).value_or("0") : "";
    return run_rank(*identity, [&](const LauncherReport& report) {
        {
            ProgressReporter show(report, *identity);
            for (std::size_t i = 0; i < jobs.size(); ++i) {
                const std::string number = std::to_string(i);
                if (own && number != only) {
                    continue;
                }
                // Jobs have a store's keys of their own.
                RankSession session = meet(jobs[i], *identity, std::ref(show), {}, number);
                add_measured({{"environment", to_json(environment_of(jobs[i], *identity, session))},
                              {"rows", measure(jobs[i], session)}},
                             all);
                session.leave();
            }
        }
        if (identity->rank == 0 && own) {
            hand_over(all);
        } else if (identity->rank == 0) {
            print_all();
        }
    });
}

}  // namespace bucketwise
