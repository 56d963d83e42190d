// The text that `bucketwise measure` ends with.
#pragma once

#include <string>
#include <vector>

#include "hw/record/measurement.h"

namespace bucketwise {

// Medians and spreads of everything in the records.
std::string measure_report(const std::vector<Measurement>& records);

}  // namespace bucketwise
