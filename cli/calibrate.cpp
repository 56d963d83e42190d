// bucketwise calibrate MEASUREMENTS...: link and computing of the machine that was measured.
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "calibrate/calibration.h"
#include "cli/command.h"
#include "cli/files.h"
#include "cli/measured_files.h"
#include "cli/option_values.h"
#include "cli/scenario_document.h"
#include "sim/error.h"
#include "sim/link_json.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::string_view examples = R"(
examples:
  bucketwise calibrate measurements.jsonl -o link.json
  bucketwise calibrate on_2_ranks.jsonl on_4_ranks.jsonl -o link.json
  bucketwise calibrate measurements.jsonl -o link.json --scenario-output calibrated.json
)";

po::options_description described_options() {
    po::options_description options("options", 100);
    options.add_options()                                                           //
        ("output,o", po::value<std::string>(), "link file to write, for --link")    //
        ("scenario-output", po::value<std::string>(),
         "scenario file to write: the measured scenario with this link and the measured times of "
         "its operations")  //
        ("fit", po::value<std::string>(),
         "file to write what is behind the fit to, as JSON")  //
        ("help,h", "show this");
    return options;
}

po::variables_map parse(const std::vector<std::string>& arguments,
                        const po::options_description& options) {
    po::options_description all;
    all.add(options).add_options()("measurements", po::value<std::vector<std::string>>());
    return parse_with_positional(arguments, all, {"measurements", -1});
}

void check_files(const std::vector<std::string>& files, const po::variables_map& values) {
    std::vector<NamedFile> inputs;
    for (const std::string& file : files) {
        inputs.push_back({"measurements", file});
    }
    check_outputs(inputs, {{"output", text_or_empty(values, "output")},
                           {"scenario-output", text_or_empty(values, "scenario-output")},
                           {"fit", text_or_empty(values, "fit")}});
}

}  // namespace

int run_calibrate(const std::vector<std::string>& arguments) {
    const po::options_description options = described_options();
    const po::variables_map values = parse(arguments, options);
    if (values.count("help") != 0) {
        std::cout << "usage: bucketwise calibrate MEASUREMENTS... -o FILE [OPTIONS]\n\n"
                  << options << examples;
        return exit_done;
    }
    if (values.count("measurements") == 0 || values.count("output") == 0) {
        throw UsageError{
            "calibrate: expected measurement files and -o with a file to write; see bucketwise "
            "calibrate --help"};
    }
    const auto files = values["measurements"].as<std::vector<std::string>>();
    check_files(files, values);
    const std::vector<MeasuredRun> runs = read_runs(files);
    const std::optional<MeasuredScenario> measured = measured_scenario(runs.front());
    const Calibration calibration =
        calibrate(runs, measured ? std::optional(measured->scenario) : std::nullopt);
    if (values.count("scenario-output") != 0 && !calibration.compute) {
        throw InputError(files.front(), "", "compute records, for --scenario-output", "none");
    }
    write_output(values["output"].as<std::string>(), link_json(calibration.link).dump(2) + "\n");
    if (values.count("scenario-output") != 0) {
        write_output(values["scenario-output"].as<std::string>(),
                     calibrated_scenario(measured->document, calibration).dump(2) + "\n");
    }
    if (values.count("fit") != 0) {
        write_output(values["fit"].as<std::string>(), fit_json(calibration).dump(2) + "\n");
    }
    if (values["output"].as<std::string>() != "-") {
        write_output("-", calibration_report(calibration));
    }
    return exit_done;
}

}  // namespace bucketwise
