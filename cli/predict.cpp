// bucketwise predict SCENARIO: simulate the step at every cap that matters and say which is best.
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/files.h"
#include "cli/option_values.h"
#include "cli/scenario_document.h"
#include "cli/size.h"
#include "sim/engine.h"
#include "sim/json_input.h"
#include "sim/perfetto.h"
#include "sim/prediction_json.h"
#include "sim/report.h"
#include "sim/scenario.h"
#include "sim/sweep.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::string_view examples = R"(
examples:
  bucketwise predict scenarios/resnet50_8xh100.json
  bucketwise predict scenarios/compare_ddp_async.json --bucket-cap 12MiB,24MiB --json -
  bucketwise predict scenarios/cs336_xl.json --set /cluster/ranks=8 --trace step.json
)";

po::options_description described_options() {
    po::options_description options("options");
    options.add_options()  //
        ("bucket-cap", po::value<std::string>()->default_value("auto"),
         "caps to evaluate, such as 1MiB,25MiB; auto: every cap at which the plan changes");
    add_scenario_options(options);
    options.add_options()                                                                         //
        ("json", po::value<std::string>(), "write the prediction as JSON; - is standard output")  //
        ("trace", po::value<std::string>(),
         "write the fastest step as a trace for ui.perfetto.dev; - is standard output")  //
        ("help,h", "show this");
    return options;
}

std::vector<Bytes> requested_caps(const po::variables_map& values, Scenario& scenario) {
    const std::string& text = values["bucket-cap"].as<std::string>();
    if (text == "auto") {
        return {};
    }
    std::vector<Bytes> caps = parse_sizes(text, "--bucket-cap");
    scenario.sync.bucket_cap_list.clear();
    if (!has_cap(scenario.sync)) {
        throw UsageError{fmt::format("--bucket-cap: expected a strategy with a bucket cap, got {}",
                                     name_of(scenario.sync.strategy))};
    }
    return caps;
}

// A line that rewrites itself, on a terminal only, and only when there is something to wait for.
class ProgressLine {
  public:
    ProgressLine()
        : visible_(::isatty(STDERR_FILENO) == 1), start_(std::chrono::steady_clock::now()) {}
    ~ProgressLine() {
        if (shown_) {
            std::fputs("\r\033[K", stderr);
        }
    }
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    void operator()(double done) {
        constexpr std::chrono::milliseconds patience{500};
        if (visible_ && std::chrono::steady_clock::now() - start_ > patience) {
            std::fprintf(stderr, "\rsimulating bucket plans: %3.0f %%", 100 * done);
            shown_ = true;
        }
    }

  private:
    bool visible_;
    bool shown_ = false;
    std::chrono::steady_clock::time_point start_;
};

Prediction predict_with_progress(const Scenario& scenario, const StepInput& input,
                                 const std::vector<Bytes>& caps) {
    ProgressLine line;
    Prediction prediction = predict(input, scenario.sync, caps, [&](double done) { line(done); });
    for (std::string& note : caveats(scenario)) {
        prediction.notes.push_back(std::move(note));
    }
    return prediction;
}

std::string trace_of(const Scenario& scenario, const StepInput& input,
                     const Prediction& prediction) {
    const std::optional<Bytes> cap =
        prediction.default_is_fastest ? std::nullopt : prediction.fastest().cap;
    constexpr std::int64_t most_operations = 1'000'000;
    const auto operations =
        static_cast<std::int64_t>(input.workload.forward.size() + input.workload.backward.size());
    if (operations * input.step.accumulation > most_operations) {
        throw InputError("--trace", "",
                         fmt::format("a step of at most {} operations", most_operations),
                         fmt::format("one of {}", operations * input.step.accumulation));
    }
    const Program program = Evaluator(input, scenario.sync).program(cap);
    return perfetto_trace(scenario.name, input, program, simulate({&program, 1}, Record::timeline));
}

}  // namespace

int run_predict(const std::vector<std::string>& arguments) {
    const po::options_description options = described_options();
    const po::variables_map values = parse_arguments(arguments, options);
    if (values.count("help") != 0) {
        std::cout << "usage: bucketwise predict SCENARIO [OPTIONS]\n\n" << options << examples;
        return exit_done;
    }
    if (values.count("scenario") == 0) {
        throw UsageError{
            "predict: expected a scenario file, got none; see bucketwise predict --help"};
    }
    const std::string file = values["scenario"].as<std::string>();
    const bool json_to_stdout =
        values.count("json") != 0 && values["json"].as<std::string>() == "-";
    const bool trace_to_stdout =
        values.count("trace") != 0 && values["trace"].as<std::string>() == "-";
    if (json_to_stdout && trace_to_stdout) {
        throw UsageError{
            "predict: expected at most one of --json and --trace on standard output, got both"};
    }
    check_outputs(
        {{"scenario", file}, {"link", text_or_empty(values, "link")}},
        {{"json", text_or_empty(values, "json")}, {"trace", text_or_empty(values, "trace")}});
    Scenario scenario = parse_scenario(read_scenario_document(values, file), file, read_text_file);
    const std::vector<Bytes> caps = requested_caps(values, scenario);
    const StepInput input = step_input(scenario);
    const Prediction prediction = predict_with_progress(scenario, input, caps);
    if (values.count("json") != 0) {
        write_output(values["json"].as<std::string>(),
                     to_json(scenario, prediction).dump(2) + "\n");
    }
    if (values.count("trace") != 0) {
        write_output(values["trace"].as<std::string>(), trace_of(scenario, input, prediction));
    }
    if (!json_to_stdout && !trace_to_stdout) {
        write_output("-", text_report(scenario, prediction));
    }
    return exit_done;
}

}  // namespace bucketwise
