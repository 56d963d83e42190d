// bucketwise predict SCENARIO: simulates the step at every cap, or with every grouping of a step
// that shards, and names the best.
#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/prediction.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/progress.h"
#include "cli/shell/read_files.h"
#include "cli/shell/scenario_document.h"
#include "cli/shell/size.h"
#include "sim/base/json_input.h"
#include "sim/base/json_output.h"
#include "sim/frameworks/framework_advice.h"
#include "sim/frameworks/sharded_setting.h"
#include "sim/optimum/levers.h"
#include "sim/optimum/optimal_plan.h"
#include "sim/plan/setting_place.h"
#include "sim/plan/strategy.h"
#include "sim/predict/percentiles.h"
#include "sim/predict/prediction.h"
#include "sim/predict/strategy_comparison.h"
#include "sim/report/knobs_text.h"
#include "sim/report/lever_text.h"
#include "sim/report/optimal_report.h"
#include "sim/report/prediction_json.h"
#include "sim/report/report.h"
#include "sim/report/sharding_text.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {
namespace {

struct PredictOptions {
    std::string file;
    std::optional<std::vector<Bytes>> caps;  // empty: every cap at which the plan changes
    ScenarioOptions scenario;
    bool optimal = false;
    std::vector<std::string> destinations;
    std::vector<ComparedStrategy> compared;
    std::vector<std::string> frameworks;
    std::optional<std::string> json;
    std::optional<std::string> trace;
    bool percentiles = false;
    std::optional<std::int64_t> draws;
    bool details = false;
    bool knobs = false;
    std::vector<Tuned> tuned;
    std::optional<NcclVersion> nccl_version;
};

constexpr std::string_view predict_examples = R"(
examples:
  bucketwise predict resnet50 --ranks 8 --link nvlink-h100-8
  bucketwise predict scenarios/resnet50_8xh100.json
  bucketwise predict scenarios/compare_ddp_async.json --bucket-cap 12MiB,24MiB --json -
  bucketwise predict scenarios/cs336_xl.json --set /cluster/ranks=8 --trace step.json
  bucketwise predict scenarios/resnet50_8xh100.json --plan optimal
)";

// The examples, and the names of strategies.
const std::string& predict_text() {
    static const std::string text = [] {
        std::string listed =
            std::string(predict_examples) +
            "\n"
            "SCENARIO is a file, or the name of a model that ships; a note then "
            "lists what is assumed.\n\nstrategies, for --strategy, --set /sync/strategy=... "
            "or the scenario's key:\n";
        for (const Strategy strategy : every<Strategy>) {
            listed += fmt::format("  {:<30} {}\n", name_of(strategy),
                                  strategy_texts[static_cast<std::size_t>(strategy)]);
        }
        for (const ShardedStrategy strategy : every<ShardedStrategy>) {
            listed += fmt::format("  {:<30} {}\n", name_of(strategy),
                                  sharded_strategy_texts[static_cast<std::size_t>(strategy)]);
        }
        return listed;
    }();
    return text;
}

bool read_plan(const std::string& text, const std::string& option) {
    if (text != "optimal") {
        throw UsageError{fmt::format("{}: expected optimal, got {}", option, text)};
    }
    return true;
}

