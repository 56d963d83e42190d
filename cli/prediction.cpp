#include "cli/prediction.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "cli/shell/progress.h"
#include "sim/base/error.h"
#include "sim/base/invariant.h"
#include "sim/base/transformed.h"
#include "sim/frameworks/sharded_setting.h"
#include "sim/report/misfit.h"

namespace bucketwise {
namespace {

[[noreturn]] void refuse_to_trace() {
    throw InputError("--trace", "", "a step of at most 1,000,000 operations", "a longer one");
}

// "layers.0, layers.1"; "root".
std::string name_of_group(const ShardGroup& group) {
    return group.is_root() ? "root" : fmt::format("{}", fmt::join(group.modules, ", "));
}

std::string sharded_trace(const std::string& name, const ShardedInput& input,
                          const std::vector<TraceProcess>& beside) {
    constexpr std::size_t most_instructions = 1'000'000;
    const Program program = sharded_program(input);
    if (program.instructions.size() > most_instructions) {
        refuse_to_trace();
    }
    return perfetto_trace(name, input.step, program, sharded_simulation(input, program), beside,
                          transformed(make_shard_plan(input).groups, name_of_group));
}

std::string trace_of(const std::string& name, const Scenario& scenario, const StepInput& input,
                     Cap cap, const std::optional<ShardingRequest>& sharding,
                     const std::vector<TraceProcess>& beside) {
    if (sharding) {
        return sharded_trace(name, {input, *sharding}, beside);
    }
    if (!can_be_traced(input)) {
        refuse_to_trace();
    }
    const Evaluator evaluator(input, scenario.sync);
    const Program program = evaluator.program(cap);
    return perfetto_trace(name, input, program, evaluator.simulation(program), beside);
}

}  // namespace

Prediction predict_any(const Scenario& scenario, const StepInput& input,
                       const std::vector<Bytes>& caps, const Progress& progress) {
    return scenario.sharding ? predict_sharded(scenario, {input, *scenario.sharding}, progress)
                             : predict(input, scenario.sync, caps, progress);
}

AdvisedPrediction predict_with_progress(const Scenario& scenario, const StepInput& input,
                                        const std::vector<Bytes>& caps,
                                        const std::vector<Destination>& destinations) {
    PercentLine line(scenario.sharding ? "simulating groupings" : "simulating bucket plans");
    AdvisedPrediction advised;
    advised.prediction = predict_any(scenario, input, caps, [&](double done) { line(done); });
    advised.ends = preset_ends(scenario, input, advised.prediction);
    if (!scenario.sharding || !advised.prediction.best_fits) {
        Misfit misfit = misfit_of(scenario, [&](double done) { line(done); });
        advised.prediction.misfit = std::move(misfit.text);
        advised.knobs = std::move(misfit.knobs);
    }
    if (const auto& sharded = advised.prediction.advised().sharded;
        sharded && advised.prediction.misfit.empty()) {
        advised.settings.sharded = sharded_settings({input, sharded->request});
    } else if (!advised.prediction.chosen().cap.is_none() && advised.prediction.misfit.empty()) {
        advised.settings = setting_advice(input, scenario.sync, advised.prediction, destinations);
    }
    return advised;
}

StepInput simulated_input(const Scenario& scenario) {
    return scenario.sharding ? sharded_input(scenario).step : step_input(scenario);
}

OptimalPlan optimal_plan_with_progress(const Scenario& scenario, const StepInput& input,
                                       const Prediction& prediction) {
    PercentLine line("searching for the optimal plan");
    OptimalPlan optimum = optimal_plan(input, scenario.sync, [&](double done) { line(done); });
    const auto beats_bound = [&](const Evaluation& evaluation) {
        return evaluation.times.step() < optimum.bound;
    };
    invariant(std::ranges::none_of(prediction.sweep, beats_bound) &&
                  !beats_bound(prediction.default_cap) &&
                  !(prediction.configured && beats_bound(*prediction.configured)),
              "no plan that is shown is faster than the bound");
    return optimum;
}

bool can_be_traced(const StepInput& input) {
    constexpr std::int64_t most_operations = 1'000'000;
    return input.step.accumulation *
               (std::ssize(input.workload.forward) + std::ssize(input.workload.backward)) <=
           most_operations;
}

std::string best_step_trace(const Scenario& scenario, const StepInput& input,
                            const Prediction& prediction) {
    const Evaluation& row = prediction.advised();
    return trace_of(scenario.name, scenario, input, row.cap,
                    row.sharded ? std::optional(row.sharded->request) : std::nullopt, {});
}

std::string step_trace_beside(const Scenario& scenario, const StepInput& input, Cap cap,
                              const std::optional<ShardingRequest>& sharding,
                              const TraceProcess& real) {
    return trace_of("predicted: " + scenario.name, scenario, input, cap, sharding, {real});
}

}  // namespace bucketwise
