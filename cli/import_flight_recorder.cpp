// bucketwise import flight-recorder DUMP...: what PyTorch's flight recorder kept, as a scenario.
#include <string_view>
#include <utility>
#include <vector>

#include <boost/program_options.hpp>

#include "cli/commands.h"
#include "cli/import_logs.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/option_values.h"
#include "import/flight_recorder/flight_recorder.h"
#include "sim/workload/models/models.h"

namespace bucketwise {
namespace {

constexpr std::string_view import_flight_recorder_examples = R"(
examples:
  bucketwise import flight-recorder nccl_trace_rank_0 nccl_trace_rank_1 --link nvlink-h100-8 -o scenario.json
  bucketwise import flight-recorder nccl_trace_rank_0 --model resnet50 -o scenario.json
  bucketwise predict scenario.json

A dump is the pickle that PyTorch writes when a collective times out, or what _dump_nccl_trace() and _dump_fr_trace()
of torch._C._distributed_c10d return, as a pickle or JSON, with TORCH_FR_BUFFER_SIZE set. With TORCH_NCCL_ENABLE_TIMING
it has how long collectives took, and no --link is needed.
)";

}  // namespace

CommandHelp import_flight_recorder_help() {
    const std::vector<std::string_view>& names = model_names();
    std::vector<OptionText> options = log_options();
    options.push_back({"same-host", "all ranks ran on one host, whose clock they share", no_value});
    return {.usage = {"bucketwise import flight-recorder DUMP... -o FILE [OPTIONS]"},
            .options = options_of(options),
            .text = import_flight_recorder_examples,
            .values = {{"model", {.names = {names.begin(), names.end()}}}},
            .positional = {"dumps", -1},
            .required = {"dumps", "output"},
            .wants = "dumps, and -o with a file to write"};
}

int run_import_flight_recorder(const CommandLine& line) {
    LogImportRequest request = log_request(line.values);
    request.same_host = line.values.count("same-host") != 0;
    import_log_files(line, {"dumps", FileKind::flight_recorder}, read_flight_recorder, request);
    return exit_done;
}

}  // namespace bucketwise
