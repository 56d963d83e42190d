// The first sentence of a prediction: the advice, its gain, and its certainty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/names.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

enum class Advice : std::uint8_t {
    set_cap,
    keep_default,
    no_choice,     // the strategy has no cap, or a list of caps is given
    withheld,      // the prediction's inputs are known to be too weak
    cannot_tell,   // the default is kept, as it hangs on what nobody measured
    set_sharding,  // another setting of sharding than the scenario's
    keep_sharding,
    does_not_fit  // into the device's memory; no setting of sharding does
};

template <>
inline constexpr auto names_of<Advice> = names("set_cap", "keep_default", "no_choice", "withheld",
                                               "cannot_tell", "set_sharding", "keep_sharding",
                                               "does_not_fit");

struct PredictedVerdict {
    Advice advice = Advice::no_choice;
    std::string text;  // whole sentences
    // The share of the default's step that the advised cap saves, or of the scenario's own that the
    // advised sharding saves: the range of 95 % of cases by the model's declared error. Empty:
    // there is nothing to choose, or it is the default or the scenario's own.
    std::optional<DrawnShare> saved = {};
    bool operator==(const PredictedVerdict&) const = default;
};

PredictedVerdict verdict_of(const Scenario& scenario, const Prediction& prediction);

// The prediction's notes, then the scenario's caveats.
std::vector<std::string> notes_of(const Scenario& scenario, std::vector<std::string> notes);

std::string_view strategy_of(const Scenario& scenario);

// The sentence in place of advice. Precondition: a reason.
std::string withheld_text(const std::vector<std::string>& reasons);

// "bucket_cap_mb=4" of PyTorch's DistributedDataParallel, else "a bucket cap of 4 MiB".
std::string cap_to_set_text(Strategy strategy, Bytes cap);

}  // namespace bucketwise
