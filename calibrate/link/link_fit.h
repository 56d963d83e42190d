// Latency and bandwidth of a link, fitted to isolated all-reduces, or to another kind of
// collectives.
//
// In terms of the algorithm's steps and bytes on the wire (sim/link/collective.h), so that what is
// fitted on 2 ranks predicts 4:
//   time = launch + steps(ranks) x latency + wire(ranks) x bytes / bandwidth
// or, where steps do not grow with the ranks but messages do, as in a direct exchange,
//   time = steps x latency + messages(ranks) x message + wire(ranks) x bytes / bandwidth
// Latency and bandwidth are those of a segment of message sizes. How many segments there are and
// where they meet follows from the data: the best segmentation into 1, 2, ... segments by dynamic
// programming, and among these the least Bayesian information criterion (Schwarz 1978).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/caveat.h"
#include "sim/base/units.h"
#include "sim/link/link.h"

namespace bucketwise {

// The measured times of one size on one number of ranks.
struct LinkPoint {
    std::int64_t ranks = 2;  // above 1
    Bytes size;
    double median_us = 0;          // above 0
    double standard_error_us = 0;  // of the median
    std::int64_t samples = 0;
    CollectiveKind kind = CollectiveKind::all_reduce;
    std::vector<double> samples_us = {};  // empty: only their median is known
    bool operator==(const LinkPoint&) const = default;
};

struct LinkResidual {
    LinkPoint point;
    double fitted_us = 0;
    std::size_t segment = 0;  // index of the one that serves its size
    bool dropped = false;     // an outlier, which the fit does not follow

    [[nodiscard]] double relative() const { return fitted_us / point.median_us - 1; }
    bool operator==(const LinkResidual&) const = default;
};

struct LinkFit {
    std::vector<Segment> segments;  // with standard errors
    Duration launch{0};             // 0 unless two numbers of ranks tell it from latency
    double launch_standard_error_us = 0;
    Duration message{0};  // 0 unless several numbers of ranks differ in messages, but not in steps
    double message_standard_error_us = 0;
    std::vector<LinkResidual> residuals;  // by ranks and size
    std::vector<std::string> warnings;    // one sentence each, without an end
    // The warnings that leave predictions with the link uncertain.
    std::vector<std::string> weaknesses = {};
    bool operator==(const LinkFit&) const = default;
};

// The caveat of a link that is typically so far, as a share, off `what` it was fitted to; none: it
// is near.
std::optional<Caveat> residual_caveat(double typical, std::string_view what);

// Weighted by the points' standard errors and 1 % of their time, whichever is more; no result is
// negative. A point that lies far off while all others agree is dropped, at most one and one more
// for every ten. Two different sizes at least, 4096 at most. Throws InputError, which names `file`.
//
// `processors`: of the one machine on which all ranks ran and sent by copying, where more ranks
// took turns (LinkParameters::processors); none: each had its own. `message`: known already from
// the link's all-reduces; none: it is fitted.
LinkFit fit_link(Algorithm algorithm, std::vector<LinkPoint> points, const std::string& file,
                 std::optional<std::int64_t> processors = {}, std::optional<Duration> message = {});

}  // namespace bucketwise
