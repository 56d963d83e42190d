// What the network alone takes for gradients of several accumulators, whatever their cuts and the
// order of their buckets.
#pragma once

#include <functional>
#include <vector>

#include "sim/base/units.h"
#include "sim/plan/gradient_line.h"

namespace bucketwise {

struct NetworkBound {
    // All-reduces of all buckets one after another, at least.
    Duration least_communication{0};
    // No plan's last all-reduce ends before.
    Duration ends{0};
    bool operator==(const NetworkBound&) const = default;
};

// A bucket goes out no earlier than any of its gradients is ready. So of the buckets with gradients
// that become ready from some moment on, none is sent before that moment, and the network, which
// sends one after another, is busy with them for at least as long as the cheapest buckets that hold
// those gradients take: of every moment that is a bound.
//
// `line` is of accumulators; `ready` says when at the earliest so many gradients are ready, `cost`
// what the all-reduce of the gradients between two places of an accumulator takes.
NetworkBound network_bound(const GradientLine& line,
                           const std::function<Duration(std::size_t count)>& ready,
                           const std::function<Duration(std::size_t begin, std::size_t end)>& cost);

}  // namespace bucketwise
