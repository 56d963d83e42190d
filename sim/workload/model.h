// A model: its parameters in PyTorch's order and the operations of one forward pass, with the
// floating-point operations and the memory traffic of the forward and both backward passes.
//
// Nothing here is a time. Device turns work into durations (sim/workload/device.h).
//
// Conventions, the same for every model:
//  - flops counts a multiply-add as 2.
//  - elements counts tensor elements read plus written by the pass, activations and parameters
//    alike; bytes follow from the dtype the pass runs in.
//  - One Operation is one framework operator (a convolution, a linear layer, a normalisation, an
//    activation): one call of PyTorch's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/names.h"
#include "sim/base/units.h"

namespace bucketwise {

struct Parameter {
    std::string name;                 // PyTorch's name, for example "layer1.0.conv1.weight"
    std::vector<std::int64_t> shape;  // PyTorch's shape

    [[nodiscard]] std::int64_t numel() const {
        std::int64_t product = 1;
        for (const std::int64_t extent : shape) {
            product *= extent;
        }
        return product;
    }
    bool operator==(const Parameter&) const = default;
};

// Work of one pass of one operation over the whole local batch.
struct Work {
    std::int64_t flops = 0;
    std::int64_t elements = 0;  // read + written
    bool operator==(const Work&) const = default;
};

// The matrix product at the heart of an operation: C[m,n] += A[m,k] B[k,n], `count` of them.
// The input gradient is then [m,k] = [m,n] [n,k] and the weight gradient [k,n] = [k,m] [m,n].
// A convolution is its implicit product: m = batch x output pixels, n = output channels per group,
// k = input channels per group x kernel area.
struct MatrixProduct {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    std::int64_t count = 1;
    bool operator==(const MatrixProduct&) const = default;
};

enum class Pass : std::uint8_t {
    forward,
    statistics,  // of a BatchNorm that exchanges between the two halves of its forward
    normalise,
    input_gradient,
    weight_gradient
};

constexpr bool is_forward(Pass pass) {
    return pass == Pass::forward || pass == Pass::statistics || pass == Pass::normalise;
}

// A framework's view of an operation: its kernels and their arithmetic.
enum class OperationKind : std::uint8_t {
    pass,           // over memory: elementwise, pooling, BatchNorm
    stream,         // left in float32 by autocast: sums of a transformer's stream, losses
    normalisation,  // the same; autocast casts the result for the products that read it
    linear,
    convolution,
    scores,        // attention: queries by keys
    scores_pass,   // attention: over the scores
    weighted_sum,  // attention: scores by values
    masked_sum,    // the same where a causal mask hides half of the scores
    gate           // a pass whose result only the multiplication by the next product reads (SwiGLU)
};

template <>
inline constexpr auto names_of<OperationKind> = names("pass", "stream", "normalisation", "linear",
                                                      "convolution", "scores", "scores_pass",
                                                      "weighted_sum", "masked_sum", "gate");

constexpr bool is_attention(OperationKind kind) {
    return kind == OperationKind::scores || kind == OperationKind::scores_pass ||
           kind == OperationKind::weighted_sum || kind == OperationKind::masked_sum;
}

// An eager framework's kernels for one pass of an operation, and their traffic beyond Work, which
// counts a single fused kernel.
struct EagerPass {
    std::int32_t kernels = 1;
    std::int64_t elements = 0;  // read + written
    bool operator==(const EagerPass&) const = default;
};

struct EagerPasses {
    EagerPass forward;
    EagerPass input_gradient;
    EagerPass weight_gradient;
    bool operator==(const EagerPasses&) const = default;
};

struct Operation {
    std::string name;  // the module's name, for example "layer1.0.conv1" or "h.3.attn.softmax"
    Work forward;
    Work input_gradient;   // zero where the input needs none (the first layer, an embedding)
    Work weight_gradient;  // of the second factor: a weight, or attention's second activation; else
                           // zero
    std::optional<MatrixProduct> product;
    // Indices into Model::parameters, ordered as PyTorch's autograd finishes their gradients: a
    // linear layer's bias before its weight, a convolution's or normalisation's after.
    std::vector<std::int32_t> parameters;
    std::int64_t batch_norm_channels = 0;  // of a BatchNorm; 0: something else
    OperationKind kind = OperationKind::pass;
    std::int64_t kernel_area = 1;       // of a convolution: taps per input channel
    std::int64_t operand_elements = 0;  // of a product: its two factors and its result
    EagerPasses eager = {};
    bool upcasts = false;  // a pass that eager frameworks run in float32, casting 16-bit input
    // Kept by autograd until backward, for this operation or for readers of its result. Bytes count
    // tensors outside the arithmetic: a dropout's mask, the places of maxima.
    std::int64_t kept_elements = 0;
    std::int64_t kept_bytes = 0;
    bool operator==(const Operation&) const = default;
};

// The work of one pass. BatchNorm's forward moves its elements three times: its statistics once,
// normalising twice.
Work work_of(const Operation& operation, Pass pass);

// Gradients of a product's input that autograd sums, with their sum: other operations read that
// tensor, too.
std::int64_t forked_elements(const Operation& product);

// A buffer that data-parallel wrappers broadcast at each forward (BatchNorm's running statistics).
struct Buffer {
    std::string name;
    std::int64_t numel = 0;
    Bytes element{4};  // size of one element
    bool operator==(const Buffer&) const = default;
};

struct Model {
    std::string name;
    std::vector<Parameter> parameters;  // PyTorch's named_parameters() order, shared ones once
    std::vector<Operation> operations;  // in the order the forward pass runs them
    std::vector<Buffer> buffers;
    std::int64_t frozen_elements = 0;   // of parameters that are not trained
    bool writes_attention_out = false;  // in its own operations, which no fused kernel replaces
    bool operator==(const Model&) const = default;

    [[nodiscard]] std::int64_t numel() const {
        std::int64_t sum = 0;
        for (const Parameter& parameter : parameters) {
            sum += parameter.numel();
        }
        return sum;
    }
};

bool has_batch_norm(const Model& model);

// An RMS norm in Python: many kernels, in float32.
inline bool is_written_norm(const Operation& operation) {
    return operation.kind == OperationKind::normalisation && operation.upcasts;
}
// Makes each of them one kernel, which keeps its input.
void fuse_norms(Model& model);

// Whether a name of PyTorch's ("aten::addmm", "aten::conv2d", "ConvolutionBackward0", "sgemm") is
// of a matrix product or attention.
bool names_matrix_product(std::string_view operation);

}  // namespace bucketwise
