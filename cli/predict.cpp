// bucketwise predict SCENARIO: simulate the step at every cap that matters and say which is best.
#include <algorithm>
#include <iterator>
#include <optional>

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/prediction.h"
#include "cli/sharded_predict.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/read_files.h"
#include "cli/shell/scenario_document.h"
#include "cli/shell/size.h"
#include "sim/base/json_input.h"
#include "sim/frameworks/framework_advice.h"
#include "sim/optimum/optimal_plan.h"
#include "sim/plan/setting_place.h"
#include "sim/plan/strategy.h"
#include "sim/predict/percentiles.h"
#include "sim/predict/prediction.h"
#include "sim/report/optimal_report.h"
#include "sim/report/prediction_json.h"
#include "sim/report/report.h"
#include "sim/report/sharded_report.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::string_view predict_examples = R"(
examples:
  bucketwise predict resnet50 --ranks 8 --link nvlink-h100-8
  bucketwise predict scenarios/resnet50_8xh100.json
  bucketwise predict scenarios/compare_ddp_async.json --bucket-cap 12MiB,24MiB --json -
  bucketwise predict scenarios/cs336_xl.json --set /cluster/ranks=8 --trace step.json
  bucketwise predict scenarios/resnet50_8xh100.json --plan optimal
)";

// The examples, and what --strategy and the key may say.
const std::string& predict_text() {
    static const std::string text = [] {
        std::string listed = std::string(predict_examples) +
                             "\n"
                             "SCENARIO is a file, or the name of a model that ships; what is then "
                             "assumed is printed "
                             "as a note.\n\nstrategies, for --strategy, --set /sync/strategy=... "
                             "or the scenario's key:\n";
        for (const Strategy strategy : every<Strategy>) {
            listed += fmt::format("  {:<20} {}\n", name_of(strategy),
                                  strategy_texts[static_cast<std::size_t>(strategy)]);
        }
        for (const ShardedStrategy strategy : every<ShardedStrategy>) {
            listed += fmt::format("  {:<20} {}\n", name_of(strategy),
                                  sharded_strategy_texts[static_cast<std::size_t>(strategy)]);
        }
        return listed;
    }();
    return text;
}

po::options_description predict_options() {
    po::options_description options("options");
    add_options(options, {{"bucket-cap",
                           "caps to evaluate, such as 1MiB,25MiB; auto: every cap at which the "
                           "plan changes",
                           "auto"}});
    add_scenario_options(options);
    add_workload_options(options);
    add_options(
        options,
        {ranks_option,
         {"plan",
          "optimal: also the best of all ways to form buckets, a bound that none can beat, and how "
          "far the others are from it"},
         {"for",
          "also what to type there: frameworks and wrappers between commas, such as "
          "deepspeed_zero2,lightning, or all; NAME=VERSION asks for a version's rule",
          many_values},
         {"compare-strategies",
          "also the same step with other strategies, between commas: ddp, fsdp, hsdp, zero3, each "
          "with its best setting"},
         {"framework", "the same of one framework, such as deepspeed_zero2=0.14.3", many_values},
         {"json", "write the prediction as JSON; - is standard output"},
         {"trace", "write the advised step as a trace for ui.perfetto.dev; - is standard output"},
         {"percentiles",
          "draw single steps from the scenario's variation: p50, p90, p95 and p99 of the step",
          no_value},
         {"draws", "how many, with --percentiles; 1000 if left out"},
         {"details",
          "print all: every cap that tells something, how sure the choice is, where the link is "
          "from",
          no_value},
         nccl_version_option,
         help_option});
    return options;
}

std::vector<Bytes> requested_caps(const po::variables_map& values, Scenario& scenario) {
    const std::string& text = text_value(values, "bucket-cap");
    if (text == "auto") {
        return {};
    }
    std::vector<Bytes> caps = parse_sizes(text, "--bucket-cap");
    scenario.sync = without_list(scenario.sync);
    if (!has_cap(scenario.sync)) {
        throw UsageError{fmt::format("--bucket-cap: expected a strategy with a bucket cap, got {}",
                                     name_of(scenario.sync.strategy))};
    }
    check_caps(caps, scenario.sync);
    return caps;
}

