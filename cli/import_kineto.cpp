// bucketwise import kineto TRACE...: a PyTorch profiler's trace as a scenario that replays it.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "calibrate/fit/link_fit.h"
#include "cli/commands.h"
#include "cli/prediction.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/progress.h"
#include "cli/shell/scenario_document.h"
#include "hw/record/environment.h"
#include "import/kineto/kineto_import.h"
#include "import/kineto/replay.h"
#include "import/source/inflate.h"
#include "sim/base/json_input.h"
#include "sim/link/link_json.h"
#include "sim/scenario/document_edit.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/models/models.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;
using Texts = std::vector<std::string>;

constexpr std::int64_t most_ranks = 1'000'000;

constexpr std::string_view import_kineto_examples = R"(
import_kineto_examples:
  bucketwise import kineto rank0.json.gz -o scenario.json
  bucketwise import kineto rank0.json.gz rank1.json.gz --model resnet50 -o scenario.json
  bucketwise predict scenario.json

A trace is what torch.profiler writes with export_chrome_trace() or tensorboard_trace_handler(), as it is or compressed
with gzip, of some steps of DistributedDataParallel on CPUs or GPUs. With record_shapes=True it tells the most.
)";

po::options_description import_kineto_options() {
    po::options_description options("options", 100);
    options.add_options()                                                                        //
        ("output,o", po::value<std::string>(), "scenario file to write, - for standard output")  //
        ("model", po::value<std::string>(),
         "whose gradients these are, to name them: a model that ships, or a scenario file")  //
        ("link", po::value<std::string>(),
         "link file or preset to use instead of one fitted to the trace's all-reduces")  //
        ("ranks", po::value<std::string>(), "of the run, where no trace tells")          //
        ("trace", po::value<std::string>(),
         "write the replayed step beside the traced one, for ui.perfetto.dev")  //
        ("help,h", "show this");
    return options;
}

// Names and order of a model's gradients; its times are not looked at.
void name_after(const std::string& model, KinetoImportRequest& request) {
    Workload workload;
    const std::vector<std::string_view>& names = model_names();
    if (std::find(names.begin(), names.end(), model) != names.end()) {
        ModelInput input;
        input.batch = 1;
        input.sequence_length = 1;
        workload = workload_from_model(make_model(model, input), DType::float32,
                                       {.device = device_preset("A100").value()});
    } else {
        const Json document = parse_json(read_text_file(model), model);
        workload = step_input(parse_scenario(document, model, read_text_file)).workload;
    }
    for (const Gradient& gradient : workload.gradients) {
        request.parameters.push_back({gradient.name, gradient.numel});
    }
    request.readiness = workload.readiness;
}

std::vector<TracedRank> read_traces(const Texts& files) {
    std::vector<TracedRank> ranks;
    for (const std::string& file : files) {
        PercentLine line("reading " + file);
        const std::uint64_t size = size_of_file(file);
        std::uint64_t read = 0;
        const ByteSource blocks = blocks_of_file(file);
        const ByteSource counted = [&](char* buffer, std::size_t room) {
            const std::size_t count = blocks(buffer, room);
            read += count;
            if (size > 0) {
                line(std::min(static_cast<double>(read) / static_cast<double>(size), 1.0));
            }
            return count;
        };
        ranks.push_back(read_traced_rank(inflated(counted, file), file));
    }
    return ranks;
}

// One number per size; without all ranks' traces it is as uncertain as waiting for them is.
std::vector<LinkPoint> link_points(const KinetoImport& imported) {
    constexpr double uncertain = 0.1;
    std::map<Bytes, std::vector<double>> by_size;
    for (const TracedAllReduce& all_reduce : imported.all_reduces) {
        std::vector<double>& times = by_size[all_reduce.bytes];
        times.insert(times.end(), all_reduce.wire_us.begin(), all_reduce.wire_us.end());
    }
    std::vector<LinkPoint> points;
    for (auto& [size, times] : by_size) {
        std::sort(times.begin(), times.end());
        const double median = times.empty() ? 0 : times[times.size() / 2];
        if (median > 0) {
            points.push_back({.ranks = imported.ranks,
                              .size = size,
                              .median_us = median,
                              .standard_error_us = uncertain * median,
                              .samples = static_cast<std::int64_t>(times.size())});
        }
    }
    return points;
}

