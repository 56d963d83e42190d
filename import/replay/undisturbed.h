// The cost of overlap in the traced steps: all-reduces slowed the kernels beside them. A scenario
// has the kernels' times alone, as the simulator slows them itself. By how much kernels slowed the
// all-reduces, a trace does not tell: these stay as traced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "import/run/traced_run.h"
#include "import/source/findings.h"
#include "sim/link/link.h"

namespace bucketwise {

// The factor by which all-reduces lengthened the kernels beside them.
struct KernelSlowdown {
    double factor = 1;
    double error = 0;          // standard error
    std::int64_t kernels = 0;  // that ran mostly beside; 0: none, and the factor is that of all
    bool operator==(const KernelSlowdown&) const = default;
};

struct KernelSlowdowns {
    KernelSlowdown products;  // matrix products
    KernelSlowdown rest;
    KernelSlowdown all;
    bool operator==(const KernelSlowdowns&) const = default;
};

// A program without communication, reduced to the times of its kernels: two traces are large.
struct PlainRun {
    std::string file;
    bool has_device = false;
    std::size_t gradients = 0;
    std::int64_t all_reduces = 0;  // in backward, among several ranks
    // By name, in the order the kernels run; medians over the steps.
    std::map<std::string, std::vector<Duration>, std::less<>> times = {};
    bool operator==(const PlainRun&) const = default;
};

// `rank` was traced without communication.
PlainRun plain_run(TracedRank rank);

// Gives kernels that ran beside all-reduces their times alone: those of `plain`, the same program,
// or of the micro-steps before, which do not communicate. Nothing, and no change, where neither has
// these kernels, or hardly any ran beside. Throws InputError where `plain` is another program, or
// communicates in backward.
std::optional<KernelSlowdowns> take_plain_times(TracedRun& run,
                                                const std::vector<TypicalCollective>& all_reduces,
                                                const std::optional<PlainRun>& plain,
                                                Findings& findings);

// Does the same by the slowdowns of the link, measured or assumed.
void take_out_of_computing(TracedRun& run, const std::vector<TypicalCollective>& all_reduces,
                           const LinkParameters& link);

// The computing of a step, and its part beside all-reduces; medians.
struct Overlap {
    Duration computing{0};
    Duration beside{0};
};
Overlap overlap_of(TracedRun& run, const std::vector<TypicalCollective>& all_reduces);

}  // namespace bucketwise
