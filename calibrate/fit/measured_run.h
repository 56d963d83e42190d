// A file of measurement records as one run: sorted by kind, and found to belong together.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/link/link_fit.h"
#include "hw/record/measurement.h"
#include "sim/base/units.h"

namespace bucketwise {

struct MeasuredRun {
    std::string file;  // for messages
    std::optional<EnvironmentRecord> environment;
    Transport transport;
    std::optional<DType> dtype;                 // of all sums; none: nothing was summed
    std::vector<CollectiveRecord> collectives;  // isolated ones, all-reduces among them
    std::vector<ComputeRecord> computes;
    std::vector<ContentionRecord> contentions;
    std::vector<StepRecord> steps;
    std::vector<std::string> warnings;
    bool operator==(const MeasuredRun&) const = default;

    [[nodiscard]] bool has(CollectiveKind kind) const;
};

// `records` are the lines of `file`; `torn`: its last line had no end and was left out. Throws
// InputError, naming the line, for records of different runs (another transport, dtype, machine,
// link rate, scenario or, except in a file of `bucketwise bench allreduce` and its like, number of
// ranks) and for impossible values: no samples, a time of zero, lists of the wrong length.
MeasuredRun collect_run(const std::vector<Measurement>& records, bool torn,
                        const std::string& file);

// The warning for a run whose ranks shared a GPU.
constexpr std::string_view shared_gpu_warning =
    "several ranks ran on one GPU: they measured that GPU's scheduler and memory, not an "
    "interconnect";

// The collectives of this kind in all runs together, one point for each number of ranks and size,
// with the samples of all rounds; sorted by ranks and size. Samples of one round are alike, so a
// standard error counts rounds where there are several.
std::vector<LinkPoint> link_points(CollectiveKind kind, const std::vector<MeasuredRun>& runs);

}  // namespace bucketwise
