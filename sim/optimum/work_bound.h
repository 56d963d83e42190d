// What a step takes at least where computing and all-reduces slow each other.
#pragma once

#include <cstddef>

#include "sim/base/units.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"

namespace bucketwise {

// No plan's step is shorter, whatever its buckets: by the work that every plan has, and what of it
// may run beside all-reduces, which take `least_communication` at least. The first of them goes
// out when `first_launch` gradients are ready, or later. `before` is the step so far where its
// closing part begins.
Duration work_bound(const StepInput& input, const SyncSettings& sync, std::size_t first_launch,
                    Duration least_communication, Duration before);

}  // namespace bucketwise
