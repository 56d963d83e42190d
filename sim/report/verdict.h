// The sentence that a prediction begins with: what to do, what it brings, and how sure that is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/names.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

enum class Advice : std::uint8_t {
    set_cap,
    keep_default,
    no_choice,  // the strategy has no cap, or a list of caps is given
    withheld    // what the prediction is made of is known to be too weak
};

template <>
inline constexpr auto names_of<Advice> = names("set_cap", "keep_default", "no_choice", "withheld");

struct PredictedVerdict {
    Advice advice = Advice::no_choice;
    std::string text;  // whole sentences
    // What the advised cap saves of the default's step: between what 95 % of cases lie by the
    // model's declared error. None: there is no cap to choose, or it is the default.
    std::optional<DrawnShare> saved = {};
    bool operator==(const PredictedVerdict&) const = default;
};

PredictedVerdict verdict_of(const Scenario& scenario, const Prediction& prediction);

// The sentence where nothing is to be advised. Precondition: a reason.
std::string withheld_text(const std::vector<std::string>& reasons);

// "bucket_cap_mb=4" of PyTorch's DistributedDataParallel, else "a bucket cap of 4 MiB".
std::string cap_to_set_text(Strategy strategy, Bytes cap);

}  // namespace bucketwise
