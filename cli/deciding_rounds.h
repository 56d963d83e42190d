// What a run with a limit of time measures round by round: what items took says what fits, a
// calibration to what was measured says which cap to judge, and further rounds go to the caps
// between which nothing is decided yet.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/ranks/timed_run.h"
#include "sim/predict/prediction.h"

namespace bucketwise {

// The options, which are kept by reference, have a limit of time, which counts from the call.
// `earlier`: what the file holds already, its environment first.
std::unique_ptr<RoundDirector> deciding_rounds(const MeasureOptions& options,
                                               const std::vector<Measurement>& earlier);

// What predict advises of the scenario that `records` replayed, calibrated to them; none where they
// are not enough for that.
std::optional<Prediction> advice_of(const std::vector<Measurement>& records,
                                    const std::string& file);

}  // namespace bucketwise
