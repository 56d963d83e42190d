#include "cli/imported_model.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/described_model.h"
#include "cli/shell/file_kind.h"
#include "cli/shell/files.h"
#include "cli/shell/shipped_files.h"
#include "import/hugging_face/hf_config.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/models/models.h"

namespace bucketwise {
namespace {

// The least that a scenario needs beside the model, so that its reader checks the shape.
Json scenario_around(const Json& config, const std::string& file) {
    Json workload{{"batch", 1}, {"device", "A100"}};
    try {
        const HfModel model = read_hf_config(config, file);
        workload["model"] = shape_json(model.shape);
        if (model.transformer() != nullptr) {
            workload["sequence_length"] = 1;
        } else {
            workload["image_size"] = model.image_size;
        }
    } catch (const UnknownFamily& unknown) {
        workload = described_scenario(file, {.batch = 1}, unknown)["workload"];
    }
    return {{"name", "a model"},
            {"workload", workload},
            {"cluster", {{"ranks", 2}, {"link", "eth-10g"}}},
            {"sync", {{"strategy", "ddp"}}}};
}

}  // namespace

Workload imported_model(const std::string& model) {
    const std::vector<std::string_view>& names = model_names();
    ModelInput input;
    input.batch = 1;
    input.sequence_length = 1;
    if (std::find(names.begin(), names.end(), model) != names.end()) {
        return workload_from_model(make_model(model, input), DType::float32,
                                   {.device = device_preset("A100").value()});
    }
    const std::string file = config_of_folder(model);
    std::error_code error;
    if (const std::string meant = did_you_mean(model, names);
        !meant.empty() && !std::filesystem::exists(here_or_shipped(file), error)) {
        throw InputError("--model", "", "a model that ships, a scenario file, or a config.json",
                         "\"" + model + "\"" + meant);
    }
    const std::string text =
        reading({file}, FileKind::scenario, [&] { return read_text_file(file); });
    const FileKind kind = kind_of_text(text, file);
    Json document = parse_json(text, file);
    if (kind == FileKind::model_config) {
        document = scenario_around(document, file);
    } else {
        refuse_other_kind(kind, file, FileKind::scenario);
    }
    return step_input(parse_scenario(document, file, read_text_file)).workload;
}

}  // namespace bucketwise