std::vector<OptionText> predict_rows(PredictOptions& o) {
    constexpr std::int64_t most_draws = 1'000'000;
    return {{"plan",
             "optimal: also the best of all ways to form buckets, and a bound that no plan beats",
             {o.optimal, read_plan},
             Completions{.names = {"optimal"}, .files = false}},
            {"for",
             "also the setting to type in these frameworks and wrappers, such as "
             "deepspeed_zero2,lightning, or all; NAME=VERSION asks for a version's rule",
             o.destinations, one_of(every<SettingPlace>)},
            {"compare-strategies",
             "also the step with other strategies, each at its best setting: "
             "ddp,fsdp,hsdp,zero3,deepspeed_zero2 and other frameworks' strategies",
             {o.compared, ListOf{Choice{every<ComparedStrategy>}}},
             some_of(every<ComparedStrategy>)},
            {"framework", "the same as --for, of one framework, such as deepspeed_zero2=0.15",
             o.frameworks, one_of(every<Framework>)},
            {"json", "write the prediction as JSON; - is standard output", o.json},
            {"trace", "write the advised step for ui.perfetto.dev; - is standard output", o.trace},
            {"percentiles",
             "draw single steps from the scenario's variation: p50, p90, p95 and p99 of the step",
             o.percentiles},
            {"draws",
             "number of draws, with --percentiles; default: 1000",
             {o.draws, WholeNumbers{1, most_draws}}},
            {"knobs",
             "also cross what backward recomputes, sharding and micro-batches, at the same samples "
             "per step: step against memory, and what to type; without it where nothing fits",
             o.knobs},
            {"tune",
             "also what each knob of a group would save or cost, as a prior. nccl: its variables "
             "and hardware queues; computing: torch.compile and float8",
             {o.tuned, ListOf{Choice{every<Tuned>}}},
             some_of(every<Tuned>)},
            {"details", "print every telling cap, how sure the choice is, and the link's source",
             o.details},
            nccl_version_row(o.nccl_version)};
}

// Empty: every plan.
std::vector<Bytes> requested_caps(const PredictOptions& options, Scenario& scenario) {
    if (!options.caps || options.caps->empty()) {
        return {};
    }
    scenario.sync = without_list(scenario.sync);
    if (!has_cap(scenario.sync)) {
        throw UsageError{fmt::format("--bucket-cap: expected a strategy with a bucket cap, got {}",
                                     name_of(scenario.sync.strategy))};
    }
    check_caps(*options.caps, scenario.sync);
    return *options.caps;
}

// Checked before anything is simulated.
void check_draws(const PredictOptions& options, const Scenario& scenario) {
    if (!options.percentiles && options.draws) {
        throw UsageError{"--draws: expected --percentiles beside it, got none"};
    }
    if (options.percentiles && !steps_vary(scenario.variation.value_or(Variation{}))) {
        throw InputError(options.file, "/variation",
                         "a spread, or a straggler_probability, above 0 for --percentiles",
                         scenario.variation ? "none above 0" : "none");
    }
}

// "NAME" or "NAME=VERSION".
template <typename Places>
Destination destination_from(const std::string& text, const Places& places,
                             const std::string& option) {
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    Destination destination{choice_named(name, places, option)};
    if (equals == std::string::npos) {
        return destination;
    }
    const std::string version = text.substr(equals + 1);
    const auto framework = framework_at(destination.place);
    if (!framework) {
        throw InputError(option, "", fmt::format("{} without a version", name),
                         fmt::format("\"{}\"", text));
    }
    const FrameworkVersion oldest = oldest_version(*framework);
    destination.version = version_from(version);
    if (!destination.version || *destination.version < oldest) {
        throw InputError(
            option, "",
            fmt::format("{}, or a later version, after {}=", version_text(oldest), name),
            fmt::format("\"{}\"", version));
    }
    return destination;
}

void add_destination(const Destination& destination, std::vector<Destination>& destinations) {
    const auto known = std::ranges::find(destinations, destination.place, &Destination::place);
    if (known == destinations.end()) {
        destinations.push_back(destination);
    } else if (destination.version) {
        known->version = destination.version;
    }
}

