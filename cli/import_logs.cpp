#include "cli/import_logs.h"

#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "cli/imported_model.h"
#include "cli/shell/files.h"
#include "import/source/findings.h"
#include "import/source/inflate.h"
#include "sim/report/number_text.h"
#include "sim/report/verdict.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

std::optional<std::string> optional_text(const po::variables_map& values, const char* option) {
    return values.count(option) != 0 ? std::optional(text_value(values, option)) : std::nullopt;
}

}  // namespace

std::vector<OptionText> log_options() {
    return {{"output,o", "scenario file to write, - for standard output"},
            {"model",
             "whose gradients these are, to tell buckets apart: a model that ships, a scenario "
             "file, or "
             "a config.json"},
            {"link", "link file or preset, where no log tells how long all-reduces take"},
            {"group", "process group whose all-reduces are the gradients'"},
            {"ranks", "of that group, where no log tells"}};
}

LogImportRequest log_request(const po::variables_map& values) {
    LogImportRequest request;
    if (values.count("model") != 0) {
        request.model = imported_model(text_value(values, "model"));
    }
    request.group = optional_text(values, "group");
    request.ranks = optional_number(values, "ranks", {1, most_imported_ranks});
    return request;
}

namespace {

// What may be done with the scenario.
std::string log_verdict(const Json& scenario, const std::string& output) {
    std::vector<std::string> reasons;
    for (const char* stated : {"/caveats", "/cluster/link/caveats"}) {
        const Json::json_pointer pointer(stated);
        if (!scenario.contains(pointer)) {
            continue;
        }
        for (const Json& caveat : scenario[pointer]) {
            if (caveat.is_object() && caveat.value("withholds_advice", false)) {
                reasons.push_back(caveat["text"].get<std::string>());
            }
        }
    }
    return reasons.empty() ? fmt::format("Predict with it: bucketwise predict {}.", output)
                           : withheld_text(reasons);
}

}  // namespace

void import_log_files(const CommandLine& line, const LogFiles& files, const LogReader& read,
                      const LogImportRequest& request) {
    const po::variables_map& values = line.values;
    std::vector<CollectiveLog> logs;
    for (const std::string& file : texts_value(values, files.option)) {
        logs.push_back(reading({file}, files.kind,
                               [&] { return read(inflated(blocks_of_file(file), file), file); }));
    }
    LogImport imported = import_logs(logs, request);
    const Scenario scenario = connect(imported, optional_text(values, "link"), read_text_file);
    state_caveats(scenario, imported);
    const std::string& output = text_value(values, "output");
    write_outputs({{output, json_text(imported.scenario)}},
                  fmt::format("{}\n\n{}\n{}{}", wrapped(log_verdict(imported.scenario, output)),
                              imported.scenario["name"].get<std::string>(),
                              text_of(imported.findings), replay_text(imported, scenario)));
}

}  // namespace bucketwise
