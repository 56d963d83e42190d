#include "sim/workload/eager_cost.h"

#include <algorithm>
#include <cmath>

#include "sim/base/invariant.h"
#include "sim/workload/float8.h"

namespace bucketwise {
namespace {

constexpr double single_precision = 4;  // bytes
constexpr double half_precision = 2;
// Traffic left of a pass in a neighbour's kernel, and of a sum of gradients in a norm's.
constexpr double fused_pass = 1.0 / 2;
constexpr double fused_sum = 1.0 / 3;

const EagerPass& eager_pass(const Operation& operation, Pass pass) {
    return is_forward(pass)               ? operation.eager.forward
           : pass == Pass::input_gradient ? operation.eager.input_gradient
                                          : operation.eager.weight_gradient;
}

// C[m,n] += A[m,k] B[k,n] forward, [m,k] = [m,n] [n,k] and [k,n] = [k,m] [m,n] backward. A
// convolution's input gradient is a convolution too, with equally many taps.
MatrixProduct shape_of(const Operation& operation, Pass pass) {
    const MatrixProduct& forward = *operation.product;
    const std::int64_t area = operation.kernel_area;
    switch (pass) {
        case Pass::input_gradient:
            return {forward.m, forward.k / area, forward.n * area, forward.count};
        case Pass::weight_gradient:
            return {forward.k, forward.n, forward.m, forward.count};
        default:
            return forward;
    }
}

// A float8 product writes two bytes per element.
double result_elements(const MatrixProduct& product) {
    return static_cast<double>(product.m * product.n) * static_cast<double>(product.count);
}

AttentionKernel automatic_attention(const Model& model, const Device& device,
                                    Arithmetic arithmetic) {
    if (model.writes_attention_out) {
        return AttentionKernel::eager;
    }
    return device.flash_attention && element_size(arithmetic) == Bytes{2} ? AttentionKernel::flash
                                                                          : AttentionKernel::fused;
}

}  // namespace

EagerCosts::EagerCosts(const Model& model, const Device& device, Arithmetic arithmetic, DType dtype,
                       const RunAs& run, bool gathers_float8)
    : device_(device),
      arithmetic_(beside_float8(arithmetic)),
      float8_(is_float8(arithmetic) ? std::optional(arithmetic) : std::nullopt),
      gathers_float8_(gathers_float8),
      autocast_(dtype == DType::float32 && element_size(arithmetic) == Bytes{2}),
      run_(run),
      size_(static_cast<double>(element_size(arithmetic).count)) {
    invariant(device.prior.has_value(), "the device has a prior");
    if (run_.attention == AttentionKernel::automatic) {
        run_.attention = automatic_attention(model, device, arithmetic);
    }
    run_.channels_last = run_.channels_last.value_or(element_size(arithmetic) == Bytes{2});
}

double EagerCosts::passes_seconds(double bytes) const {
    return bytes / (static_cast<double>(device_.memory_bandwidth.count) *
                    (*device_.prior)[GpuFactor::pass_efficiency]);
}

double EagerCosts::stream_size() const {
    return autocast_ ? single_precision : size_;
}

PassCost EagerCosts::of(const Operation& operation, Pass pass, const PassPlace& place) const {
    PassCost cost = is_attention(operation.kind) && run_.attention != AttentionKernel::eager
                        ? attention_cost(operation, pass)
                    : operation.product ? product_cost(operation, pass, place)
                                        : memory_cost(operation, pass, place);
    cost.seconds +=
        static_cast<double>(cost.kernels) * 1e-6 * (*device_.prior)[GpuFactor::kernel_us];
    return cost;
}

// Backward reads more for each product. Narrow heads reuse less of what they load. The shares are
// priors (docs/decisions/device_priors.md).
double EagerCosts::attention_efficiency(bool forward, std::int64_t head_width) const {
    constexpr double forward_share = 1.15;
    constexpr double backward_share = 0.95;
    constexpr double feeding = 16;
    constexpr double usual_width = 128;
    constexpr double first_version = 0.53;  // of the second
    const GpuPrior& prior = *device_.prior;
    const double usual = prior[GpuFactor::flash_efficiency];
    if (!on_tensor_cores(arithmetic_)) {
        return usual;
    }
    if (!is_flash(run_.attention)) {
        return prior[GpuFactor::fused_efficiency];
    }
    const auto width = static_cast<double>(head_width);
    const double flash = usual * (forward ? forward_share : backward_share) *
                         (width / (width + feeding)) * ((usual_width + feeding) / usual_width);
    if (run_.attention == AttentionKernel::flash_3) {
        return flash;
    }
    // Slower instructions leave power for their clock.
    const double synchronous = flash * device_.synchronous_share / device_.tensor_sustained;
    return run_.attention == AttentionKernel::flash ? synchronous : synchronous * first_version;
}

// Two products forward, five backward, which computes the scores again. Queries, keys, values, the
// result and their gradients move once.
PassCost EagerCosts::attention_cost(const Operation& operation, Pass pass) const {
    const bool causal = operation.kind == OperationKind::masked_sum;
    if ((!causal && operation.kind != OperationKind::weighted_sum) ||
        pass == Pass::weight_gradient) {
        return {};
    }
    const bool forward = is_forward(pass);
    const MatrixProduct& values = *operation.product;
    const double activations =
        static_cast<double>(values.m * values.n) * static_cast<double>(values.count);
    // Tiles on the diagonal are computed whole.
    constexpr double causal_tile = 128;
    const auto length = static_cast<double>(values.k);
    const double computed = causal ? std::min(0.5 * (1 + causal_tile / length), 1.0) : 1.0;
    const double flops = (forward ? 2 : 5) * 2 * activations * length * computed;
    const double efficiency = attention_efficiency(forward, values.n);
    // Kernels take heads as they lie in memory.
    return {std::max(flops / (product_rate(device_, arithmetic_) * efficiency),
                     passes_seconds((forward ? 4 : 8) * activations * size_)),
            forward ? 1 : 2};
}

PassCost EagerCosts::product_cost(const Operation& operation, Pass pass,
                                  const PassPlace& place) const {
    const EagerPass& eager = eager_pass(operation, pass);
    const bool convolution = operation.kind == OperationKind::convolution;
    const auto operands = static_cast<double>(operation.operand_elements);
    const bool in_float8 = float8_ && converts_to_float8(operation, place);
    const double product_bytes =
        in_float8 ? operands + result_elements(shape_of(operation, pass)) : operands * size_;
    PassCost cost{product_seconds({shape_of(operation, pass), product_bytes, convolution}, device_,
                                  in_float8 ? *float8_ : arithmetic_) +
                      passes_seconds(static_cast<double>(eager.elements) * size_),
                  eager.kernels};
    if (pass == Pass::input_gradient) {  // sums of gradients that are charged to it
        cost.seconds += passes_seconds(static_cast<double>(forked_elements(operation)) *
                                       (place.compiled ? fused_sum : 1) * stream_size());
        if (place.compiled && operation.kind == OperationKind::linear) {
            cost.kernels = 1;
        }
    }
    if (in_float8) {
        const CastCost casts = float8_casts(operation, pass, place, *float8_, gathers_float8_);
        cost.seconds += passes_seconds(casts.bytes);
        cost.kernels += casts.kernels;
    }
    const MatrixProduct& product = *operation.product;
    const double weights =
        static_cast<double>(product.k * product.n) * static_cast<double>(product.count);
    const bool has_weight = convolution || operation.kind == OperationKind::linear;
    if (autocast_ && has_weight && pass != Pass::input_gradient) {  // to 16 bits, or back from them
        cost.seconds += passes_seconds(weights * (single_precision + half_precision));
        cost.kernels += operation.eager.weight_gradient.kernels;  // one more with a bias
    }
    if (convolution && on_tensor_cores(arithmetic_) && !*run_.channels_last) {
        cost.seconds += passes_seconds(2 * (operands - weights) * size_);
        cost.kernels += 2;
    }
    return cost;
}

PassCost EagerCosts::memory_cost(const Operation& operation, Pass pass,
                                 const PassPlace& place) const {
    const EagerPass& eager = eager_pass(operation, pass);
    const bool stream =
        operation.kind == OperationKind::stream || operation.kind == OperationKind::normalisation;
    auto elements = static_cast<double>(work_of(operation, pass).elements);
    std::int64_t kernels = eager.kernels;
    double casts = 0;  // in bytes
    if (place.compiled && operation.kind == OperationKind::gate) {
        return {};
    }
    if (place.compiled) {
        const bool sums = operation.kind == OperationKind::stream && pass == Pass::input_gradient;
        elements *= !place.fused ? 1 : sums ? fused_sum : fused_pass;
        kernels = place.fused ? 0 : std::min<std::int64_t>(kernels, 1);
    } else {
        elements += static_cast<double>(eager.elements);
        if (operation.upcasts && size_ == half_precision && pass != Pass::weight_gradient) {
            // The input, half of what forward moves, is cast, and its gradient back.
            casts = 0.5 * static_cast<double>(operation.forward.elements) *
                    (single_precision + half_precision);
            ++kernels;
        }
        if (autocast_ && !operation.upcasts && operation.kind == OperationKind::normalisation &&
            pass != Pass::weight_gradient) {
            // Half of forward's elements are its result: 4 + 2 bytes each.
            elements += 0.75 * static_cast<double>(operation.forward.elements);
            ++kernels;
        }
    }
    const bool upcast = operation.upcasts && !place.compiled;
    const double size = upcast ? std::max(single_precision, size_) : stream ? stream_size() : size_;
    return {passes_seconds(elements * size + casts), kernels};
}

Duration EagerCosts::host(const PassCost& cost, Pass pass, bool node, std::int64_t gradients,
                          const PassPlace& place) const {
    const HostCosts costs = host_costs(place.compiled ? Execution::compiled : Execution::eager);
    const double once = cost.kernels == 0  ? 0
                        : is_forward(pass) ? costs.operation_us
                                           : (node ? costs.node_us : 0);
    const double us = once + static_cast<double>(cost.kernels) * costs.kernel_us +
                      static_cast<double>(gradients) * costs.gradient_us +
                      (place.enters_graph ? costs.graph_us : 0);
    return duration_from_us(us * (*device_.prior)[GpuFactor::host_scale]);
}

}  // namespace bucketwise
