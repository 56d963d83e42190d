// The real computing of a rank for each operation of a workload, on any backend: its matrix
// product, the elements it streams, and the gradients it writes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/model.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// Where backward writes a gradient that no matrix product computes.
enum class GradientWrite : std::uint8_t {
    pattern,  // its known values, element by element
    again     // read and written back: a second use of a parameter whose gradient is there already
};

struct GradientPass {
    std::int32_t gradient = 0;
    GradientWrite write = GradientWrite::pattern;
    bool operator==(const GradientPass&) const = default;
};

struct KernelCall {
    Pass pass = Pass::forward;
    std::optional<MatrixProduct> product = {};
    // The parameter that is the product's right factor; none: an activation, as in attention, or
    // one parameter of many products (a grouped convolution), whose gradient is then written as a
    // pattern after they are computed.
    std::optional<std::int32_t> weight = {};
    // The gradient that the product computes; none: its result is not a parameter's.
    std::optional<std::int32_t> weight_gradient = {};
    std::int64_t streamed_elements = 0;  // read + written by an element-wise pass
    std::vector<GradientPass> gradients = {};
    Duration filler{0};  // for operations whose time alone is known
    bool operator==(const KernelCall&) const = default;
};

// Gradients that no product computes are written in rows of at most this many columns, so that the
// pattern stays in the first-level cache.
constexpr std::int64_t widest_pattern = 4096;

struct KernelPlan {
    std::vector<KernelCall> forward;   // parallel to Workload::forward
    std::vector<KernelCall> backward;  // parallel to Workload::backward
    // By gradient: columns of the outer product that gives its known values.
    std::vector<std::int64_t> columns;
    bool operator==(const KernelPlan&) const = default;
};

// The model of the scenario's operations; none: they have times only.
std::optional<Model> model_behind(const Scenario& scenario);

// `model`: the workload was made from it; none: its operations have times only.
KernelPlan plan_kernels(const Workload& workload, const std::optional<Model>& model);

}  // namespace bucketwise
