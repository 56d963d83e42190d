// Builds a Model operation by operation, in the order of its forward pass: every layer knows its
// parameters, its matrix product and the memory traffic of its three passes.
//
// All models leave out:
//  - Dropout as an operation of its own: the benchmarks this project reproduces run with
//    probability 0. Where a published configuration has dropout, it counts among an eager
//    framework's kernels.
//  - Views (flatten, split, transpose), which move nothing. PyTorch's eager attention copies heads
//    for its batched products; these copies are small beside the scores.
//  - Floating-point operations outside matrix products (Work::flops is 0 there): they are bound by
//    memory, and published counts (torchvision, scaling laws) leave them out too.
//  - Per-channel vectors of normalisations: activations are 10^4 times larger.
//  - Eager kernels that a fused one replaces: a GELU, a rotary embedding or an RMS norm written in
//    Python launches several, and counts as the one pass it needs. Operation::eager has the others,
//    for a device without measurements.
//
// A tensor that autograd keeps for backward (Operation::kept_elements) counts once, where it is
// made, however many operations read it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/base/invariant.h"
#include "sim/workload/model.h"
#include "sim/workload/models/shapes.h"

namespace bucketwise::models {

// Square images, or a layer's result.
struct FeatureMap {
    std::int64_t batch = 0;
    std::int64_t channels = 0;
    std::int64_t size = 0;  // height and width

    [[nodiscard]] std::int64_t elements() const { return batch * channels * size * size; }
};

struct Window {
    std::int64_t kernel = 1;
    std::int64_t stride = 1;
    std::int64_t padding = 0;

    [[nodiscard]] std::int64_t output_size(std::int64_t size) const {
        return (size + 2 * padding - kernel) / stride + 1;
    }
};

struct Convolution {
    std::int64_t out_channels = 0;
    Window window = {};
    bool bias = false;
    bool input_gradient = true;  // false where the input is the images themselves
    std::int64_t groups = 1;     // each reads and writes its share of the channels
};

struct Linear {
    std::int64_t rows = 0;
    std::int64_t in = 0;
    std::int64_t out = 0;
    bool bias = true;
    bool weight_is_in_out = false;  // Hugging Face's Conv1D stores [in, out], nn.Linear [out, in]
    std::string weight = {};        // another module's parameter, where the two are tied
    const char* separator = ".";  // of module and parameter, "_" in nn.MultiheadAttention's in_proj
    bool input_gradient = true;   // false where the input is the samples themselves
};

struct Embedding {
    std::int64_t rows = 0;  // looked up
    std::int64_t entries = 0;
    std::int64_t width = 0;
    bool tied = false;        // to the output layer
    std::string weight = {};  // another module's parameter, where the two are shared
};

enum class Norm : std::uint8_t { layer, layer_without_bias, rms };

struct Attention {
    std::int64_t batch = 0;
    std::int64_t sequence_length = 0;
    std::int64_t heads = 0;
    std::int64_t hidden = 0;  // of all heads together
    bool causal = false;
    bool dropout = false;      // of the scores
    bool written_out = false;  // mask and softmax in single operations, as CS336 has students do
};

// Tensors of the operation's size that each pass reads and writes; kernels that an eager framework
// launches for it, and their additional traffic; tensors kept for backward.
struct Traffic {
    std::int64_t forward = 0;
    std::int64_t backward = 0;
    std::int32_t forward_kernels = 1;
    std::int32_t backward_kernels = 1;
    std::int64_t forward_besides = 0;
    std::int64_t backward_besides = 0;
    OperationKind kind = OperationKind::pass;
    std::int64_t kept = 1;
    bool upcasts = false;
};
inline constexpr Traffic activation{2, 3};  // backward: gradient, saved tensor -> gradient
// Backward needs the gradient alone. Two products, a negation, a concatenation, a sum, and the
// slices of cosine and sine. The result is kept in place of the input.
inline constexpr Traffic rotation{2, 2, 9, 9, 7, 7, OperationKind::pass, 0};
// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), one kernel for each sign. Half of x, tanh, one
// more than tanh, and the product are kept.
inline constexpr Traffic gelu_in_python{2, 3, 8, 10, 15, 23, OperationKind::pass, 4};
// x sigmoid(x); both factors are kept.
inline constexpr Traffic silu_written_out{2, 3, 2, 3, 3, 4, OperationKind::pass, 2};
// Attention's scores. Written out: maximum, difference, exponential, sum and quotient; the
// exponential and the quotient are kept.
inline constexpr Traffic scale_and_mask{2, 2, 2, 1, 2, 0, OperationKind::scores_pass, 0};
inline constexpr Traffic scale_and_mask_written_out{2, 2, 4, 3, 3, 2, OperationKind::scores_pass,
                                                    0};
inline constexpr Traffic softmax{2, 3, 1, 1, 0, 0, OperationKind::scores_pass};
inline constexpr Traffic softmax_written_out{2, 3, 5, 6, 10, 9, OperationKind::scores_pass, 2};
inline constexpr Traffic multiplication{3, 6};  // twice: gradient, other factor -> gradient
// Autograd hands the same gradient to both sides and keeps nothing.
inline constexpr Traffic addition{3, 0, 1, 1, 0, 0, OperationKind::pass, 0};
// A view, whose backward fills zeros around it.
inline constexpr Traffic first_token{0, 1, 1, 1, 0, 0, OperationKind::pass, 0};
// T5's bias by distance, for each head and pair of tokens. Whole numbers give the bucket of each
// distance; every layer copies the bias for its scores or, where they are masked, chooses between
// it and a constant.
inline constexpr Traffic distance_buckets{2, 0, 20, 0, 57, 0, OperationKind::pass, 0};
inline constexpr Traffic distance_bias{2, 3, 1, 1, 0, 0, OperationKind::pass, 0};
inline constexpr Traffic masked_distance_bias{2, 3, 6, 3, 2, 2, OperationKind::pass, 0};
inline constexpr Traffic gather{2, 2};  // rows, kept at their new places
// Log-softmax 2, backward 3; the negative log likelihood reads one element a row, but its
// backward fills a dense gradient.
inline constexpr Traffic cross_entropy{2, 4, 2, 3, 0, 0, OperationKind::stream, 1, true};
inline constexpr Traffic cross_entropy_written_out{2, 4, 8, 8, 10, 6, OperationKind::stream, 2};

class ModelBuilder {
  public:
    explicit ModelBuilder(std::string name) { model_.name = std::move(name); }

