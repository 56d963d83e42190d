#include "sim/engine/step_times.h"

#include <algorithm>

namespace bucketwise {

const StepTimes& slowest_of(std::span<const RankProgress> progress) {
    return std::max_element(
               progress.begin(), progress.end(),
               [](const auto& a, const auto& b) { return a.times.step() < b.times.step(); })
        ->times;
}

}  // namespace bucketwise
