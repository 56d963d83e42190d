// What to type where PyTorch's DistributedDataParallel is not called by hand: in a wrapper's
// spelling, its traps handled. Versions, and how each was checked: docs/frameworks.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/frameworks/framework.h"
#include "sim/plan/setting_place.h"
#include "sim/plan/strategy.h"

namespace bucketwise {

struct WrapperSetting {
    SettingPlace place = SettingPlace::accelerate;
    std::string typed = {};               // empty: nothing there sets it
    std::optional<double> mib = {};       // the cap in it, of the same buckets as the advised one
    std::vector<std::string> notes = {};  // what to know of it, a sentence each
    bool operator==(const WrapperSetting&) const = default;
};

// `pytorch` is what framework_settings() says of PyTorch for that request. Precondition (asserted):
// the place is a wrapper.
WrapperSetting wrapper_setting(SettingPlace place, const SyncRequest& request,
                               const FrameworkSetting& pytorch);

}  // namespace bucketwise
