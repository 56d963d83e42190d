// Builds a Model operation by operation, as its forward pass runs: every layer knows its
// parameters, its matrix product and the memory traffic of its three passes.
//
// What the models leave out, all of them alike:
//  - Dropout: the benchmarks this project reproduces run with probability 0.
//  - Views (flatten, split, transpose) move nothing, and the copies PyTorch's eager attention
//    makes to lay out heads for its batched products are small beside the scores.
//  - Floating-point operations outside matrix products (Work::flops is 0 there): such operations
//    are bound by memory, and published counts (torchvision, scaling laws) leave them out too.
//  - Per-channel vectors of normalisations: activations are 10^4 times larger.
//  - Eager kernels that a fused one replaces: a GELU, a rotary embedding or an RMS norm written
//    in Python launches several; each counts as the one pass it needs.
#pragma once

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

// Square images, or what a layer made of them.
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
    bool tied = false;  // to the output layer
};

struct Attention {
    std::int64_t batch = 0;
    std::int64_t sequence_length = 0;
    std::int64_t heads = 0;
    std::int64_t hidden = 0;  // of all heads together
};

// How many tensors of the operation's size each pass reads and writes.
struct Traffic {
    std::int64_t forward = 0;
    std::int64_t backward = 0;
};
inline constexpr Traffic activation{2, 3};       // backward: gradient, saved tensor -> gradient
inline constexpr Traffic softmax{2, 3};          // backward: gradient, output -> gradient
inline constexpr Traffic scale_or_rotate{2, 2};  // backward needs the gradient alone
inline constexpr Traffic multiplication{3, 6};   // twice: gradient, other factor -> gradient
inline constexpr Traffic addition{3, 0};         // autograd hands the same gradient to both sides
inline constexpr Traffic first_token{0, 1};      // a view, whose backward fills zeros around it
// Log-softmax 2, backward 3; the negative log likelihood reads one element a row, but its
// backward fills a dense gradient.
inline constexpr Traffic cross_entropy{2, 4};

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
        operation.parameters.push_back(
            parameter(name + ".weight", {output.channels, in_channels, kernel, kernel}));
        if (layer.bias) {
            operation.parameters.push_back(parameter(name + ".bias", {output.channels}));
        }
        if (!layer.input_gradient) {
            operation.input_gradient = {};
        }
        return output;
    }

    // Backward reads the output's gradient and where each maximum came from.
    FeatureMap max_pool(const std::string& name, const FeatureMap& input, const Window& window) {
        const FeatureMap output{input.batch, input.channels, window.output_size(input.size)};
        add_operation(name, input.elements() + output.elements(),
                      2 * output.elements() + input.elements());
        return output;
    }

    // Adaptive: any input size to output_size.
    FeatureMap average_pool(const std::string& name, const FeatureMap& input,
                            std::int64_t output_size) {
        const FeatureMap output{input.batch, input.channels, output_size};
        const std::int64_t elements = input.elements() + output.elements();
        add_operation(name, elements, elements);
        return output;
    }

    void linear(const std::string& name, const Linear& layer) {
        Operation& operation = add_product(name, {.m = layer.rows, .n = layer.out, .k = layer.in},
                                           {.left = layer.rows * layer.in,
                                            .right = layer.in * layer.out,
                                            .bias = layer.bias ? layer.out : 0,
                                            .result = layer.rows * layer.out});
        const std::string& name_of_weight =
            layer.weight.empty() ? name + layer.separator + "weight" : layer.weight;
        const std::int32_t weight =
            parameter(name_of_weight, layer.weight_is_in_out ? std::vector{layer.in, layer.out}
                                                             : std::vector{layer.out, layer.in});
        // Autograd hands out gradients in the order of the operator's arguments, and addmm's first
        // is the bias (tests/data/pytorch/readiness.json).
        if (layer.bias) {
            operation.parameters.push_back(parameter(name + layer.separator + "bias", {layer.out}));
        }
        operation.parameters.push_back(weight);
        if (!layer.input_gradient) {
            operation.input_gradient = {};
        }
    }

    // The gradient is dense: zeros everywhere, then the rows are read and added. A tied table also
    // sums this gradient with the output layer's.
    void embedding(const std::string& name, const Embedding& table) {
        const std::int64_t moved = 2 * table.rows * table.width;
        const std::int64_t size = table.entries * table.width;
        Operation& operation = add_operation(name, moved, 0);
        operation.weight_gradient = {0, moved + (table.tied ? 4 : 1) * size};
        operation.parameters.push_back(parameter(name + ".weight", {table.entries, table.width}));
    }

    // A learned vector per place in the sequence, looked up once and added to every sequence.
    // The positions' gradient is the sum over the batch.
    void add_position_embedding(const std::string& name, const TransformerShape& shape,
                                const ModelInput& input) {
        embedding(name,
                  {.rows = input.sequence_length, .entries = shape.context, .width = shape.hidden});
        const std::int64_t positions = input.sequence_length * shape.hidden;
        const std::int64_t activations = input.batch * positions;
        add_operation(name + ".add", 2 * activations + positions, activations + positions);
    }

    // A learned tensor that joins every sample's activations, `activations` in all. Its gradient is
    // the sum over the batch.
    void add_learned(const std::string& name, std::vector<std::int64_t> shape, std::int64_t batch,
                     std::int64_t activations) {
        const std::int32_t index = parameter(name, std::move(shape));
        const std::int64_t numel = model_.parameters[static_cast<std::size_t>(index)].numel();
        Operation& operation = add_operation(name, 2 * activations + numel, 0);
        operation.weight_gradient = {0, (batch + 1) * numel};
        operation.parameters.push_back(index);
    }

    // Softmax(Q K^T) V with the scores materialised: four operations. The square of scores is
    // whole: a causal mask hides half of it, but the product computes it.
    // Both operands of Q K^T and of (scores) V are activations. Model's "weight gradient" of a
    // product is that of its right operand, here K and V.
    void attention(const std::string& name, const Attention& shape) {
        const std::int64_t length = shape.sequence_length;
        const std::int64_t width = shape.hidden / shape.heads;
        const std::int64_t products = shape.batch * shape.heads;
        const std::int64_t activations = shape.batch * length * shape.hidden;
        const std::int64_t scores = products * length * length;
        add_product(name + ".scores", {.m = length, .n = length, .k = width, .count = products},
                    {.left = activations, .right = activations, .result = scores});
        elementwise(name + ".scale_and_mask", scores, scale_or_rotate);
        elementwise(name + ".softmax", scores, softmax);
        add_product(name + ".values", {.m = length, .n = width, .k = length, .count = products},
                    {.left = scores, .right = activations, .result = activations});
    }

    // Also adds the statistics that DDP broadcasts.
    // Forward reads the input twice, for the statistics and to normalise, and writes once.
    void batch_norm(const std::string& name, const FeatureMap& map) {
        Operation& operation = add_norm(name, map.elements(), map.channels, 3);
        operation.parameters.push_back(parameter(name + ".bias", {map.channels}));
        operation.batch_norm_channels = map.channels;
        model_.buffers.push_back({name + ".running_mean", map.channels});
        model_.buffers.push_back({name + ".running_var", map.channels});
        model_.buffers.push_back({name + ".num_batches_tracked", 1, Bytes{8}});
    }

    // A row fits the chip's caches, so one pass reads and writes it.
    void layer_norm(const std::string& name, std::int64_t rows, std::int64_t width,
                    bool bias = true) {
        Operation& operation = add_norm(name, rows * width, width, 2);
        if (bias) {
            operation.parameters.push_back(parameter(name + ".bias", {width}));
        }
    }

    void rms_norm(const std::string& name, std::int64_t rows, std::int64_t width) {
        add_norm(name, rows * width, width, 2);
    }

    void elementwise(const std::string& name, std::int64_t elements, const Traffic& traffic) {
        add_operation(name, traffic.forward * elements, traffic.backward * elements);
    }

    // Joins a branch with a shortcut that took `forked` elements from the same tensor.
    void residual_add(const std::string& name, std::int64_t elements, std::int64_t forked) {
        elementwise(name, elements, addition);
        add_fork(forked);
    }

    // One more operation reads the tensor that the last one read, so autograd adds their two
    // gradients. Charged to the last operation's input gradient.
    void add_fork(std::int64_t elements) {
        model_.operations.back().input_gradient.elements += 3 * elements;
    }

    Model build() && { return std::move(model_); }

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
struct VitShape {
    std::int64_t patch = 0;  // height and width in pixels of what becomes one token
    std::int64_t layers = 0;
    std::int64_t hidden = 0;
    std::int64_t feed_forward = 0;
    std::int64_t heads = 0;
};

Model make_resnet(std::string name, const ResNetShape& shape, const ModelInput& input);
Model make_vgg16(std::string name, const ModelInput& input);
Model make_vit(std::string name, const VitShape& shape, const ModelInput& input);
Model make_gpt2(std::string name, const TransformerShape& shape, const ModelInput& input);
Model make_bert(std::string name, const TransformerShape& shape, const ModelInput& input);
Model make_llama(std::string name, const TransformerShape& shape, const ModelInput& input);
Model make_cs336(std::string name, const TransformerShape& shape, const ModelInput& input);
Model make_mlp(std::string name, const MlpShape& shape, const ModelInput& input);

}  // namespace bucketwise::models