// Through the wire times by size, in terms of a ring: what NCCL and Gloo mostly run, and as good as
// any other for the traced number of ranks.
LinkParameters fitted_link(const KinetoImport& imported, const TracedRank& rank,
                           const std::string& file) {
    const std::vector<LinkPoint> points = link_points(imported);
    if (points.empty()) {
        throw InputError(file, "/traceEvents",
                         "all-reduces on a communication stream, or a link (--link)", "neither");
    }
    LinkParameters link;
    link.name = "of the trace";
    if (points.size() > 1) {
        link.segments = fit_link(Algorithm::ring, points, file).segments;
        // A few traced steps do not tell how sure they are.
        for (Segment& segment : link.segments) {
            segment.errors.reset();
        }
    } else {
        const WireCost cost =
            wire_cost(CollectiveKind::all_reduce, Algorithm::ring, imported.ranks);
        const double share =
            static_cast<double>(cost.wire.numerator) / static_cast<double>(cost.wire.denominator);
        Segment segment;
        segment.bandwidth = BytesPerSecond{std::max<std::int64_t>(
            std::llround(share * static_cast<double>(points.front().size.count) /
                         points.front().median_us * 1e6),
            1)};
        link.segments = {segment};
    }
    link.provenance.backend = rank.backend;
    link.provenance.ranks = imported.ranks;
    link.provenance.smallest_message = points.front().size;
    link.provenance.largest_message = points.back().size;
    link.provenance.hardware = rank.device;
    link.provenance.versions = rank.nccl_version.empty() ? "" : "NCCL " + rank.nccl_version;
    link.provenance.samples = static_cast<std::int64_t>(points.size());
    link.provenance.source = "all-reduces of a PyTorch profiler trace, least times";
    return link;
}

// Puts the link into the imported scenario, the trace's or the user's.
void connect(const po::variables_map& values, const TracedRank& rank, KinetoImport& imported) {
    Json& cluster = imported.scenario["cluster"];
    if (values.count("link") != 0) {
        const std::string file = values["link"].as<std::string>();
        cluster["link"] = file;
        inline_link(imported.scenario, "", read_text_file);
    } else if (imported.ranks == 1) {
        LinkParameters none;
        none.name = "none";
        none.segments = {{.bandwidth = {1'000'000'000}}};
        cluster["link"] = link_json(none);
    } else {
        cluster["link"] = link_json(fitted_link(imported, rank, rank.file));
    }
}

std::string report(const KinetoImport& imported) {
    std::string text = imported.scenario["name"].get<std::string>() + "\n";
    for (const auto& [kind, title] :
         {std::pair(FindingKind::found, "Found"), std::pair(FindingKind::assumed, "Assumed"),
          std::pair(FindingKind::missing, "Not found, or left out")}) {
        bool first = true;
        for (const Finding& finding : imported.findings) {
            if (finding.kind == kind) {
                text += first ? fmt::format("\n  {}:\n", title) : "";
                text += fmt::format("    {:<18} {}\n", finding.item, finding.text);
                first = false;
            }
        }
    }
    return text;
}

}  // namespace

CommandHelp import_kineto_help() {
    const std::vector<std::string_view>& names = model_names();
    return {.usage = {"bucketwise import kineto TRACE... -o FILE [OPTIONS]"},
            .options = import_kineto_options(),
            .text = import_kineto_examples,
            .values = {{"model", {.names = {names.begin(), names.end()}}}}};
}

int run_import_kineto(const std::vector<std::string>& arguments) {
    const po::options_description options = import_kineto_options();
    po::options_description all;
    all.add(options).add_options()("traces", po::value<Texts>());
    const po::variables_map values = parse_with_positional(arguments, all, {"traces", -1});
    if (values.count("help") != 0) {
        return print_help(import_kineto_help());
    }
    if (values.count("traces") == 0 || values.count("output") == 0) {
        throw UsageError{
            "import kineto: expected traces, and -o with a file to write; see bucketwise import "
            "kineto --help"};
    }
    const Texts files = values["traces"].as<Texts>();
    const std::string output = values["output"].as<std::string>();
    std::vector<NamedFile> inputs{{"link", text_or_empty(values, "link")},
                                  {"model", text_or_empty(values, "model")}};
    for (const std::string& file : files) {
        inputs.push_back({"trace", file});
    }
    const std::string trace = text_or_empty(values, "trace");
    check_outputs(inputs, {{"output", output}, {"trace", trace}});
    if (output == "-" && trace == "-") {
        throw UsageError{
            "import kineto: expected at most one of --output and --trace on standard output, got "
            "both"};
    }
    KinetoImportRequest request;
    if (values.count("model") != 0) {
        name_after(values["model"].as<std::string>(), request);
    }
    if (values.count("ranks") != 0) {
        request.ranks = whole_number(values, "ranks", {1, most_ranks});
    }
    const std::vector<TracedRank> ranks = read_traces(files);
    KinetoImport imported = import_kineto(ranks, request);
    connect(values, ranks.front(), imported);
    const std::string text = json_text(imported.scenario);
    const std::string origin = files.front() + " as a scenario";
    const Scenario scenario = parse_scenario(parse_json(text, origin), origin, read_text_file);
    const Replay replayed = replay(imported, scenario);
    std::vector<OutputText> outputs{{output, text}};
    if (!trace.empty()) {
        const StepInput input = step_input(scenario);
        if (!can_be_traced(input)) {
            throw InputError("--trace", "", "a step of at most 1,000,000 operations",
                             "a longer one");
        }
        outputs.push_back(
            {trace, step_trace_beside(scenario, input, scenario.sync.bucket_cap,
                                      traced_process(imported.typical, imported.file))});
    }
    write_outputs(outputs);
    if (output != "-" && trace != "-") {
        write_output("-", report(imported) + text_of(replayed));
    }
    return exit_done;
}

}  // namespace bucketwise
