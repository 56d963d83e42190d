#include "sim/report/prediction_json.h"

#include <cmath>

#include <fmt/format.h>

#include "sim/base/json_output.h"
#include "sim/report/lever_text.h"
#include "sim/report/verdict.h"
#include "sim/scenario/sharding_input.h"

namespace bucketwise {
namespace {

Json share_json(const DrawnShare& share) {
    return Json{share.low, share.high};
}

Json binding_json(const Binding& binding) {
    return {{"compute_ms", to_ms(binding.compute)},
            {"communication_ms", to_ms(binding.communication)},
            {"launch_ms", to_ms(binding.launch)}};
}

Json sharded_json(const Evaluation& row) {
    const auto& [request, groups, largest_gather, memory] = *row.sharded;
    Json held = Json::object();
    for (const ShardedTensor tensor : every<ShardedTensor>) {
        held[std::string(name_of(tensor)) + "_bytes"] = memory.of(tensor).count;
    }
    return {{"sharding", sharding_json(request)},           {"groups", groups},
            {"largest_gather_bytes", largest_gather.count}, {"memory", to_json(*row.memory)},
            {"sharded_peak_bytes", memory.peak.count},      {"at_sharded_peak", held}};
}

Json cap_json(const Evaluation& row) {
    Json json{{"bucket_cap_mib", mib_or_null(row.cap.size())},
              {"buckets", row.bucket_bytes.size()},
              {"bucket_bytes", json_list(row.bucket_bytes, byte_count)}};
    if (!row.cap.is_none()) {
        json["same_plan_mib"] = {
            to_mib(row.same_plan.lowest),
            row.same_plan.highest ? Json(to_mib(*row.same_plan.highest)) : Json(nullptr)};
    }
    return json;
}

Json row_json(const Evaluation& row) {
    Json json = row.sharded ? sharded_json(row) : cap_json(row);
    json.update({{"step_ms", to_ms(row.step())},
                 {"forward_ms", to_ms(row.times.forward)},
                 {"backward_ms", to_ms(row.times.backward)},
                 {"optimizer_ms", to_ms(row.times.optimizer)},
                 {"communication_ms", to_ms(row.communication)},
                 {"exposed_communication_ms", to_ms(row.exposed)}});
    if (row.confidence) {
        add_optional(json, "step_interval_ms", row.confidence->interval,
                     [](const StepInterval& of) {
                         return Json{to_ms(of.low), to_ms(of.high)};
                     });
        json["expected_regret"] = row.confidence->regret.expected;
        json["expected_regret_95"] = row.confidence->regret.most;
    }
    add_optional(json, "saved_at_ends", row.saved_at_ends, share_json);
    return json;
}

Json number(double value) {
    return value == std::floor(value) ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

Json choice(const FrameworkSetting& setting, const FrameworkChoice& choice) {
    return {{"buckets", choice.bucket_bytes.size()},
            {"bucket_bytes", json_list(choice.bucket_bytes, byte_count)},
            {"step_ms", to_ms(choice.step)},
            {"buffer_bytes", choice.buffers.count},
            {"loss", setting.loss_of(choice.step)}};
}

Json setting_json(const FrameworkSetting& setting) {
    const FrameworkRule& rule = rule_of(setting.use);
    const std::string key(rule.key);
    Json json = choice(setting, setting.best);
    json[key] = setting.best.value ? number(*setting.best.value) : Json(nullptr);
    json["typed"] = setting.typed;
    json["ideal_step_ms"] = to_ms(setting.ideal);
    json["ideal"] = setting.ideal_is_optimum ? "optimum" : "best simulated";
    json["assumes"] = rule.assumes;
    json["versions"] = {version_text(oldest_version(setting.use.framework)),
                        version_text(rule.newest)};
    json["default"] = choice(setting, setting.framework_default);
    json["default"][key] = number(setting.framework_default.value.value_or(0));
    add_unless_empty(json, "typed_elsewhere", setting.typed_elsewhere);
    add_optional(json, "HOROVOD_CYCLE_TIME", setting.cycle, to_ms);
    add_optional(json, "without_overlap_step_ms", setting.without_overlap, to_ms);
    if (!setting.typed_list.empty()) {
        json["list"] = choice(setting, setting.list);
        json["list"]["typed"] = setting.typed_list;
    }
    return json;
}

Json wrapper_json(const WrapperSetting& wrapper) {
    Json json{{"typed", wrapper.typed}, {"notes", wrapper.notes}};
    add_optional(json, "bucket_cap_mib", wrapper.mib);
    return json;
}

Json prior_end_json(const PriorEnd& end) {
    return {{"end", name_of(end.end)},
            {"best", row_json(end.best)},
            {"advised_step_ms", to_ms(end.with_choice)},
            {"regret", end.regret()}};
}

Json percentiles_json(const PercentileRow& row) {
    Json json{{"p50_ms", to_ms(row.steps.p50)},
              {"p90_ms", to_ms(row.steps.p90)},
              {"p95_ms", to_ms(row.steps.p95)},
              {"p99_ms", to_ms(row.steps.p99)}};
    if (row.sharding) {
        json["sharding"] = sharding_json(*row.sharding);
    } else {
        json["bucket_cap_mib"] = mib_or_null(row.cap.size());
    }
    return json;
}

Json doubt_json(const OverlapDoubt& doubt) {
    Json json{{"buckets", doubt.larger_buckets ? "larger" : "smaller"},
              {"saved_at_ends", share_json(doubt.saved)}};
    if (doubt.cost) {
        json.update({{"assumption", name_of(doubt.cost->cost)},
                     {"assumed", doubt.cost->assumed},
                     {"turns_at", doubt.cost->turns},
                     {"keep_default", doubt.cost->saves_above ? "below" : "above"}});
    }
    return json;
}

Json verdict_json(const PredictedVerdict& verdict, const Prediction& prediction) {
    Json json{{"advice", name_of(verdict.advice)}, {"text", verdict.text}};
    add_optional(json, "saved_95", verdict.saved, share_json);
    if (verdict.advice == Advice::cannot_tell) {
        json["hangs_on"] = doubt_json(*prediction.doubt);
    }
    return json;
}

Json lever_json(const Scenario& scenario, const Lever& lever) {
    Json json{{"step_ms", to_ms(lever.step)},
              {"saved", lever.typical},
              {"saved_at_ends", share_json(lever.saved)},
              {"memory_bytes", lever.memory},
              {"changes", Json::array()}};
    for (const LeverChange& change : lever.changes) {
        Json one{{"knob", name_of(change.kind)},
                 {"value", change.value},
                 {"text", lever_name(scenario, change)},
                 {"typed", lever_typed(scenario, change)}};
        const std::string cost = lever_cost(scenario, change);
        add_if(!cost.empty(), one, "cost", cost);
        json["changes"].push_back(std::move(one));
    }
    return json;
}

Json levers_json(const Scenario& scenario, const Levers& levers) {
    const auto one = [&](const Lever& lever) { return lever_json(scenario, lever); };
    Json json{{"alone", json_list(levers.alone, one)}};
    add_optional(json, "together", levers.together, one);
    add_unless_empty(json, "others", json_list(levers.others, one));
    return json;
}

void add_settings(const SettingAdvice& settings, Json& json) {
    for (const FrameworkSetting& setting : settings.frameworks) {
        json["settings"][std::string(name_of(setting.use.framework))] = setting_json(setting);
    }
    for (const WrapperSetting& wrapper : settings.wrappers) {
        json["wrappers"][std::string(name_of(wrapper.place))] = wrapper_json(wrapper);
    }
    for (const ShardedSetting& setting : settings.sharded) {
        json["settings"][setting.place] = {
            {"typed", fmt::format("{}", fmt::join(setting.lines, "\n"))}, {"note", setting.note}};
    }
}

}  // namespace

Json to_json(const Scenario& scenario, const std::vector<Lever>& levers) {
    return json_list(levers, [&](const Lever& lever) { return lever_json(scenario, lever); });
}

Json to_json(const MemoryNeed& need) {
    Json json{{"parameters_bytes", need.parameters.count},
              {"gradients_bytes", need.gradients.count},
              {"buckets_bytes", need.buckets.count},
              {"cast_buckets_bytes", need.hook_copies.count},
              {"most_bytes", need.most().count}};
    add_optional(json, "optimizer_state_bytes", need.optimizer_state, byte_count);
    add_optional(json, "activations_bytes", need.activations, byte_count);
    if (need.recomputed) {
        json["recomputing_activations_bytes"] = need.recomputed->activations.count;
    }
    if (need.device) {
        json["device_bytes"] = need.device->count;
        json["fits"] = need.fits();
    }
    return json;
}

Json mib_or_null(const std::optional<Bytes>& cap) {
    return cap ? Json(typed_mib(*cap)) : Json(nullptr);
}

Json to_json(const Scenario& scenario, const Prediction& prediction, const SettingAdvice& settings,
             const PriorEnds& ends) {
    const PredictedVerdict verdict = verdict_of(scenario, prediction);
    Json json{{"format", prediction_format},
              {"verdict", verdict_json(verdict, prediction)},
              {"scenario", scenario.name},
              {"strategy", strategy_of(scenario)},
              {"ranks", scenario.group.ranks},
              {"link", scenario.link.name},
              {"best", row_json(prediction.chosen())},
              {"binding", binding_json(prediction.binding)},
              {"sweep", json_list(prediction.sweep, row_json)},
              {"settings", Json::object()},
              {"notes", notes_of(scenario, prediction.notes)}};
    add_settings(settings, json);
    add_if(prediction.levers != Levers{}, json, "levers", levers_json(scenario, prediction.levers));
    if (!ends.link.empty()) {
        json["link_preset"] = {{"name", scenario.link.preset},
                               {"ends", json_list(ends.link, prior_end_json)}};
    }
    if (!ends.device.empty()) {
        json["device_preset"] = {{"name", device_of(scenario)->name},
                                 {"ends", json_list(ends.device, prior_end_json)}};
    }
    add_optional(json, "configured", prediction.configured, row_json);
    add_optional(json, "with_ddp", prediction.with_ddp, row_json);
    if (scenario.sharding) {
        json["sharded"] = true;
        json["frontier"] = json_list(
            prediction.frontier, [&](std::size_t row) { return row_json(prediction.sweep[row]); });
        return json;
    }
    json["default"] = row_json(prediction.default_cap);
    json["keep_default"] = prediction.keep_default;
    json["plateau_mib"] = {mib_or_null(prediction.sweep[prediction.plateau_low].cap.size()),
                           mib_or_null(prediction.sweep[prediction.plateau_high].cap.size())};
    json["every_plan"] = prediction.every_plan;
    json["memory"] = to_json(memory_need(scenario));
    return json;
}

Json to_json(const PercentileTable& table) {
    return {{"draws", table.draws},
            {"chosen", percentiles_json(table.rows[table.chosen])},
            {"default", percentiles_json(table.rows[table.default_row()])},
            {"best_p50", percentiles_json(table.rows[table.best_p50])},
            {"best_p99", percentiles_json(table.rows[table.best_p99])},
            {table.rows.front().sharding ? "shardings" : "caps",
             json_list(table.rows, percentiles_json)}};
}

Json to_json(const OptimalGroups& optimum) {
    Json json = row_json(optimum.evaluation);
    json["evaluations"] = optimum.evaluations;
    return json;
}

Json to_json(const std::vector<StrategyRow>& rows) {
    return json_list(rows, [](const StrategyRow& row) {
        Json json{{"strategy", name_of(row.strategy)},
                  {"step_ms", to_ms(row.best.step())},
                  {"exposed_communication_ms", to_ms(row.best.exposed)},
                  {"memory_bytes", row.best.peak().count},
                  {"fits", row.best.fits()}};
        add_optional(json, "bucket_cap_mib", row.best.cap.size(), to_mib);
        add_optional(json, "sharding", row.best.sharded,
                     [](const ShardedRow& sharded) { return sharding_json(sharded.request); });
        return json;
    });
}

}  // namespace bucketwise
