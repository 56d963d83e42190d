// The Llama architecture: pre-norm with RMS norms, rotary positions, SwiGLU, no biases, embedding
// and head untied. Hugging Face's LlamaForCausalLM, and the block that cs336.cpp shares with it.
#include "sim/models/builder.h"

namespace bucketwise::models {
namespace {

std::string with_weight(const std::string& module) {
    return module + ".weight";
}

// Modules register attention, feed-forward and norms in this order, whatever the order they run.
void register_layer(ModelBuilder& builder, const std::string& layer, const TransformerShape& shape,
                    const LlamaNames& names) {
    const std::int64_t hidden = shape.hidden;
    for (const std::string& module :
         {names.query, names.key, names.value, names.attention_output}) {
        builder.parameter(with_weight(layer + module), {hidden, hidden});
    }
    for (const std::string& module : names.feed_forward_order) {
        builder.parameter(with_weight(layer + module),
                          module == names.down ? std::vector{hidden, shape.feed_forward}
                                               : std::vector{shape.feed_forward, hidden});
    }
    builder.parameter(with_weight(layer + names.attention_norm), {hidden});
    builder.parameter(with_weight(layer + names.feed_forward_norm), {hidden});
}

// Query, key and value read the same tensor: two sums of gradients.
void add_attention(ModelBuilder& builder, const std::string& layer, const TransformerShape& shape,
                   const ModelInput& input, const LlamaNames& names) {
    const std::int64_t tokens = input.batch * input.sequence_length;
    const std::int64_t elements = tokens * shape.hidden;
    const Linear projection{.rows = tokens, .in = shape.hidden, .out = shape.hidden, .bias = false};
    builder.rms_norm(layer + names.attention_norm, tokens, shape.hidden);
    builder.linear(layer + names.query, projection);
    builder.add_fork(elements);
    builder.linear(layer + names.key, projection);
    builder.add_fork(elements);
    builder.linear(layer + names.value, projection);
    builder.elementwise(layer + names.attention + ".rotate_query", elements, scale_or_rotate);
    builder.elementwise(layer + names.attention + ".rotate_key", elements, scale_or_rotate);
    builder.attention(layer + names.attention,
                      {input.batch, input.sequence_length, shape.heads, shape.hidden});
    builder.linear(layer + names.attention_output, projection);
    builder.residual_add(layer + names.attention + ".add", elements, elements);
}

// down(silu(gate(x)) * up(x)); gate and up read the same tensor.
void add_feed_forward(ModelBuilder& builder, const std::string& layer,
                      const TransformerShape& shape, std::int64_t tokens, const LlamaNames& names) {
    const std::int64_t elements = tokens * shape.hidden;
    const std::int64_t inner = tokens * shape.feed_forward;
    const Linear expansion{
        .rows = tokens, .in = shape.hidden, .out = shape.feed_forward, .bias = false};
    builder.rms_norm(layer + names.feed_forward_norm, tokens, shape.hidden);
    builder.linear(layer + names.gate, expansion);
    builder.add_fork(elements);
    builder.elementwise(layer + names.gate + ".silu", inner, activation);
    builder.linear(layer + names.up, expansion);
    builder.elementwise(layer + names.up + ".multiply", inner, multiplication);
    builder.linear(layer + names.down,
                   {.rows = tokens, .in = shape.feed_forward, .out = shape.hidden, .bias = false});
    builder.residual_add(layer + names.down + ".add", elements, elements);
}

}  // namespace

Model make_llama_like(std::string name, const TransformerShape& shape, const ModelInput& input,
                      const LlamaNames& names) {
    const std::int64_t tokens = input.batch * input.sequence_length;
    ModelBuilder builder(std::move(name));
    builder.embedding(names.embedding,
                      {.rows = tokens, .entries = shape.vocabulary, .width = shape.hidden});
    for (std::int64_t i = 0; i < shape.layers; ++i) {
        const std::string layer = names.layer + "." + std::to_string(i) + ".";
        register_layer(builder, layer, shape, names);
        add_attention(builder, layer, shape, input, names);
        add_feed_forward(builder, layer, shape, tokens, names);
    }
    builder.rms_norm(names.final_norm, tokens, shape.hidden);
    builder.linear(names.head,
                   {.rows = tokens, .in = shape.hidden, .out = shape.vocabulary, .bias = false});
    builder.elementwise("loss", tokens * shape.vocabulary, cross_entropy);
    return std::move(builder).build();
}

Model make_llama(std::string name, const TransformerShape& shape, const ModelInput& input) {
    return make_llama_like(std::move(name), shape, input,
                           {.embedding = "model.embed_tokens",
                            .layer = "model.layers",
                            .attention = "self_attn",
                            .query = "self_attn.q_proj",
                            .key = "self_attn.k_proj",
                            .value = "self_attn.v_proj",
                            .attention_output = "self_attn.o_proj",
                            .gate = "mlp.gate_proj",
                            .up = "mlp.up_proj",
                            .down = "mlp.down_proj",
                            .feed_forward_order = {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"},
                            .attention_norm = "input_layernorm",
                            .feed_forward_norm = "post_attention_layernorm",
                            .final_norm = "model.norm",
                            .head = "lm_head"});
}

}  // namespace bucketwise::models
