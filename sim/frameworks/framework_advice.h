// What to type into each framework for the best buckets that its own rule can give, and what it
// will then do.
#pragma once

#include <optional>
#include <vector>

#include "sim/frameworks/framework.h"
#include "sim/frameworks/wrapper.h"
#include "sim/plan/setting_place.h"
#include "sim/plan/strategy.h"
#include "sim/predict/prediction.h"
#include "sim/program/program.h"

namespace bucketwise {

// A list of caps that saves less than this, as a share of the step, is not worth typing.
constexpr double noticeable_gain = 1e-3;

// By use. Each one's limit is swept over its distinct plans, as predict() sweeps caps, and
// the fastest taken: the default among equals, else the one with fewer buckets. Horovod's cycle is
// the default, or where that is faster, the best of a few with the default threshold; its threshold
// is swept at both. PyTorch's is what `prediction` of the same input advises where that is of DDP.
// Throws InputError when a step could last longer than longest_duration.
std::vector<FrameworkSetting> framework_settings(
    const StepInput& input, const SyncRequest& request, const Prediction& prediction,
    const std::vector<FrameworkUse>& uses = every_framework());

// Where what to type is asked for.
struct Destination {
    SettingPlace place = SettingPlace::pytorch_ddp;
    std::optional<FrameworkVersion> version = {};  // none: the newest
    bool operator==(const Destination&) const = default;
};

// PyTorch, and what the scenario says that it comes from.
std::vector<Destination> usual_destinations(const SyncRequest& request);

// What to type there, each in its order.
struct SettingAdvice {
    std::vector<FrameworkSetting> frameworks;
    std::vector<WrapperSetting> wrappers;
};

// Throws as framework_settings().
SettingAdvice setting_advice(const StepInput& input, const SyncRequest& request,
                             const Prediction& prediction,
                             const std::vector<Destination>& destinations);

// Settings that somebody has typed, simulated, beside the best ones.
struct CheckedSettings {
    FrameworkChoice typed;
    std::optional<Duration> backward = {};  // until all is reduced and in place; none: not known
    FrameworkSetting best;

    // By how much a step is longer with them than with the best, as a share.
    [[nodiscard]] double cost() const {
        return best.best.step == Duration{0} ? 0.0
                                             : static_cast<double>(typed.step.count()) /
                                                       static_cast<double>(best.best.step.count()) -
                                                   1;
    }
};

// `limit` in what the framework's rule counts; none: its default. Of PyTorch a list of caps may be
// in the request. Throws as framework_settings().
CheckedSettings checked_settings(const StepInput& input, const SyncRequest& request,
                                 const FrameworkUse& use, std::optional<Bytes> limit);

// The roundest number from `lowest` to `highest`: one with the fewest digits that are not trailing
// zeros, of those the smallest. Precondition (asserted): 0 < lowest <= highest.
std::int64_t roundest_number(std::int64_t lowest, std::int64_t highest);

}  // namespace bucketwise
