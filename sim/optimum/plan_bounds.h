// Lower bounds of the step over all plans, for steps whose optimum is found by trying.
#pragma once

#include <cstddef>
#include <functional>

#include "sim/base/units.h"
#include "sim/plan/gradient_line.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"

namespace bucketwise {

struct NetworkBound {
    Duration least_communication{0};  // all-reduces of all buckets one after another, at least
    Duration ends{0};                 // no plan's last all-reduce ends earlier
    bool operator==(const NetworkBound&) const = default;
};

// The bound of the network alone, for any cuts and any order of buckets. A bucket goes out after
// its gradients are ready. Buckets with gradients that become ready after some moment therefore go
// out after it, one after another, and take at least as long as the cheapest buckets that hold
// these gradients. Each moment gives a bound; the result is the highest.
//
// `line` is of accumulators. `ready` gives the earliest moment at which so many gradients are
// ready, `cost` the all-reduce time between two places of an accumulator.
NetworkBound network_bound(const GradientLine& line,
                           const std::function<Duration(std::size_t count)>& ready,
                           const std::function<Duration(std::size_t begin, std::size_t end)>& cost);

// The bound of the work that every plan has, where computing and all-reduces slow each other. Only
// part of it can run beside all-reduces, which take at least `least_communication` and start when
// `first_launch` gradients are ready, or later. `before` is the step so far where its closing part
// begins.
Duration work_bound(const StepInput& input, const SyncSettings& sync, std::size_t first_launch,
                    Duration least_communication, Duration before);

}  // namespace bucketwise
