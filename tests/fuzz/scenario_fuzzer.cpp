// Any bytes: either InputError names what is wrong with them, or they can be simulated. Everything
// else that leaves the parser, or goes wrong behind it, ends the fuzzer.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/engine/engine.h"
#include "sim/frameworks/framework_advice.h"
#include "sim/frameworks/sharded_setting.h"
#include "sim/predict/percentiles.h"
#include "sim/predict/prediction.h"
#include "sim/predict/preset_ends.h"
#include "sim/report/perfetto.h"
#include "sim/report/prediction_json.h"
#include "sim/report/report.h"
#include "sim/scenario/scenario.h"
#include "tests/fuzz/json_mutator.h"

namespace bucketwise {
namespace {

// Larger steps are only parsed: simulating them takes longer and shows nothing else.
constexpr std::int64_t most_layers = 16;
constexpr std::int64_t most_micro_steps = 4;
constexpr std::size_t most_gradients = 200;
constexpr std::size_t most_gradients_for_every_plan = 30;

std::string read_file(const std::string& path) {
    if (path != "link.json") {
        throw InputError(path, "", "a file that exists", "none");
    }
    return R"({"name":"l","algorithm":"ring","segments":[{"latency_us":20,"bandwidth_gb_per_s":1}]})";
}

bool is_small(const ModelWorkload& workload) {
    const TransformerShape* shape = std::get_if<TransformerShape>(&workload.model);
    if (shape != nullptr) {
        return shape->layers <= most_layers;
    }
    if (const auto* mlp = std::get_if<MlpShape>(&workload.model)) {
        return static_cast<std::int64_t>(mlp->layers.size()) <= most_layers;
    }
    const auto shipped = transformer_shape(std::get<std::string>(workload.model));
    return !shipped || shipped->layers <= most_layers;
}

bool is_small(const GradientWorkload& workload) {
    return workload.gradients.size() <= most_gradients;
}

std::string trace_of(const Scenario& scenario, const StepInput& input,
                     const Prediction& prediction) {
    if (!scenario.sharding) {
        const Program program = Evaluator(input, scenario.sync).program(scenario.sync.bucket_cap);
        return perfetto_trace(scenario.name, input, program,
                              simulate({&program, 1}, Record::timeline));
    }
    const ShardedInput best{input, prediction.advised().sharded->request};
    const Program program = sharded_program(best);
    return perfetto_trace(scenario.name, input, program, sharded_simulation(best, program), {},
                          std::vector<std::string>(make_shard_plan(best).groups.size(), "group"));
}

Prediction prediction_of(const Scenario& scenario, const StepInput& input) {
    const auto quietly = [](double) {};
    if (scenario.sharding) {
        return predict_sharded(scenario, {input, *scenario.sharding}, quietly);
    }
    std::vector<Bytes> caps;  // none: every cap at which the plan changes
    if (has_cap(scenario.sync) && input.workload.gradients.size() > most_gradients_for_every_plan) {
        caps = {Bytes{1}, Bytes{bytes_per_mib}, default_bucket_cap};
    }
    return predict(input, scenario.sync, caps, quietly);
}

SettingAdvice advice_of(const Scenario& scenario, const StepInput& input,
                        const Prediction& prediction) {
    SettingAdvice settings;
    if (scenario.sharding) {
        settings.sharded = sharded_settings({input, prediction.advised().sharded->request});
    } else if (!prediction.chosen().cap.is_none() &&
               input.workload.gradients.size() <= most_gradients_for_every_plan) {
        std::vector<Destination> everywhere;
        for (const SettingPlace place : every<SettingPlace>) {
            everywhere.push_back({place});
        }
        settings = setting_advice(input, scenario.sync, prediction, everywhere);
    }
    return settings;
}

void predict_and_report(const Scenario& scenario) {
    const bool small =
        std::visit([](const auto& workload) { return is_small(workload); }, scenario.workload) &&
        scenario.step.accumulation <= most_micro_steps;
    if (!small) {
        return;
    }
    const StepInput input = scenario.sharding ? sharded_input(scenario).step : step_input(scenario);
    if (input.workload.gradients.size() >
        (scenario.sharding ? most_gradients_for_every_plan : most_gradients)) {
        return;
    }
    const Prediction prediction = prediction_of(scenario, input);
    const SettingAdvice settings = advice_of(scenario, input, prediction);
    const PriorEnds ends = preset_ends(scenario, input, prediction);
    static_cast<void>(text_report(scenario, prediction, settings, ends));
    static_cast<void>(to_json(scenario, prediction, settings, ends).dump());
    if (input.variation && steps_vary(*input.variation)) {
        constexpr std::int64_t draws = 5;
        static_cast<void>(text_of(percentile_table(input, scenario.sync, prediction, draws)));
    }
    static_cast<void>(trace_of(scenario, input, prediction));
}

std::string_view text_of(const std::uint8_t* data, std::size_t size) {
    // libFuzzer speaks of bytes, the parser of characters.
    return {reinterpret_cast<const char*>(data), size};
}

}  // namespace
}  // namespace bucketwise

// libFuzzer knows this function by its name.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace bucketwise;
    try {
        const Json document = parse_json(text_of(data, size), "input.json");
        predict_and_report(parse_scenario(document, "input.json", read_file, StrategyKinds::all));
    } catch (const InputError&) {
        return 0;
    }
    return 0;
}
