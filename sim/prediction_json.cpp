#include "sim/prediction_json.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "sim/settings.h"

namespace bucketwise {
namespace {

Json row(const Evaluation& evaluation) {
    Json sizes = Json::array();
    for (const Bytes size : evaluation.bucket_bytes) {
        sizes.push_back(size.count);
    }
    Json json{{"bucket_cap_mib", mib_or_null(evaluation.cap)},
              {"buckets", evaluation.bucket_bytes.size()},
              {"bucket_bytes", std::move(sizes)},
              {"step_ms", to_ms(evaluation.times.step())},
              {"forward_ms", to_ms(evaluation.times.forward)},
              {"backward_ms", to_ms(evaluation.times.backward)},
              {"optimizer_ms", to_ms(evaluation.times.optimizer)},
              {"communication_ms", to_ms(evaluation.communication)},
              {"exposed_communication_ms", to_ms(evaluation.exposed)}};
    if (evaluation.confidence) {
        json["step_interval_ms"] = {to_ms(evaluation.confidence->low),
                                    to_ms(evaluation.confidence->high)};
        json["expected_regret"] = evaluation.confidence->expected_regret;
    }
    if (evaluation.cap) {
        json["same_plan_mib"] = {to_mib(evaluation.same_plan.lowest),
                                 evaluation.same_plan.highest
                                     ? Json(to_mib(*evaluation.same_plan.highest))
                                     : Json(nullptr)};
    }
    return json;
}

Json settings(const Scenario& scenario, const Prediction& prediction) {
    Json json = Json::object();
    if (!prediction.fastest().cap) {
        return json;
    }
    for (const FrameworkSetting& setting : settings_for(scenario, prediction)) {
        const bool whole = setting.value && *setting.value == std::floor(*setting.value);
        json[std::string(setting.framework)][std::string(setting.key)] =
            !setting.value ? Json(nullptr)
            : whole        ? Json(static_cast<std::int64_t>(*setting.value))
                           : Json(*setting.value);
    }
    return json;
}

}  // namespace

Json mib_or_null(const std::optional<Bytes>& cap) {
    return cap ? Json(typed_mib(*cap)) : Json(nullptr);
}

Json to_json(const Scenario& scenario, const Prediction& prediction) {
    const Evaluation& best = prediction.fastest();
    Json sweep = Json::array();
    for (const Evaluation& evaluation : prediction.sweep) {
        sweep.push_back(row(evaluation));
    }
    Json json{{"scenario", scenario.name},
              {"strategy", name_of(scenario.sync.strategy)},
              {"ranks", scenario.group.ranks},
              {"link", scenario.link.name},
              {"best", row(best)},
              {"default", row(prediction.default_cap)},
              {"keep_default", prediction.keep_default},
              {"plateau_mib",
               {mib_or_null(prediction.sweep[prediction.plateau_low].cap),
                mib_or_null(prediction.sweep[prediction.plateau_high].cap)}},
              {"binding",
               {{"compute_ms", to_ms(prediction.binding.compute)},
                {"communication_ms", to_ms(prediction.binding.communication)},
                {"launch_ms", to_ms(prediction.binding.launch)}}},
              {"every_plan", prediction.every_plan},
              {"sweep", std::move(sweep)},
              {"settings", settings(scenario, prediction)},
              {"notes", prediction.notes}};
    if (prediction.configured) {
        json["configured"] = row(*prediction.configured);
    }
    return json;
}

}  // namespace bucketwise
