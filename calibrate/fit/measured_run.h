// A file of measurement records as one run: sorted by kind, and found to belong together.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hw/record/measurement.h"
#include "sim/base/units.h"

namespace bucketwise {

struct MeasuredRun {
    std::string file;  // for messages
    std::optional<EnvironmentRecord> environment;
    Transport transport;
    std::optional<DType> dtype;  // of all sums; none: nothing was summed
    std::vector<AllReduceRecord> all_reduces;
    std::vector<CollectiveRecord> collectives;  // all-gathers and reduce-scatters
    std::vector<ComputeRecord> computes;
    std::vector<ContentionRecord> contentions;
    std::vector<StepRecord> steps;
    std::vector<std::string> warnings;
    bool operator==(const MeasuredRun&) const = default;
};

// `records` are the lines of `file`; `torn`: its last line had no end and was left out. Throws
// InputError, naming the line, for records of different runs (another transport, number of ranks
// but in a file of `bucketwise bench allreduce` and its like, dtype, machine, link rate or
// scenario) and for values that cannot be: no samples, a time of zero, lists of the wrong length.
MeasuredRun collect_run(const std::vector<Measurement>& records, bool torn,
                        const std::string& file);

// What to say of a run whose ranks shared a GPU.
constexpr std::string_view shared_gpu_warning =
    "several ranks ran on one GPU: what they measured is that GPU's scheduler and memory, not an "
    "interconnect";

// By the number of ranks and the size of the message, all rounds together.
struct AllReduceSamples {
    std::int64_t ranks = 2;
    Bytes size;
    std::vector<double> samples_us;
    std::vector<double> round_medians_us;
    bool operator==(const AllReduceSamples&) const = default;
};

// The all-reduces of all runs together, or another kind, sorted by ranks and size.
std::vector<AllReduceSamples> all_reduce_samples(const std::vector<MeasuredRun>& runs);
std::vector<AllReduceSamples> samples_of(CollectiveKind kind, const std::vector<MeasuredRun>& runs);

}  // namespace bucketwise
