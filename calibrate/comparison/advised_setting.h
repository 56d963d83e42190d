// The measured setting that is judged as the advice.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "sim/predict/evaluation.h"

namespace bucketwise {

struct PredictedSetting {
    Evaluation predicted;
    std::size_t steps = 0;  // measured
};

// The measured setting that may stand for the advice: its plan is the same, or it is predicted to
// be as fast within regret_goal, by which a decision is judged. Among several it is the advice's
// own plan, unless another was measured more than twice as often: advice moves between equals while
// a calibration grows, and to measure each says nothing that users need.
std::optional<std::size_t> as_advised(const std::vector<PredictedSetting>& measured,
                                      const Evaluation& advised);

struct JudgedSetting {
    std::size_t index = 0;
    bool is_advised = true;       // else it stands for the advice
    bool advice_is_known = true;  // the advice's own plan was measured
};

// Where none may stand for the advice, the fastest by prediction does. `measured`: not empty.
JudgedSetting judged_setting(const std::vector<PredictedSetting>& measured,
                             const Evaluation& advised);

}  // namespace bucketwise
