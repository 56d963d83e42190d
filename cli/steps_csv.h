// Step times at several caps, as a CSV file.
#pragma once

#include <string>
#include <vector>

#include "calibrate/fit/inverse_fit.h"

namespace bucketwise {

struct StepsCsv {
    ObservedPart part = ObservedPart::step;
    std::vector<ObservedStep> steps;
    bool operator==(const StepsCsv&) const = default;
};

// Two columns: bucket_cap_mib, or "default", and step_ms or backward_ms. The first line names them,
// in either order; without names they are bucket_cap_mib and step_ms. Empty lines and lines that
// begin with # are skipped. Throws InputError that names the line.
StepsCsv read_steps_csv(const std::string& path);

// The same from text, `file` for messages.
StepsCsv parse_steps_csv(const std::string& text, const std::string& file);

}  // namespace bucketwise
