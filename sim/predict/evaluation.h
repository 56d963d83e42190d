// One plan of a step, simulated.
#pragma once

#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/plan/cap.h"
#include "sim/predict/confidence.h"
#include "sim/predict/overlap.h"

namespace bucketwise {

struct Evaluation {
    Cap cap = Cap::none();
    CapRange same_plan;               // all caps that give this plan; meaningless without a cap
    std::vector<Bytes> bucket_bytes;  // in launch order
    StepTimes times;
    Duration communication{0};                      // all collectives, each alone on the link
    Duration exposed{0};                            // the saving if communication were free
    std::optional<StepConfidence> confidence = {};  // of rows that were drawn
    // The saving over the default where overlap's costs are assumed, from end to end.
    std::optional<DrawnShare> saved_at_ends = {};
    bool operator==(const Evaluation&) const = default;

    [[nodiscard]] Duration step() const { return times.step(); }
};

// Steps closer than this are indistinguishable: the model's own error, not a measured noise floor.
constexpr double plateau_tolerance = 0.005;

}  // namespace bucketwise