    // The parameter's index; registered when it is first mentioned. Call it ahead of the
    // operations where modules are registered in another order than they run.
    std::int32_t parameter(const std::string& name, std::vector<std::int64_t> shape) {
        const auto next = static_cast<std::int32_t>(model_.parameters.size());
        const auto [known, is_new] = index_of_.try_emplace(name, next);
        if (is_new) {
            model_.parameters.push_back({name, std::move(shape)});
        } else {
            invariant(model_.parameters[static_cast<std::size_t>(known->second)].shape == shape,
                      "a parameter has one shape");
        }
        return known->second;
    }

    FeatureMap convolution(const std::string& name, const FeatureMap& input,
                           const Convolution& layer) {
        const std::int64_t kernel = layer.window.kernel;
        const FeatureMap output{input.batch, layer.out_channels,
                                layer.window.output_size(input.size)};
        const std::int64_t in_channels = input.channels / layer.groups;
        const std::int64_t taps = in_channels * kernel * kernel;
        Operation& operation = add_product(name,
                                           {.m = output.batch * output.size * output.size,
                                            .n = output.channels / layer.groups,
                                            .k = taps,
                                            .count = layer.groups},
                                           {.left = input.elements(),
                                            .right = taps * output.channels,
                                            .bias = layer.bias ? output.channels : 0,
                                            .result = output.elements()});
        operation.kind = OperationKind::convolution;
        operation.kernel_area = kernel * kernel;
        operation.kept_elements = output.elements();
        operation.parameters.push_back(
            parameter(name + ".weight", {output.channels, in_channels, kernel, kernel}));
        if (layer.bias) {
            operation.eager.forward = {2, 2 * output.elements()};
            operation.eager.weight_gradient = {2, output.elements()};
            operation.parameters.push_back(parameter(name + ".bias", {output.channels}));
        }
        if (!layer.input_gradient) {
            operation.input_gradient = {};
        }
        return output;
    }

    // Backward reads the output's gradient and the place of each maximum.
    FeatureMap max_pool(const std::string& name, const FeatureMap& input, const Window& window) {
        const FeatureMap output{input.batch, input.channels, window.output_size(input.size)};
        add_operation(name, input.elements() + output.elements(),
                      2 * output.elements() + input.elements());
        Operation& operation = model_.operations.back();
        operation.eager.input_gradient.kernels = 2;  // fills zeros first
        operation.kept_elements = output.elements();
        operation.kept_bytes = 8 * output.elements();  // an int64 for each maximum's place
        return output;
    }

