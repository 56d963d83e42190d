#include "cli/measured_files.h"

#include "cli/ranks/measurement_file.h"
#include "cli/shell/files.h"
#include "sim/base/json_input.h"

namespace bucketwise {

std::vector<MeasuredRun> read_runs(const std::vector<std::string>& files) {
    std::vector<MeasuredRun> runs;
    for (const std::string& file : files) {
        const MeasurementLines lines = read_measurements(file);
        runs.push_back(collect_run(lines.records, lines.torn, file));
    }
    return runs;
}

std::optional<MeasuredScenario> measured_scenario(const MeasuredRun& run) {
    if (!run.environment || run.environment->scenario.empty()) {
        return std::nullopt;
    }
    const std::string place = run.file + ":1: /scenario";
    MeasuredScenario measured{.document = parse_json(run.environment->scenario, place),
                              .scenario = {}};
    measured.scenario =
        parse_scenario(measured.document, place, read_text_file, StrategyKinds::all);
    return measured;
}

}  // namespace bucketwise
