// A program of somebody else's that predicts with the installed simulator:
//   consumer SCENARIO
// prints the prediction as `bucketwise predict --json -` has it.
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/frameworks/framework_advice.h"
#include "sim/optimum/levers.h"
#include "sim/predict/prediction.h"
#include "sim/report/prediction_json.h"
#include "sim/scenario/scenario.h"

namespace {

std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

int main(int argc, char** argv) {
    using namespace bucketwise;
    if (argc != 2) {
        return 2;
    }
    try {
        const std::string path = argv[1];
        const Scenario scenario = parse_scenario(parse_json(text_of(path), path), path, text_of);
        const StepInput input = step_input(scenario);
        Prediction prediction = predict(input, scenario.sync, {}, [](double) {});
        prediction.levers = levers_of(scenario, input, prediction);
        const auto settings =
            SettingAdvice{framework_settings(input, scenario.sync, prediction), {}};
        std::cout << to_json(scenario, prediction, settings).dump(2) << "\n";
    } catch (const InputError& error) {
        std::cerr << error.what() << "\n";
        return 2;
    }
}
