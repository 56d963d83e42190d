// The rounds of a run with a limit of time: times of items say what fits, a calibration of the
// records says which setting to judge, and further rounds go to undecided settings.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/ranks/timed_run.h"
#include "sim/predict/evaluation.h"

namespace bucketwise {

// The options, which are kept by reference, have a limit of time, which counts from the call.
// `earlier`: the file's records, its environment first.
std::unique_ptr<RoundDirector> deciding_rounds(const MeasureOptions& options,
                                               const std::vector<Measurement>& earlier);

// The advice for the records' scenario, calibrated to them, or a measured setting that is predicted
// to be as fast; empty where the records are too few.
std::optional<Evaluation> advice_of(const std::vector<Measurement>& records,
                                    const std::string& file);

}  // namespace bucketwise
