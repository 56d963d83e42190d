#include "cli/ranks/rank_bench.h"

#include <stdexcept>
#include <string>
#include <vector>

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

Json measured_by_ranks(const RankJob& job) {
    const TemporaryFolder folder;
    const std::string file = folder.path() + "/measured";
    MeasureProgress line;
    if (const auto failure = launch_job(job, {{output_variable, file}}, line)) {
        throw std::runtime_error(text_of(*failure));
    }
    return Json::from_cbor(read_text_file(file));
}

Json measured_on_this_rank(const RankJob& job, const RankIdentity& identity,
                           const LauncherReport& report,
                           const std::function<Json(RankSession&)>& measure) {
    ProgressReporter show(report, identity);
    RankSession session = meet(job, identity, std::ref(show));
    Json measured{{"environment", to_json(environment_of(job, identity, session))},
                  {"values", measure(session)}};
    session.leave();
    return measured;
}

}  // namespace

int run_rank_bench(const RankJob& job, const std::optional<RankIdentity>& identity,
                   const std::function<Json(RankSession&)>& measure,
                   const std::function<void(const EnvironmentRecord&, const Json&)>& print) {
    const auto print_measured = [&](const Json& measured) {
        print(std::get<EnvironmentRecord>(read_measurement(measured.at("environment"), "", 1)),
              measured.at("values"));
    };
    if (!identity) {
        print_measured(measured_by_ranks(job));
        return exit_done;
    }
    return run_rank(*identity, [&](const LauncherReport& report) {
        const Json measured = measured_on_this_rank(job, *identity, report, measure);
        if (identity->rank == 0 && is_own_rank(identity)) {
            hand_over(measured);
        } else if (identity->rank == 0) {
            print_measured(measured);
        }
    });
}

}  // namespace bucketwise
