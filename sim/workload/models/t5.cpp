// Hugging Face's T5ForConditionalGeneration (Raffel et al. 2020): an encoder and a decoder,
// pre-norm with RMS norms, no biases, one table of embeddings for both and, in the first version,
// for the head. Attention adds a learned number for each distance and head, which the first layer
// of a stack looks up for all of its layers.
//
// The decoder's sequence is taken to be as long as the encoder's. Left out: that the gradients of
// the looked-up numbers are summed over the layers, which is small beside the scores.
#include "sim/workload/models/builder.h"

namespace bucketwise::models {
namespace {

constexpr const char* shared_table = "shared.weight";

// Encoder or decoder.
struct Stack {
    std::string name;
    std::int64_t layers = 0;
    bool is_decoder = false;
};

class T5Builder {
  public:
    T5Builder(std::string name, const TransformerShape& shape, const ModelInput& input)
        : builder_(std::move(name)),
          shape_(shape),
          input_(input),
          tokens_(input.batch * input.sequence_length),
          elements_(tokens_ * shape.hidden) {}

    Model build() && {
        const std::int64_t decoder_layers =
            shape_.decoder_layers > 0 ? shape_.decoder_layers : shape_.layers;
        add_stack({.name = "encoder", .layers = shape_.layers});
        add_stack({.name = "decoder", .layers = decoder_layers, .is_decoder = true});
        if (shape_.is_tied()) {
            builder_.elementwise("scale", elements_, scale);
        }
        builder_.linear("lm_head", {.rows = tokens_,
                                    .in = shape_.hidden,
                                    .out = shape_.vocabulary,
                                    .bias = false,
                                    .weight = shape_.is_tied() ? shared_table : ""});
        builder_.elementwise("loss", tokens_ * shape_.vocabulary, cross_entropy);
        return std::move(builder_).build();
    }

  private:
    // Its result is kept, but in place of what it reads.
    static constexpr Traffic scale{2, 2, 1, 1, 0, 0, OperationKind::pass, 0};

    void add_stack(const Stack& stack) {
        // Of the three that share the table, the head's gradient and the decoder's are summed
        // first.
        builder_.embedding(stack.name + ".embed_tokens",
                           {.rows = tokens_,
                            .entries = shape_.vocabulary,
                            .width = shape_.hidden,
                            .tied = shape_.is_tied() || !stack.is_decoder,
                            .weight = shared_table});
        builder_.dropout(elements_);
        for (std::int64_t i = 0; i < stack.layers; ++i) {
            const std::string block = stack.name + ".block." + std::to_string(i) + ".layer.";
            add_attention(block + "0", "SelfAttention", stack, i == 0);
            if (stack.is_decoder) {
                add_attention(block + "1", "EncDecAttention", stack, false);
            }
            add_feed_forward(block + (stack.is_decoder ? "2" : "1"));
        }
        builder_.rms_norm(stack.name + ".final_layer_norm", tokens_, shape_.hidden);
        builder_.dropout(elements_);
    }

    // The norm runs first and is registered last.
    void register_attention(const std::string& name, const std::string& layer, bool has_distances) {
        const std::int64_t inner = shape_.query_width();
        for (const char* module : {".q", ".k", ".v"}) {
            builder_.parameter(name + module + ".weight", {inner, shape_.hidden});
        }
        builder_.parameter(name + ".o.weight", {shape_.hidden, inner});
        if (has_distances) {
            builder_.parameter(name + ".relative_attention_bias.weight",
                               {shape_.relative_buckets, shape_.heads});
        }
        builder_.parameter(layer + ".layer_norm.weight", {shape_.hidden});
    }

    // Across, keys and values are made of what the encoder made, whose gradients all are summed.
    void add_attention(const std::string& layer, const std::string& module, const Stack& stack,
                       bool has_distances) {
        const std::string name = layer + "." + module;
        const bool across = module == "EncDecAttention";
        const std::int64_t inner = shape_.query_width();
        const Linear projection{.rows = tokens_, .in = shape_.hidden, .out = inner, .bias = false};
        register_attention(name, layer, has_distances);
        builder_.rms_norm(layer + ".layer_norm", tokens_, shape_.hidden);
        builder_.linear(name + ".q", projection);
        if (!across) {
            builder_.add_fork(elements_);
        }
        builder_.linear(name + ".k", projection);
        builder_.add_fork(elements_);
        builder_.linear(name + ".v", projection);
        if (across) {
            builder_.add_fork(elements_);
        }
        if (has_distances) {
            builder_.embedding(name + ".relative_attention_bias",
                               {.rows = input_.sequence_length * input_.sequence_length,
                                .entries = shape_.relative_buckets,
                                .width = shape_.heads});
        }
        builder_.attention(name, {.batch = input_.batch,
                                  .sequence_length = input_.sequence_length,
                                  .heads = shape_.heads,
                                  .hidden = inner,
                                  .causal = stack.is_decoder && !across,
                                  .dropout = true});
        builder_.linear(name + ".o",
                        {.rows = tokens_, .in = inner, .out = shape_.hidden, .bias = false});
        builder_.dropout(elements_);
        builder_.residual_add(layer + ".add", elements_, elements_);
    }

    // wo(relu(wi(x))), or wo(gelu(wi_0(x)) * wi_1(x)).
    void add_feed_forward(const std::string& layer) {
        const std::string name = layer + ".DenseReluDense";
        const std::int64_t inner = tokens_ * shape_.feed_forward;
        const Linear expansion{
            .rows = tokens_, .in = shape_.hidden, .out = shape_.feed_forward, .bias = false};
        const std::vector<std::string> inputs = shape_.gated
                                                    ? std::vector<std::string>{".wi_0", ".wi_1"}
                                                    : std::vector<std::string>{".wi"};
        for (const std::string& module : inputs) {
            builder_.parameter(name + module + ".weight", {shape_.feed_forward, shape_.hidden});
        }
        builder_.parameter(name + ".wo.weight", {shape_.hidden, shape_.feed_forward});
        builder_.parameter(layer + ".layer_norm.weight", {shape_.hidden});
        builder_.rms_norm(layer + ".layer_norm", tokens_, shape_.hidden);
        builder_.linear(name + inputs.front(), expansion);
        if (shape_.gated) {
            builder_.add_fork(elements_);
        }
        builder_.elementwise(name + ".act", inner, shape_.gated ? gelu_in_python : activation);
        if (shape_.gated) {
            builder_.linear(name + inputs.back(), expansion);
            builder_.elementwise(name + ".multiply", inner, multiplication);
        }
        builder_.dropout(inner);
        builder_.linear(
            name + ".wo",
            {.rows = tokens_, .in = shape_.feed_forward, .out = shape_.hidden, .bias = false});
        builder_.dropout(elements_);
        builder_.residual_add(layer + ".add", elements_, elements_);
    }

    ModelBuilder builder_;
    const TransformerShape& shape_;
    const ModelInput& input_;
    std::int64_t tokens_;
    std::int64_t elements_;
};

}  // namespace

Model make_t5(std::string name, const TransformerShape& shape, const ModelInput& input) {
    return T5Builder(std::move(name), shape, input).build();
}

}  // namespace bucketwise::models
