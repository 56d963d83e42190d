// bucketwise import chakra TRACE...: the collectives of an execution trace, as a scenario.
#include <string_view>
#include <vector>

#include <boost/program_options.hpp>

#include "cli/commands.h"
#include "cli/import_logs.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/option_values.h"
#include "import/chakra/chakra_trace.h"
#include "sim/base/json_input.h"
#include "sim/workload/models/models.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::string_view import_chakra_examples = R"(
examples:
  bucketwise import chakra rank0.et --ranks 8 --link nvlink-h100-8 -o scenario.json
  bucketwise import chakra execution_trace.json --link eth-10g --forward-ms 30 --backward-ms 60 -o scenario.json
  bucketwise predict scenario.json

A trace is Chakra's own (.et, or JSON by chakra_jsonizer), or what torch.profiler's ExecutionTraceObserver writes,
compressed with gzip or not. Where its nodes say how long they compute, that is when gradients are ready. No trace says
how long communication takes.
)";

std::optional<Duration> optional_ms(const po::variables_map& values, const char* option) {
    if (values.count(option) == 0) {
        return std::nullopt;
    }
    const std::string name = std::string("--") + option;
    const Json value = parse_json(text_value(values, option), name);
    return read_duration_ms({&value, name, ""});
}

}  // namespace

CommandHelp import_chakra_help() {
    const std::vector<std::string_view>& names = model_names();
    std::vector<OptionText> options = log_options();
    options.push_back({"forward-ms", "what forward and the optimizer take, where no node says"});
    options.push_back({"backward-ms", "the same of backward; both or neither"});
    return {.usage = {"bucketwise import chakra TRACE... -o FILE --link LINK [OPTIONS]"},
            .options = options_of(options),
            .text = import_chakra_examples,
            .values = {{"model", {.names = {names.begin(), names.end()}}}},
            .positional = {"traces", -1},
            .required = {"traces", "output"},
            .wants = "traces, and -o with a file to write"};
}

int run_import_chakra(const CommandLine& line) {
    LogImportRequest request = log_request(line.values);
    request.forward = optional_ms(line.values, "forward-ms");
    request.backward = optional_ms(line.values, "backward-ms");
    if (request.forward.has_value() != request.backward.has_value()) {
        throw UsageError{
            "import chakra: expected --forward-ms and --backward-ms, or neither, got "
            "one"};
    }
    import_log_files(line, {"traces", FileKind::execution_trace}, read_chakra, request);
    return exit_done;
}

}  // namespace bucketwise