std::vector<Destination> requested_destinations(const PredictOptions& options,
                                                const SyncRequest& sync) {
    std::vector<Destination> destinations = usual_destinations(sync);
    for (const std::string& list : options.destinations) {
        for (const std::string& text : split_at_commas(list)) {
            if (text != "all") {
                add_destination(destination_from(text, every<SettingPlace>, "--for"), destinations);
                continue;
            }
            for (const SettingPlace place : every<SettingPlace>) {
                add_destination({place}, destinations);
            }
        }
    }
    std::vector<SettingPlace> frameworks;
    std::ranges::copy_if(every<SettingPlace>, std::back_inserter(frameworks),
                         [](SettingPlace place) { return framework_at(place).has_value(); });
    for (const std::string& text : options.frameworks) {
        add_destination(destination_from(text, frameworks, "--framework"), destinations);
    }
    return destinations;
}

// With all frameworks, for programs that read the JSON.
std::vector<Destination> with_every_framework(std::vector<Destination> destinations) {
    for (const Framework framework : every<Framework>) {
        add_destination({static_cast<SettingPlace>(framework)}, destinations);
    }
    return destinations;
}

// The part of the advice that was asked for.
SettingAdvice advice_for(const std::vector<Destination>& destinations, SettingAdvice advice) {
    std::erase_if(advice.frameworks, [&](const FrameworkSetting& setting) {
        return std::ranges::none_of(destinations, [&](const Destination& destination) {
            return framework_at(destination.place) == setting.use.framework;
        });
    });
    return advice;
}

void refuse_options_about_caps(const PredictOptions& options, const Scenario& scenario) {
    const auto refuse = [&](bool is_typed, const char* option) {
        if (is_typed) {
            throw UsageError{fmt::format("--{}: expected a strategy with buckets, got {}", option,
                                         name_of(scenario.sharding->strategy))};
        }
    };
    refuse(options.caps.has_value(), "bucket-cap");
    refuse(!options.destinations.empty(), "for");
    refuse(!options.frameworks.empty(), "framework");
    if (options.optimal && scenario.sharding->strategy == ShardedStrategy::zero3) {
        throw UsageError{"--plan: expected a strategy with groups, got zero3"};
    }
}

// A part of the report.
struct Addition {
    std::string text;
    Json json;
};

Addition optimum_of(const Scenario& scenario, const StepInput& input,
                    const Prediction& prediction) {
    if (!scenario.sharding) {
        const OptimalPlan optimum = optimal_plan_with_progress(scenario, input, prediction);
        return {optimal_text(scenario, optimum), to_json(optimum)};
    }
    PercentLine line("searching groups");
    const std::optional<OptimalGroups> optimum = optimal_groups(
        scenario, {input, *scenario.sharding}, prediction, [&](double done) { line(done); });
    if (!optimum) {
        return {};
    }
    const ShardingRequest& request = optimum->evaluation.sharded->request;
    return {optimal_text(prediction, *optimum, sharded_settings({input, request})),
            to_json(*optimum)};
}

void check_knobs(const PredictOptions& options, const Scenario& scenario) {
    if (options.knobs && !has_knobs(scenario)) {
        throw UsageError{"--knobs: expected a model on a device, got a workload without"};
    }
}

KnobSearch knobs_with_progress(const Scenario& scenario) {
    PercentLine line("crossing knobs");
    return search_knobs(scenario, [&](double done) { line(done); });
}

// Answers to --percentiles, --plan, --compare-strategies and --knobs, by key.
std::vector<std::pair<std::string, Addition>> additions_to(const PredictOptions& options,
                                                           const Scenario& scenario,
                                                           const StepInput& input,
                                                           const AdvisedPrediction& advised) {
    const Prediction& prediction = advised.prediction;
    std::vector<std::pair<std::string, Addition>> added;
    if (options.knobs || advised.knobs) {
        const KnobSearch search = advised.knobs ? *advised.knobs : knobs_with_progress(scenario);
        added.emplace_back("knobs",
                           Addition{knobs_text(scenario, search), to_json(scenario, search)});
    }
    if (options.percentiles) {
        constexpr std::int64_t default_draws = 1000;
        const PercentileTable table = percentile_table(input, scenario.sync, prediction,
                                                       options.draws.value_or(default_draws));
        added.emplace_back("percentiles", Addition{text_of(table), to_json(table)});
    }
    if (options.optimal) {
        added.emplace_back("optimal", optimum_of(scenario, input, prediction));
    }
    for (const Tuned tuned : options.tuned) {
        const std::vector<Lever> levers = tuned_knobs(scenario, input, prediction, tuned);
        added.emplace_back(
            fmt::format("tune_{}", name_of(tuned)),
            Addition{tuned_text(scenario, tuned, levers), to_json(scenario, levers)});
    }
    if (const auto rows = compare_strategies(scenario, options.compared); !rows.empty()) {
        added.emplace_back("strategies", Addition{comparison_text(rows), to_json(rows)});
    }
    return added;
}

