// Measuring for as long as the user has: rank 0 plans each round by what items took and by what is
// not decided yet, and tells the others.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/ranks/measure_rank.h"
#include "hw/measure/measurer.h"
#include "hw/measure/rank_session.h"
#include "sim/predict/prediction.h"

namespace bucketwise {

// Collective. `earlier`: on rank 0, what an earlier run left in the file; else empty. The limit is
// the options' and counts from the call.
void measure_in_time(const MeasureOptions& options, Measurer& measurer, RankSession& session,
                     const std::vector<Measurement>& earlier,
                     const std::function<std::string(const Item&)>& label);

// What predict advises of the scenario that `records` replayed, calibrated to them; none where they
// are not enough for that.
std::optional<Prediction> advice_of(const std::vector<Measurement>& records,
                                    const std::string& file);

}  // namespace bucketwise