    // Adaptive: any input size to output_size.
    FeatureMap average_pool(const std::string& name, const FeatureMap& input,
                            std::int64_t output_size) {
        const FeatureMap output{input.batch, input.channels, output_size};
        const std::int64_t elements = input.elements() + output.elements();
        add_operation(name, elements, elements).kept_elements = output.elements();
        return output;
    }

    void linear(const std::string& name, const Linear& layer) {
        Operation& operation = add_product(name, {.m = layer.rows, .n = layer.out, .k = layer.in},
                                           {.left = layer.rows * layer.in,
                                            .right = layer.in * layer.out,
                                            .bias = layer.bias ? layer.out : 0,
                                            .result = layer.rows * layer.out});
        operation.kind = OperationKind::linear;
        operation.kept_elements = layer.rows * layer.out;
        operation.parameters = register_linear(name, layer);
        if (layer.bias) {
            operation.eager.weight_gradient = {2, layer.rows * layer.out};
        }
        if (!layer.input_gradient) {
            operation.input_gradient = {};
        }
    }

    // The last operation, a linear layer, made several tensors in one: backward copies their
    // gradients into one before its products.
    void put_gradients_together() {
        Operation& operation = model_.operations.back();
        EagerPass& eager = operation.eager.input_gradient;
        const MatrixProduct& product = operation.product.value();
        eager = {eager.kernels + 1, eager.elements + 2 * product.m * product.n};
    }

    // Parameters in autograd's order of gradients, which is that of the operator's arguments:
    // addmm's first is the bias (tests/data/pytorch/readiness.json).
    std::vector<std::int32_t> register_linear(const std::string& name, const Linear& layer) {
        const std::int32_t weight =
            parameter(layer.weight.empty() ? name + layer.separator + "weight" : layer.weight,
                      layer.weight_is_in_out ? std::vector{layer.in, layer.out}
                                             : std::vector{layer.out, layer.in});
        if (!layer.bias) {
            return {weight};
        }
        return {parameter(name + layer.separator + "bias", {layer.out}), weight};
    }

    // A linear layer of `product.count` experts: computed, but its weights are not among this
    // model's parameters.
    void foreign_linear(const std::string& name, const MatrixProduct& product) {
        const std::int64_t result = product.count * product.m * product.n;
        Operation& operation = add_product(name, product,
                                           {.left = product.count * product.m * product.k,
                                            .right = product.count * product.k * product.n,
                                            .result = result});
        operation.kind = OperationKind::linear;
        operation.kept_elements = result;
    }

    // The gradient is dense: zeros everywhere, then the rows are read and added. For a tied table
    // this gradient and the output layer's are summed, too.
    void embedding(const std::string& name, const Embedding& table) {
        const std::int64_t moved = 2 * table.rows * table.width;
        const std::int64_t size = table.entries * table.width;
        Operation& operation = add_operation(name, moved, 0);
        operation.kind = OperationKind::stream;
        operation.kept_elements = table.rows * table.width;  // or a sum in its place
        operation.weight_gradient = {0, moved + (table.tied ? 4 : 1) * size};
        operation.eager.weight_gradient.kernels = 3;  // fills zeros, sorts, adds
        operation.parameters.push_back(parameter(
            table.weight.empty() ? name + ".weight" : table.weight, {table.entries, table.width}));
    }

    // A learned vector per place in the sequence, looked up once and added to every sequence.
    // The positions' gradient is the sum over the batch.
    void add_position_embedding(const std::string& name, const TransformerShape& shape,
                                const ModelInput& input) {
        embedding(name,
                  {.rows = input.sequence_length, .entries = shape.context, .width = shape.hidden});
        const std::int64_t positions = input.sequence_length * shape.hidden;
        const std::int64_t activations = input.batch * positions;
        add_operation(name + ".add", 2 * activations + positions, activations + positions).kind =
            OperationKind::stream;
    }

    // A learned tensor that joins every sample's activations, `activations` in all. Its gradient is
    // the sum over the batch.
    void add_learned(const std::string& name, std::vector<std::int64_t> shape, std::int64_t batch,
                     std::int64_t activations) {
        const std::int32_t index = parameter(name, std::move(shape));
        const std::int64_t numel = model_.parameters[static_cast<std::size_t>(index)].numel();
        Operation& operation = add_operation(name, 2 * activations + numel, 0);
        operation.kind = OperationKind::stream;
        operation.weight_gradient = {0, (batch + 1) * numel};
        operation.parameters.push_back(index);
    }

