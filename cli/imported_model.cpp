#include "cli/imported_model.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "cli/shell/files.h"
#include "sim/base/json_input.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/models/models.h"

namespace bucketwise {

Workload imported_model(const std::string& model) {
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

}  // namespace bucketwise
