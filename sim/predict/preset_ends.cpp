#include "sim/predict/preset_ends.h"

#include <cmath>
#include <optional>
#include <utility>

#include "sim/engine/step_loop.h"
#include "sim/link/link_presets.h"
#include "sim/predict/planned_setting.h"

namespace bucketwise {
namespace {

// Equal steps: the cap that is shortest to type.
Cap fastest_cap(Evaluator& evaluator, const std::vector<Evaluation>& sweep) {
    std::optional<std::pair<Duration, int>> least;
    Cap fastest = sweep.front().cap;
    for (const Evaluation& row : sweep) {
        const std::pair rank(evaluator.step(row.cap),
                             digits_to_type(row.cap.size().value_or(default_bucket_cap)));
        if (!least || rank < *least) {
            least = rank;
            fastest = row.cap;
        }
    }
    return fastest;
}

PriorEnd at_end(const StepInput& input, const SyncRequest& request, const Prediction& prediction,
                PresetEnd end) {
    const Cap choice = prediction.advised().cap;
    const bool leaves_default = choice.is_default() && has_cap(request);
    Evaluator evaluator(input, request);
    Evaluator defaults(input, without_caps(request));
    const Evaluation best_cap = evaluator.evaluate(fastest_cap(evaluator, prediction.sweep));
    const Evaluation default_cap = defaults.evaluate(Cap());
    return {end, default_cap.step() < best_cap.step() ? default_cap : best_cap,
            leaves_default ? default_cap.step() : evaluator.step(choice)};
}

PriorEnd sharded_at_end(const Scenario& scenario, const StepInput& there,
                        const Prediction& prediction, PresetEnd end) {
    ShardedInput input{there, *scenario.sharding};
    PriorEnd result;
    result.end = end;
    std::optional<std::pair<bool, Duration>> least;  // does not fit, step
    ShardingRequest best;
    for (const std::size_t i : rows_that_matter(prediction)) {
        const ShardingRequest& request = prediction.sweep[i].sharded->request;
        const StepParts parts = PlannedSetting(input.step, request).parts(input.step);
        const Duration step = StepToClose(parts.before).step_closed_by(parts.closing);
        if (i == prediction.best) {
            result.with_choice = step;
        }
        const std::pair rank(!prediction.sweep[i].fits(), step);
        if (!least || rank < *least) {
            least = rank;
            best = request;
        }
    }
    input.request = best;
    result.best = evaluate_sharded(scenario, input);
    return result;
}

// A preset has no interference: computing and collectives cost each other the same at both ends.
LinkParameters link_at(const LinkPreset& preset, PresetEnd end, const LinkParameters& typical) {
    LinkParameters link = preset_end(preset, end, typical);
    link.interference = typical.interference;
    link.assumes_interference = typical.assumes_interference;
    return link;
}

enum class Preset : std::uint8_t { link, device };

// Calls visit(preset, scenario, input) at this end of each preset that the scenario uses.
template <typename Visit>
void visit_ends(const Scenario& scenario, const StepInput& input, PresetEnd end,
                const Visit& visit) {
    const LinkPreset* preset =
        scenario.link.preset.empty() ? nullptr : find_preset(scenario.link.preset);
    if (preset != nullptr) {
        Scenario there = scenario;
        there.link = link_at(*preset, end, input.link);
        if (scenario.sharding) {  // groups and replicas have their own parts of it
            visit(Preset::link, there, sharded_input(there, input.workload).step);
        } else {
            StepInput input_there = input;
            input_there.link = there.link;
            visit(Preset::link, there, input_there);
        }
    }
    if (has_prior_computing(scenario)) {
        const Scenario there = at_device_end(scenario, end);
        visit(Preset::device, there,
              there.sharding ? sharded_input(there).step : step_input(there));
    }
}

}  // namespace

PriorEnds preset_ends(const Scenario& scenario, const StepInput& input,
                      const Prediction& prediction) {
    PriorEnds ends;
    const auto at = [&](const Scenario& there, const StepInput& input_there, PresetEnd end) {
        return scenario.sharding ? sharded_at_end(there, input_there, prediction, end)
                                 : at_end(input_there, scenario.sync, prediction, end);
    };
    for (const PresetEnd end : {PresetEnd::slow, PresetEnd::fast}) {
        visit_ends(scenario, input, end,
                   [&](Preset preset, const Scenario& there, const StepInput& input_there) {
                       (preset == Preset::link ? ends.link : ends.device)
                           .push_back(at(there, input_there, end));
                   });
    }
    return ends;
}

std::optional<StepRange> step_range(
    const Scenario& scenario, const StepInput& input, Duration step,
    const std::function<Duration(const Scenario&, const StepInput&)>& step_at) {
    bool has_presets = false;
    const auto limit = [&](PresetEnd end) {
        double squares = 0;
        visit_ends(
            scenario, input, end, [&](Preset, const Scenario& there, const StepInput& input_there) {
                has_presets = true;
                const double ratio = static_cast<double>(step_at(there, input_there).count()) /
                                     static_cast<double>(std::max<std::int64_t>(step.count(), 1));
                squares += std::pow(std::log(ratio), 2);
            });
        return scaled(step, std::exp((end == PresetEnd::slow ? 1 : -1) * std::sqrt(squares)));
    };
    const Duration high = limit(PresetEnd::slow);
    const Duration low = limit(PresetEnd::fast);
    return has_presets ? std::optional(StepRange{low, high}) : std::nullopt;
}

}  // namespace bucketwise