    // Softmax(Q K^T) V with the scores materialised: four operations. All scores are computed,
    // though a causal mask hides half of them. Both operands of Q K^T and of (scores) V are
    // activations. A product's "weight gradient" is that of its right operand, here K and V.
    void attention(const std::string& name, const Attention& shape) {
        const std::int64_t length = shape.sequence_length;
        const std::int64_t width = shape.hidden / shape.heads;
        const std::int64_t products = shape.batch * shape.heads;
        const std::int64_t activations = shape.batch * length * shape.hidden;
        const std::int64_t scores = products * length * length;
        model_.writes_attention_out = shape.written_out;
        Operation& by_keys =
            add_product(name + ".scores", {.m = length, .n = length, .k = width, .count = products},
                        {.left = activations, .right = activations, .result = scores});
        by_keys.kind = OperationKind::scores;
        by_keys.eager.forward = {4, 6 * activations};  // separates the heads
        elementwise(name + ".scale_and_mask", scores,
                    shape.written_out ? scale_and_mask_written_out : scale_and_mask);
        elementwise(name + ".softmax", scores, shape.written_out ? softmax_written_out : softmax);
        if (shape.dropout) {
            dropout(scores);
            model_.operations.back().kept_elements += scores;  // and the softmax's
        }
        Operation& by_values =
            add_product(name + ".values", {.m = length, .n = width, .k = length, .count = products},
                        {.left = scores, .right = activations, .result = activations});
        by_values.kind = shape.causal ? OperationKind::masked_sum : OperationKind::weighted_sum;
        by_values.kept_elements = activations;
        by_values.eager.forward = {2, 2 * activations};         // joins the heads
        by_values.eager.input_gradient = {5, 8 * activations};  // both, backwards
    }

    // Also adds the statistics that DDP broadcasts. The activation or sum that follows keeps the
    // result. Forward reads the input twice, for the statistics and to normalise, and writes once.
    void batch_norm(const std::string& name, const FeatureMap& map) {
        Operation& operation = add_norm(name, map.elements(), map.channels, 3);
        operation.parameters.push_back(parameter(name + ".bias", {map.channels}));
        operation.eager.weight_gradient.kernels = 0;  // cuDNN: one for both gradients
        operation.batch_norm_channels = map.channels;
        model_.buffers.push_back({name + ".running_mean", map.channels});
        model_.buffers.push_back({name + ".running_var", map.channels});
        model_.buffers.push_back({name + ".num_batches_tracked", 1, Bytes{8}});
    }

    // A row fits the chip's caches, so one pass reads and writes it.
    void norm(const std::string& name, Norm kind, std::int64_t rows, std::int64_t width) {
        const std::int64_t elements = rows * width;
        Operation& operation = add_norm(name, elements, width, 2);
        operation.kind = OperationKind::normalisation;
        operation.kept_elements = elements;
        if (kind == Norm::layer) {
            operation.parameters.push_back(parameter(name + ".bias", {width}));
        } else if (kind == Norm::rms) {
            // In Python: square, mean, sum, root and two products. Both products are kept.
            operation.kept_elements = 2 * elements;
            operation.upcasts = true;
            operation.eager = {{6, 5 * elements}, {11, 16 * elements}, {2, 2 * elements}};
        }
    }

    void elementwise(const std::string& name, std::int64_t elements, const Traffic& traffic) {
        Operation& operation =
            add_operation(name, traffic.forward * elements, traffic.backward * elements);
        operation.kind = traffic.kind;
        operation.eager.forward = {traffic.forward_kernels, traffic.forward_besides * elements};
        operation.eager.input_gradient = {traffic.backward_kernels,
                                          traffic.backward_besides * elements};
        operation.kept_elements = traffic.kept * elements;
        operation.upcasts = traffic.upcasts;
    }

    // A multiplication reads the last operation's result, and nothing else does.
    void make_gate() { model_.operations.back().kind = OperationKind::gate; }

    // The gradient follows from the result, so the input is not kept.
    void relu(const std::string& name, std::int64_t elements) {
        model_.operations.back().kept_elements = 0;
        elementwise(name, elements, activation);
    }

    // Applied to the last operation's result. The mask has a byte for each element.
    void dropout(std::int64_t elements) {
        const std::int64_t moved = 2 * elements + elements / 4;
        EagerPasses& eager = model_.operations.back().eager;
        eager.forward = {eager.forward.kernels + 1, eager.forward.elements + moved};
        eager.input_gradient = {eager.input_gradient.kernels + 1,
                                eager.input_gradient.elements + moved};
        model_.operations.back().kept_bytes += elements;
    }

