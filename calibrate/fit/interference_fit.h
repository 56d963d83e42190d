// How much collectives and computing slow each other, from contention runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hw/record/measurement.h"
#include "sim/base/units.h"
#include "sim/link/link.h"

namespace bucketwise {

// Factors on matrix products and on all other operations; empty: no such operation ran meanwhile.
struct SlowdownsApart {
    std::optional<double> products;
    std::optional<double> rest;
    std::optional<double> together = {};  // on both, in the same rounds
    bool operator==(const SlowdownsApart&) const = default;
};

// A factor, and its standard error over rounds.
struct MeasuredSlowdown {
    double factor = 1;
    double error = 0;
    bool operator==(const MeasuredSlowdown&) const = default;
};

// The slowdowns with messages of one size and one number of thread blocks.
struct InterferencePoint {
    std::optional<std::int64_t> ctas = {};  // none: the library's choice
    Bytes size;
    std::optional<MeasuredSlowdown> compute = {};  // none: no operation counted in any round
    MeasuredSlowdown communication = {};
    std::size_t rounds = 0;
    SlowdownsApart apart = {};
    bool operator==(const InterferencePoint&) const = default;
};

// The time of one collective of a size, in µs.
using TimeAlone = std::function<double(Bytes)>;

struct InterferenceFit {
    // By size, for each number of thread blocks; one of them: the size does not matter.
    std::vector<InterferenceSegment> segments;
    std::optional<std::int64_t> ctas;       // that the link uses; empty: no segment has one
    std::vector<InterferencePoint> points;  // by thread blocks and size
    std::vector<std::string> warnings;
    bool operator==(const InterferenceFit&) const = default;
};

// One pair of factors if the sizes agree within their errors, else one per size, each serving up to
// the geometric middle between it and the next, with sizes between that are an octave apart, linear
// in the logarithm: whichever has the smaller Bayesian information criterion. Factors below 1
// become 1. Without records there is no segment.
//
// A collective's slowdown is the mean of its disturbed samples over what it takes alone: `alone_us`
// of its size, as the simulator multiplies that by it. Empty: the mean of its samples alone.
// Waiting for a processor is rare but long, so that medians of disturbed samples would hide it.
// Between two sizes the time that is added is linear in the size.
//
// Matrix products and the rest have separate factors where both were timed: over all rounds, ranks
// and, if the sizes agree, sizes together, scaled to mix to the factor on computing in the measured
// proportion, which an interrupted round does not spoil.
//
// Ranks and rounds without an operation that counted do not count for computing. A size without any
// takes the factor of the others; without others, computing is assumed not to slow, with a warning.
//
// Records with a number of thread blocks are fitted by that number. The link then uses `ctas`, the
// number of the steps, or the largest measured one if the steps left it to the library. Where only
// some records have a number, those like the steps count: with one if `ctas` is given, else
// without.
InterferenceFit fit_interference(const std::vector<ContentionRecord>& records,
                                 std::optional<std::int64_t> ctas = {},
                                 const TimeAlone& alone_us = {});

}  // namespace bucketwise
