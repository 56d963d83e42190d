#include "cli/described_model.h"

#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/python_script.h"
#include "sim/base/json_input.h"

namespace bucketwise {

Json described_scenario(const std::string& file, const DescribedInput& input,
                        const UnknownFamily& unknown) {
    std::vector<std::string> arguments{file, "--for-program", "--dtype", input.dtype};
    if (input.batch) {
        arguments.insert(arguments.end(), {"--batch", std::to_string(*input.batch)});
    }
    if (input.sequence_length) {
        arguments.insert(arguments.end(), {"--sequence", std::to_string(*input.sequence_length)});
    }
    const ScriptRun run = run_script("python/bucketwise/torch/describe.py", arguments);
    if (run.failure) {
        throw InputError(unknown.file(), unknown.pointer(),
                         fmt::format("{}; where PyTorch and transformers are installed, "
                                     "`python -m bucketwise.torch.describe {}` describes it",
                                     unknown.expected(), file),
                         unknown.got());
    }
    Json document = parse_json(run.output, "python -m bucketwise.torch.describe " + file);
    if (const auto refused = document.find("refused"); refused != document.end()) {
        throw InputError(file, refused->value("pointer", ""),
                         refused->value("expected", "a model that can be described"),
                         refused->value("got", ""));
    }
    return document;
}

}  // namespace bucketwise
