// Advice for each framework and wrapper: the setting with the best buckets that its own rule can
// give, and the simulated step.
#pragma once

#include <optional>
#include <vector>

#include "sim/frameworks/sharded_setting.h"
#include "sim/plan/setting_place.h"
#include "sim/plan/strategy.h"
#include "sim/predict/prediction.h"
#include "sim/program/framework.h"
#include "sim/program/program.h"

namespace bucketwise {

// A list of caps that saves less than this, as a share of the step, is not worth typing.
constexpr double noticeable_gain = 1e-3;

// One setting of a framework, simulated.
struct FrameworkChoice {
    std::optional<double> value = {};      // in the framework's own unit; none: left at its default
    std::vector<Bytes> bucket_bytes = {};  // in bucket order
    Duration step{0};
    Bytes buffers = {};  // that a rank holds for buckets: FrameworkStep::buffers()
    bool operator==(const FrameworkChoice&) const = default;
};

// All by the framework's own rules.
struct FrameworkSetting {
    FrameworkUse use;
    FrameworkChoice best;
    FrameworkChoice framework_default;
    std::string typed;                        // the best, as typed in a script or on a command line
    std::string typed_elsewhere;              // in versions with another spelling; empty: none
    std::optional<Duration> cycle;            // Horovod's
    std::optional<Duration> without_overlap;  // Megatron-LM's step without --overlap-grad-reduce
    // PyTorch's list of caps for the ideal plan, where it gains; empty: it does not.
    FrameworkChoice list;
    std::string typed_list;
    // The shortest step over all cuts of these gradients, with the framework's copies, where each
    // bucket goes out once it is full; or the fastest simulated, where the search takes too long.
    Duration ideal{0};
    bool ideal_is_optimum = false;
    CapRange same_plan = {};  // other limits with the best one's buckets, in the rule's unit
    bool operator==(const FrameworkSetting&) const = default;

    // By how much a step is longer than the ideal, as a share of that.
    [[nodiscard]] double loss_of(Duration step) const {
        return ideal == Duration{0}
                   ? 0.0
                   : static_cast<double>(step.count()) / static_cast<double>(ideal.count()) - 1;
    }
};

// By use. Each limit is swept over its distinct plans, as predict() sweeps caps. The fastest wins:
// the default among equals, else the one with fewer buckets. Horovod's cycle is the default or,
// where faster, the best of a few with the default threshold; its threshold is swept at both.
// PyTorch's setting is the advice of `prediction` of the same input, if that is of DDP.
// Throws InputError when a step could last longer than longest_duration.
std::vector<FrameworkSetting> framework_settings(
    const StepInput& input, const SyncRequest& request, const Prediction& prediction,
    const std::vector<FrameworkUse>& uses = every_framework());

struct WrapperSetting {
    SettingPlace place = SettingPlace::accelerate;
    std::string typed = {};               // empty: nothing there sets it
    std::optional<double> mib = {};       // the cap in it, with the buckets of the advised one
    std::vector<std::string> notes = {};  // a sentence each
    bool operator==(const WrapperSetting&) const = default;
};

// `pytorch`: framework_settings() of PyTorch for that request. Precondition (asserted): the place
// is a wrapper.
WrapperSetting wrapper_setting(SettingPlace place, const SyncRequest& request,
                               const FrameworkSetting& pytorch);

// A place to type a setting.
struct Destination {
    SettingPlace place = SettingPlace::pytorch_ddp;
    std::optional<FrameworkVersion> version = {};  // none: the newest
    bool operator==(const Destination&) const = default;
};

// PyTorch, and the place that the scenario comes from; or the strategy's framework.
std::vector<Destination> usual_destinations(const SyncRequest& request);

struct SettingAdvice {
    std::vector<FrameworkSetting> frameworks;
    std::vector<WrapperSetting> wrappers;
    std::vector<ShardedSetting> sharded = {};  // in place of both
};

// Throws as framework_settings().
SettingAdvice setting_advice(const StepInput& input, const SyncRequest& request,
                             const Prediction& prediction,
                             const std::vector<Destination>& destinations);

// Settings that are typed already, simulated beside the best ones.
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

// `limit` in the unit of the framework's rule; none: its default. For PyTorch the request may hold
// a list of caps. Throws as framework_settings().
CheckedSettings checked_settings(const StepInput& input, const SyncRequest& request,
                                 const FrameworkUse& use, std::optional<Bytes> limit);

// The roundest number from `lowest` to `highest`: the smallest with the fewest digits before its
// trailing zeros. Precondition (asserted): 0 < lowest <= highest.
std::int64_t roundest_number(std::int64_t lowest, std::int64_t highest);

}  // namespace bucketwise
