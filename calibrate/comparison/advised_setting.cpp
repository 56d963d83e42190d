#include "calibrate/comparison/advised_setting.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "calibrate/comparison/decision.h"

namespace bucketwise {
namespace {

bool has_same_plan(const Evaluation& a, const Evaluation& b) {
    return a.sharded ? a.times == b.times && a.memory == b.memory &&
                           a.sharded->groups == b.sharded->groups
                     : a.bucket_bytes == b.bucket_bytes;
}

}  // namespace

std::optional<std::size_t> as_advised(const std::vector<PredictedSetting>& measured,
                                      const Evaluation& advised) {
    const Duration alike = scaled(advised.step(), regret_goal);
    const auto rank = [&](std::size_t i) {
        const auto& [predicted, steps] = measured[i];
        const std::size_t weight = has_same_plan(predicted, advised) ? 2 : 1;
        return std::pair(weight * steps, -predicted.step());
    };
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < measured.size(); ++i) {
        const Evaluation& predicted = measured[i].predicted;
        const Duration apart = std::chrono::abs(predicted.step() - advised.step());
        const bool may = has_same_plan(predicted, advised) || apart <= alike;
        if (may && (!best || rank(i) > rank(*best))) {
            best = i;
        }
    }
    return best;
}

JudgedSetting judged_setting(const std::vector<PredictedSetting>& measured,
                             const Evaluation& advised) {
    const auto fastest = std::ranges::min_element(
        measured, {}, [](const PredictedSetting& setting) { return setting.predicted.step(); });
    const std::size_t index = as_advised(measured, advised)
                                  .value_or(static_cast<std::size_t>(fastest - measured.begin()));
    return {index, has_same_plan(measured[index].predicted, advised),
            std::ranges::any_of(measured, [&](const PredictedSetting& setting) {
                return has_same_plan(setting.predicted, advised);
            })};
}

}  // namespace bucketwise
