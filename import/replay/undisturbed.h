// What overlapping cost in the traced steps: kernels that ran beside all-reduces were slowed. A
// scenario has what they take alone, as the simulator slows them itself. All-reduces were slowed,
// too, but by how much a trace does not tell: they stay as they were.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "import/run/traced_gradients.h"
#include "import/run/traced_run.h"
#include "import/source/findings.h"
#include "sim/link/link.h"

namespace bucketwise {

// How many times as long kernels took beside all-reduces.
struct KernelSlowdown {
    double factor = 1;
    double error = 0;  // standard error
    double lowest = 1;
    double highest = 1;        // of single kernels that ran mostly beside
    std::int64_t kernels = 0;  // such; 0: none, and the factor is that of all
    bool operator==(const KernelSlowdown&) const = default;
};

struct KernelSlowdowns {
    KernelSlowdown products;
    KernelSlowdown rest;
    KernelSlowdown all;
    bool operator==(const KernelSlowdowns&) const = default;
};

// What the kernels of a program take without communication. Of a trace only this is kept, as two
// together may be large.
struct PlainRun {
    std::string file;
    bool has_device = false;
    std::size_t gradients = 0;
    std::int64_t all_reduces = 0;  // in backward, among several ranks
    // Of each name, in the order they run, medians over the steps.
    std::map<std::string, std::vector<Duration>, std::less<>> times = {};
    bool operator==(const PlainRun&) const = default;
};

// Of a rank that was traced without communication.
PlainRun plain_run(TracedRank rank);

// Gives the kernels of the run's steps that ran beside all-reduces the times that they take alone:
// those of `plain`, of the same program, or, where there is none, of the micro-step before, which
// does not communicate. None, and nothing is changed, where neither has these kernels, or next to
// none ran beside. Throws InputError where `plain` is of another program, or communicates in
// backward.
std::optional<KernelSlowdowns> take_plain_times(TracedRun& run,
                                                const std::vector<TracedAllReduce>& all_reduces,
                                                const std::optional<PlainRun>& plain,
                                                Findings& findings);

// Likewise by the slowdowns that the link has, measured or assumed.
void take_out_of_computing(TracedRun& run, const std::vector<TracedAllReduce>& all_reduces,
                           const LinkParameters& link);

// How long a step computes, and how long of it beside all-reduces, medians.
struct Overlap {
    Duration computing{0};
    Duration beside{0};
    bool operator==(const Overlap&) const = default;
};
Overlap overlap_of(const TracedRun& run, const std::vector<TracedAllReduce>& all_reduces);

}  // namespace bucketwise