    // Joins a branch with a shortcut that took `forked` elements from the same tensor. The sum is
    // kept, not the end of the branch.
    void residual_add(const std::string& name, std::int64_t elements, std::int64_t forked) {
        model_.operations.back().kept_elements = 0;
        elementwise(name, elements, addition);
        model_.operations.back().kind = OperationKind::stream;
        model_.operations.back().kept_elements = elements;
        add_fork(forked);
    }

    // One more operation reads the tensor that the last one read, so autograd adds their two
    // gradients. The sum is charged to the last operation's input gradient.
    void add_fork(std::int64_t elements) {
        Operation& operation = model_.operations.back();
        operation.eager.input_gradient.kernels += operation.input_gradient == Work{} ? 0 : 1;
        operation.input_gradient.elements += 3 * elements;
    }

    // Without normalisations, which autocast computes in float32, a model has no stream either.
    Model build() && {
        if (std::ranges::find(model_.operations, OperationKind::normalisation, &Operation::kind) ==
            model_.operations.end()) {
            for (Operation& operation : model_.operations) {
                if (operation.kind == OperationKind::stream) {
                    operation.kind = OperationKind::pass;
                }
            }
        }
        return std::move(model_);
    }

  private:
    // Elements of the tensors around a matrix product.
    struct Operands {
        std::int64_t left = 0;
        std::int64_t right = 0;
        std::int64_t bias = 0;
        std::int64_t result = 0;
    };

    Operation& add_operation(const std::string& name, std::int64_t forward, std::int64_t backward) {
        Operation& operation = model_.operations.emplace_back();
        operation.name = name;
        operation.forward.elements = forward;
        operation.input_gradient.elements = backward;
        return operation;
    }
    // Each of the three products reads two of the tensors (left, right, result) and writes the
    // third.
    Operation& add_product(const std::string& name, const MatrixProduct& product,
                           const Operands& operands) {
        const std::int64_t flops = 2 * product.count * product.m * product.n * product.k;
        const std::int64_t elements = operands.left + operands.right + operands.result;
        Operation& operation = add_operation(name, elements + operands.bias, elements);
        operation.forward.flops = flops;
        operation.input_gradient.flops = flops;
        operation.weight_gradient = {flops, elements + operands.bias};
        operation.product = product;
        operation.operand_elements = elements;
        return operation;
    }

    // PyTorch's backward first reduces (reads gradient and input; that gives the parameters'
    // gradients), then computes the input's gradient from both and the sums.
    Operation& add_norm(const std::string& name, std::int64_t elements, std::int64_t width,
                        std::int64_t forward_passes) {
        Operation& operation = add_operation(name, forward_passes * elements, 3 * elements);
        operation.weight_gradient = {0, 2 * elements};
        operation.parameters.push_back(parameter(name + ".weight", {width}));
        return operation;
    }

    Model model_;
    std::unordered_map<std::string, std::int32_t> index_of_;
};

struct ResNetShape {
    std::array<int, 4> blocks{};  // per stage
    bool bottleneck = false;      // three convolutions a block, the last 4 times as wide; else two
    std::int64_t groups = 1;      // ResNeXt: of a bottleneck's 3x3 convolution
    std::int64_t width_per_group = 64;  // ResNeXt: channels of a group in the first stage
};
struct Vgg16Shape {};

// make_llama makes CS336's model, too.
Model make_gpt2(std::string name, const TransformerShape& shape, const ModelInput& input);
Model make_bert(std::string name, const TransformerShape& shape, const ModelInput& input);
Model make_llama(std::string name, const TransformerShape& shape, const ModelInput& input);
Model make_t5(std::string name, const TransformerShape& shape, const ModelInput& input);
Model make_neox(std::string name, const TransformerShape& shape, const ModelInput& input);
Model make_falcon(std::string name, const TransformerShape& shape, const ModelInput& input);
Model make_opt(std::string name, const TransformerShape& shape, const ModelInput& input);
Model make_vit(std::string name, const VitShape& shape, const ModelInput& input);
Model make_resnet(std::string name, const ResNetShape& shape, const ModelInput& input);
Model make_vgg16(std::string name, const ModelInput& input);
Model make_mlp(const MlpShape& shape, const ModelInput& input);

}  // namespace bucketwise::models
