// What a rank's training holds in memory, as JSON.
#pragma once

#include "sim/base/json.h"
#include "sim/scenario/memory_need.h"

namespace bucketwise {

// The parts in bytes, without those that are not known; the most that is there at one time, and,
// where the device's memory is known, whether it fits.
Json to_json(const MemoryNeed& need);

}  // namespace bucketwise
