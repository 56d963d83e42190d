#include "sim/predict/preset_ends.h"

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

PriorEnd sharded_at_end(const Scenario& scenario, const Prediction& prediction, PresetEnd end) {
    ShardedInput input = sharded_input(scenario);
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

Scenario with_link(Scenario scenario, const LinkParameters& link) {
    scenario.link = link;
    return scenario;
}

}  // namespace

PriorEnds preset_ends(const Scenario& scenario, const StepInput& input,
                      const Prediction& prediction) {
    PriorEnds ends;
    const auto at = [&](const Scenario& there, const auto& input_there, PresetEnd end) {
        return scenario.sharding ? sharded_at_end(there, prediction, end)
                                 : at_end(input_there(), scenario.sync, prediction, end);
    };
    const LinkPreset* preset =
        scenario.link.preset.empty() ? nullptr : find_preset(scenario.link.preset);
    for (const PresetEnd end : {PresetEnd::slow, PresetEnd::fast}) {
        if (preset != nullptr) {
            StepInput there = input;
            there.link = link_at(*preset, end, input.link);
            ends.link.push_back(at(
                with_link(scenario, there.link), [&] { return there; }, end));
        }
        if (has_prior_computing(scenario)) {
            const Scenario there = at_device_end(scenario, end);
            ends.device.push_back(at(
                there, [&] { return step_input(there); }, end));
        }
    }
    return ends;
}

}  // namespace bucketwise
