// The gradients of a traced run: how large they are and what they are called.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "import/kineto/all_reduces.h"
#include "import/kineto/traced_run.h"
#include "import/source/findings.h"

namespace bucketwise {

// A gradient as the user knows it, to name those of a trace.
struct NamedGradient {
    std::string name;
    std::int64_t numel = 0;
    bool operator==(const NamedGradient&) const = default;
};

// In parameter order, and the order in which backward makes them ready (indices); empty: the trace
// has to tell the sizes.
struct NamedGradients {
    std::vector<NamedGradient> parameters;
    std::vector<std::int32_t> readiness;
};

// By readiness. Throws InputError where nothing tells their sizes, and where `named` are others.
std::vector<NamedGradient> traced_gradients(const TracedRun& run, const NamedGradients& named,
                                            Findings& findings);

// Where no event has an all-reduce's size: DDP launches a bucket as its last gradient is ready.
void complete_sizes(TracedRun& run, const std::vector<NamedGradient>& gradients,
                    Findings& findings);

// Says whether the all-reduces hold these gradients, in the order of readiness.
void check_sums(const TracedRun& run, const std::vector<NamedGradient>& gradients,
                Findings& findings);

}  // namespace bucketwise
