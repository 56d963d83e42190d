// MG-WFBP's greedy merge: Shi, Chu, Li 2019, "MG-WFBP: Efficient data communication for distributed
// synchronous SGD algorithms", Algorithm 1.
#pragma once

#include <functional>

#include "sim/base/units.h"
#include "sim/plan/gradient_line.h"

namespace bucketwise {

// Gradients one after another, each alone: one is merged into the next where the next is ready
// before the first one's all-reduce could have got past its start-up time, and when all-reduces
// start is reckoned anew after each merge. `ready` says when a bucket that ends at a cut can go
// out, `cost` what the all-reduce of the gradients between two cuts takes.
//
// Their all-reduce of n bytes takes a + b n, and a is what merging two saves. Other costs have no
// single a, so what merging these two saves, cost(x) + cost(y) - cost(x + y), stands for it.
Cuts greedy_merge(const GradientLine& line, const std::function<Duration(std::size_t cut)>& ready,
                  const std::function<Duration(std::size_t begin, std::size_t end)>& cost);

}  // namespace bucketwise
