#include "cli/import_logs.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "cli/shell/files.h"
#include "import/source/findings.h"
#include "import/source/inflate.h"
#include "sim/base/json_input.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/models/models.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

// A model that ships, or that of a scenario file; its times are not looked at.
Workload workload_named(const std::string& model) {
    const std::vector<std::string_view>& names = model_names();
    if (std::find(names.begin(), names.end(), model) != names.end()) {
        ModelInput input;
        input.batch = 1;
        input.sequence_length = 1;
        return workload_from_model(make_model(model, input), DType::float32,
                                   {.device = device_preset("A100").value()});
    }
    const Json document = parse_json(read_text_file(model), model);
    return step_input(parse_scenario(document, model, read_text_file)).workload;
}

std::optional<std::string> optional_text(const po::variables_map& values, const char* option) {
    return values.count(option) != 0 ? std::optional(text_value(values, option)) : std::nullopt;
}

}  // namespace

std::vector<OptionText> log_options() {
    return {{"output,o", "scenario file to write, - for standard output"},
            {"model",
             "whose gradients these are, to tell buckets apart: a model that ships, or a scenario "
             "file"},
            {"link", "link file or preset, where no log tells how long all-reduces take"},
            {"group", "process group whose all-reduces are the gradients'"},
            {"ranks", "of that group, where no log tells"}};
}

LogImportRequest log_request(const po::variables_map& values) {
    LogImportRequest request;
    if (values.count("model") != 0) {
        request.model = workload_named(text_value(values, "model"));
    }
    request.group = optional_text(values, "group");
    request.ranks = optional_number(values, "ranks", {1, most_imported_ranks});
    return request;
}

void import_log_files(const CommandLine& line, const char* files, const LogReader& read,
                      const LogImportRequest& request) {
    const po::variables_map& values = line.values;
    std::vector<CollectiveLog> logs;
    for (const std::string& file : texts_value(values, files)) {
        logs.push_back(read(inflated(blocks_of_file(file), file), file));
    }
    LogImport imported = import_logs(logs, request);
    const Scenario scenario = connect(imported, optional_text(values, "link"), read_text_file);
    write_outputs({{text_value(values, "output"), json_text(imported.scenario)}},
                  imported.scenario["name"].get<std::string>() + "\n" + text_of(imported.findings) +
                      replay_text(imported, scenario));
}

}  // namespace bucketwise