// Throws what is wrong with asking for them before anything is simulated. None: not asked for.
std::optional<std::int64_t> requested_draws(const po::variables_map& values,
                                            const std::string& file, const Scenario& scenario) {
    constexpr std::int64_t default_draws = 1000;
    constexpr std::int64_t most_draws = 1'000'000;
    if (values.count("percentiles") == 0) {
        if (values.count("draws") != 0) {
            throw UsageError{"--draws: expected --percentiles beside it, got none"};
        }
        return std::nullopt;
    }
    if (!steps_vary(scenario.variation.value_or(Variation{}))) {
        throw InputError(file, "/variation",
                         "a spread, or a straggler_probability, above 0 for --percentiles",
                         scenario.variation ? "none above 0" : "none");
    }
    return optional_number(values, "draws", {1, most_draws}).value_or(default_draws);
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

std::vector<Destination> requested_destinations(const po::variables_map& values,
                                                const SyncRequest& sync) {
    std::vector<Destination> destinations = usual_destinations(sync);
    for (const std::string& list : texts_value(values, "for")) {
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
    for (const std::string& text : texts_value(values, "framework")) {
        add_destination(destination_from(text, frameworks, "--framework"), destinations);
    }
    return destinations;
}

// With all frameworks, for a file that programs read.
std::vector<Destination> with_every_framework(std::vector<Destination> destinations) {
    for (const Framework framework : every<Framework>) {
        add_destination({static_cast<SettingPlace>(framework)}, destinations);
    }
    return destinations;
}

// What of it was asked for.
SettingAdvice advice_for(const std::vector<Destination>& destinations, SettingAdvice advice) {
    std::erase_if(advice.frameworks, [&](const FrameworkSetting& setting) {
        return std::ranges::none_of(destinations, [&](const Destination& destination) {
            return framework_at(destination.place) == setting.use.framework;
        });
    });
    return advice;
}

// Whether the optimal plan is asked for.
bool wants_optimal_plan(const po::variables_map& values) {
    const std::string plan = text_or_empty(values, "plan");
    if (values.count("plan") != 0 && plan != "optimal") {
        throw UsageError{fmt::format("--plan: expected optimal, got {}", plan)};
    }
    return !plan.empty();
}

}  // namespace

CommandHelp predict_help() {
    return {.usage = {"bucketwise predict SCENARIO [OPTIONS]"},
            .options = predict_options(),
            .text = predict_text(),
            .arguments = scenarios(),
            .values = {{"bucket-cap", {.names = {"auto"}, .files = false}},
                       {"nccl-version", one_of(every<NcclVersion>)},
                       {"plan", {.names = {"optimal"}, .files = false}},
                       {"for", one_of(every<SettingPlace>)},
                       {"framework", one_of(every<Framework>)},
                       {"compare-strategies", some_of(every<ComparedStrategy>)}},
            .required = {"scenario"},
            .wants = "a scenario file or a model's name, got none"};
}

int run_predict(const CommandLine& line) {
    const po::variables_map& values = line.values;
    const std::string& file = text_value(values, "scenario");
    const bool with_optimum = wants_optimal_plan(values);
    check_one_printed(values, "predict", "json", "trace");
    Scenario scenario = parse_scenario(read_simulated_document(values, file), file, read_text_file,
                                       StrategyKinds::all);
    change_nccl_version(values, scenario.link);
    refuse_overwriting({text_or_empty(values, "json"), text_or_empty(values, "trace")});
    if (scenario.sharding) {
        return predict_sharded_scenario(line, scenario);
    }
    const std::vector<Bytes> caps = requested_caps(values, scenario);
    const std::optional<std::int64_t> draws = requested_draws(values, file, scenario);
    const StepInput input = step_input(scenario);
    const std::vector<Destination> destinations = requested_destinations(values, scenario.sync);
    const auto [prediction, settings, ends] = predict_with_progress(
        scenario, input, caps,
        values.count("json") == 0 ? destinations : with_every_framework(destinations));
    std::optional<PercentileTable> percentiles;
    if (draws) {
        percentiles = percentile_table(input, scenario.sync, prediction, *draws);
    }
    std::optional<OptimalPlan> optimum;
    if (with_optimum) {
        optimum = optimal_plan_with_progress(scenario, input, prediction);
    }
    const std::vector<StrategyRow> compared = compared_strategies(values, scenario);
    std::vector<OutputText> outputs;
    if (values.count("json") != 0) {
        Json json = to_json(scenario, prediction, settings, ends);
        if (percentiles) {
            json["percentiles"] = to_json(*percentiles);
        }
        if (optimum) {
            json["optimal"] = to_json(*optimum);
        }
        if (!compared.empty()) {
            json["strategies"] = to_json(compared);
        }
        outputs.push_back({text_value(values, "json"), json_text(json)});
    }
    if (values.count("trace") != 0) {
        outputs.push_back(
            {text_value(values, "trace"), best_step_trace(scenario, input, prediction)});
    }
    const Detail detail = values.count("details") == 0 ? Detail::brief : Detail::full;
    write_outputs(outputs, text_report(scenario, prediction, advice_for(destinations, settings),
                                       ends, detail) +
                               (percentiles ? text_of(*percentiles) : "") +
                               (optimum ? optimal_text(scenario, *optimum) : "") +
                               (compared.empty() ? "" : comparison_text(compared)));
    return exit_done;
}

}  // namespace bucketwise
