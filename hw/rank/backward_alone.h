// What each operation of backward takes alone, on any device.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "sim/base/units.h"

namespace bucketwise {

// Over and over for as long as contend() will, after a pass that warms up. Medians, as one
// interruption would else count in every comparison. `time` runs every operation once and returns
// the time of each.
std::vector<Duration> times_alone(std::size_t operations, const std::function<void()>& warm_up,
                                  const std::function<std::vector<Duration>()>& time);

}  // namespace bucketwise