int run_predict(const PredictOptions& options) {
    check_one_printed("predict", "--json and --trace", options.json, options.trace);
    Scenario scenario = parse_scenario(read_simulated_document(options.scenario, options.file),
                                       options.file, read_text_file, StrategyKinds::all);
    change_nccl_version(options.nccl_version, scenario.link);
    refuse_overwriting({options.json.value_or(""), options.trace.value_or("")});
    if (scenario.sharding) {
        refuse_options_about_caps(options, scenario);
    } else if (options.optimal && framework_of(scenario.sync.strategy)) {
        throw UsageError{fmt::format("--plan: expected a strategy of PyTorch, got {}",
                                     name_of(scenario.sync.strategy))};
    }
    if (options.optimal && scenario.step.one_hardware_queue) {
        throw UsageError{"--plan: expected a step without one_hardware_queue, got one"};
    }
    const std::vector<Bytes> caps = requested_caps(options, scenario);
    check_draws(options, scenario);
    check_knobs(options, scenario);
    const StepInput input = simulated_input(scenario);
    const std::vector<Destination> destinations = requested_destinations(options, scenario.sync);
    AdvisedPrediction advised = predict_with_progress(
        scenario, input, caps, options.json ? with_every_framework(destinations) : destinations);
    const bool fits = advised.prediction.misfit.empty() && advised.prediction.best_fits;
    if (fits && reasons_to_withhold(scenario).empty()) {
        advised.prediction.levers = levers_of(scenario, input, advised.prediction);
    }
    const auto& [prediction, settings, ends, knobs] = advised;
    const auto added = additions_to(options, scenario, input, advised);
    std::vector<OutputText> outputs;
    if (options.json) {
        Json json = to_json(scenario, prediction, settings, ends);
        for (const auto& [key, addition] : added) {
            add_if(!addition.json.is_null(), json, key.c_str(), addition.json);
        }
        outputs.push_back({*options.json, json_text(json)});
    }
    if (options.trace) {
        outputs.push_back({*options.trace, best_step_trace(scenario, input, prediction)});
    }
    std::string text = text_report(scenario, prediction, advice_for(destinations, settings), ends,
                                   options.details ? Detail::full : Detail::brief);
    for (const auto& [key, addition] : added) {
        text += addition.text;
    }
    write_outputs(outputs, text);
    return exit_done;
}

}  // namespace

CommandHelp predict_help() {
    const auto o = std::make_shared<PredictOptions>();
    return {.usage = {"bucketwise predict SCENARIO [OPTIONS]"},
            .options = options_of({{"bucket-cap",
                                    "caps to evaluate, such as 1MiB,25MiB; auto: every cap at "
                                    "which the plan changes",
                                    {o->caps, sizes_or_auto, "auto"},
                                    Completions{.names = {"auto"}, .files = false}}},
                                  simulated_rows(o->scenario), predict_rows(*o)),
            .text = predict_text(),
            .arguments = scenarios(),
            .positional = {.value = o->file},
            .required = {"scenario"},
            .wants = "a scenario file or a model's name, got none",
            .run = [o](const CommandLine&) { return run_predict(*o); }};
}

}  // namespace bucketwise
