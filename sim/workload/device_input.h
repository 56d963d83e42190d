// Reading a device description.
#pragma once

#include "sim/base/json_table.h"
#include "sim/workload/device.h"

namespace bucketwise {

// A preset's name, or an object that gives every rate or overrides those of its `preset`.
Device read_device(const JsonPlace& place);
JsonType<Device> device_type();

}  // namespace bucketwise
