// The scenario that a command line describes: a file, or a model's name, and options that change
// it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/shell/option_values.h"
#include "sim/base/json.h"
#include "sim/link/link.h"
#include "sim/link/network/topology.h"

namespace bucketwise {

// Changes to a scenario.
struct ScenarioOptions {
    std::optional<std::string> link;
    std::optional<std::string> strategy;
    std::optional<std::string> device;
    std::optional<std::int64_t> batch;
    std::optional<std::int64_t> sequence;
    std::optional<std::string> dtype;
    std::vector<std::string> set;
    std::optional<std::int64_t> ranks;  // where no ranks run
};

// --link, --strategy, --device, --batch, --sequence, --dtype and --set.
std::vector<OptionText> scenario_rows(ScenarioOptions& options);
// The same, and --ranks.
std::vector<OptionText> simulated_rows(ScenarioOptions& options);

// Reads `file`, or makes the scenario of the model that it names where there is no such file
// (sim/scenario/usual_scenario.h), and changes it. Throws InputError.
Json read_scenario_document(const ScenarioOptions& options, const std::string& file);

// The same, with --ranks.
Json read_simulated_document(const ScenarioOptions& options, const std::string& file);

// Changes a document that no file holds.
void change_document(const ScenarioOptions& options, const std::string& file, Json& document);

// `assignment`, as --set has it, is POINTER=VALUE. VALUE is JSON, or else a string. Missing keys
// are made; array elements must exist. Throws InputError.
void apply_override(Json& document, const std::string& assignment);

// --nccl-version, for a link that follows NCCL's cost model.
OptionText nccl_version_row(std::optional<NcclVersion>& version);
// Throws InputError where the link does not follow it.
void change_nccl_version(const std::optional<NcclVersion>& version, LinkParameters& link);

// The text of a link file or of a preset. Throws InputError.
std::string read_link_text(const std::string& link);

}  // namespace bucketwise
