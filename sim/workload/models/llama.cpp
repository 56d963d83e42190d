// The Llama architecture: pre-norm with RMS norms, rotary positions, SwiGLU; no biases, as many
// heads of keys and values as of queries, and embedding and head untied unless the shape says
// otherwise. Hugging Face's LlamaForCausalLM, and the model of CS336, which shares its block.
//
// Qwen2's three projections into attention have biases. Mixtral's feed-forward parts are experts
// behind a router, whose parameter is the only one of theirs that all ranks share.
//
// Where queries share keys and values, these are taken to be repeated for each of them before the
// products, as eager attention does; the copy itself is left out.
#include "sim/workload/models/builder.h"

namespace bucketwise::models {
namespace {

// The names under which a family registers what the Llama architecture is made of, without
// ".weight"; those from `query` to `feed_forward_norm` follow "layer.<index>.".
struct LlamaNames {
    std::string embedding;
    std::string layer;
    std::string attention;
    std::string query;
    std::string key;
    std::string value;
    std::string attention_output;
    std::string gate;
    std::string up;
    std::string down;
    std::array<std::string, 3> feed_forward_order;  // gate, up and down as they are registered
    std::string attention_norm;
    std::string feed_forward_norm;
    std::string final_norm;
    std::string head;
    bool written_out = false;  // softmax, SiLU and loss in single operations
};

constexpr const char* router = "block_sparse_moe.gate";

// Of query, key and value.
bool has_input_bias(const TransformerShape& shape) {
    return shape.attention_bias || shape.query_key_value_bias;
}

std::string with_weight(const std::string& module) {
    return module + ".weight";
}

// Modules register attention, feed-forward and norms in this order, whatever the order they run.
void register_layer(ModelBuilder& builder, const std::string& layer, const TransformerShape& shape,
                    const LlamaNames& names) {
    const std::int64_t hidden = shape.hidden;
    const auto add = [&](const std::string& module, std::int64_t out, std::int64_t in, bool bias) {
        builder.parameter(with_weight(layer + module), {out, in});
        if (bias) {
            builder.parameter(layer + module + ".bias", {out});
        }
    };
    const bool biased = has_input_bias(shape);
    add(names.query, shape.query_width(), hidden, biased);
    add(names.key, shape.key_value_width(), hidden, biased);
    add(names.value, shape.key_value_width(), hidden, biased);
    add(names.attention_output, hidden, shape.query_width(), shape.attention_bias);
    if (shape.experts > 0) {
        add(router, shape.experts, hidden, false);
    } else {
        for (const std::string& module : names.feed_forward_order) {
            const bool is_down = module == names.down;
            add(module, is_down ? hidden : shape.feed_forward,
                is_down ? shape.feed_forward : hidden, shape.feed_forward_bias);
        }
    }
    builder.parameter(with_weight(layer + names.attention_norm), {hidden});
    builder.parameter(with_weight(layer + names.feed_forward_norm), {hidden});
}

// Query, key and value read the same tensor: two sums of gradients.
void add_llama_attention(ModelBuilder& builder, const std::string& layer,
                         const TransformerShape& shape, const ModelInput& input,
                         const LlamaNames& names) {
    const std::int64_t tokens = input.batch * input.sequence_length;
    const std::int64_t elements = tokens * shape.hidden;
    const auto project = [&](const std::string& name, std::int64_t in, std::int64_t out) {
        const bool bias =
            name == names.attention_output ? shape.attention_bias : has_input_bias(shape);
        builder.linear(layer + name, {.rows = tokens, .in = in, .out = out, .bias = bias});
    };
    builder.rms_norm(layer + names.attention_norm, tokens, shape.hidden);
    project(names.query, shape.hidden, shape.query_width());
    builder.add_fork(elements);
    project(names.key, shape.hidden, shape.key_value_width());
    builder.add_fork(elements);
    project(names.value, shape.hidden, shape.key_value_width());
    builder.elementwise(layer + names.attention + ".rotate_query", tokens * shape.query_width(),
                        rotation);
    builder.elementwise(layer + names.attention + ".rotate_key", tokens * shape.key_value_width(),
                        rotation);
    builder.attention(layer + names.attention, {.batch = input.batch,
                                                .sequence_length = input.sequence_length,
                                                .heads = shape.heads,
                                                .hidden = shape.query_width(),
                                                .causal = true,
                                                .written_out = names.written_out});
    project(names.attention_output, shape.query_width(), shape.hidden);
    builder.residual_add(layer + names.attention + ".add", elements, elements);
}

// down(silu(gate(x)) * up(x)); gate and up read the same tensor.
void add_llama_feed_forward(ModelBuilder& builder, const std::string& layer,
                            const TransformerShape& shape, std::int64_t tokens,
                            const LlamaNames& names) {
    const std::int64_t elements = tokens * shape.hidden;
    const std::int64_t inner = tokens * shape.feed_forward;
    const Linear expansion{.rows = tokens,
                           .in = shape.hidden,
                           .out = shape.feed_forward,
                           .bias = shape.feed_forward_bias};
    builder.rms_norm(layer + names.feed_forward_norm, tokens, shape.hidden);
    builder.linear(layer + names.gate, expansion);
    builder.add_fork(elements);
    builder.elementwise(layer + names.gate + ".silu", inner,
                        names.written_out ? silu_written_out : activation);
    builder.linear(layer + names.up, expansion);
    builder.elementwise(layer + names.up + ".multiply", inner, multiplication);
    builder.linear(layer + names.down, {.rows = tokens,
                                        .in = shape.feed_forward,
                                        .out = shape.hidden,
                                        .bias = shape.feed_forward_bias});
    builder.residual_add(layer + names.down + ".add", elements, elements);
}

// Each token goes through some of the experts, which are taken to get equally many: what a rank
// computes is then the same whether it holds all experts or, of those of several ranks, some.
void add_experts(ModelBuilder& builder, const std::string& layer, const TransformerShape& shape,
                 std::int64_t tokens, const LlamaNames& names) {
    const std::int64_t elements = tokens * shape.hidden;
    const std::int64_t rows = tokens * shape.experts_per_token;
    const std::int64_t each = (rows + shape.experts - 1) / shape.experts;
    const std::string experts = layer + "block_sparse_moe.experts";
    const MatrixProduct expansion{
        .m = each, .n = shape.feed_forward, .k = shape.hidden, .count = shape.experts};
    builder.rms_norm(layer + names.feed_forward_norm, tokens, shape.hidden);
    builder.linear(layer + router,
                   {.rows = tokens, .in = shape.hidden, .out = shape.experts, .bias = false});
    builder.add_fork(elements);
    builder.elementwise(layer + router + std::string(".softmax"), tokens * shape.experts,
                        activation);
    builder.elementwise(experts + ".gather", rows * shape.hidden, gather);
    builder.foreign_linear(experts + ".w1", expansion);
    builder.add_fork(rows * shape.hidden);
    builder.elementwise(experts + ".act", rows * shape.feed_forward, activation);
    builder.foreign_linear(experts + ".w3", expansion);
    builder.elementwise(experts + ".multiply", rows * shape.feed_forward, multiplication);
    builder.foreign_linear(
        experts + ".w2",
        {.m = each, .n = shape.hidden, .k = shape.feed_forward, .count = shape.experts});
    builder.elementwise(experts + ".scatter", rows * shape.hidden, multiplication);
    builder.residual_add(experts + ".add", elements, elements);
}

Model make_llama_like(std::string name, const TransformerShape& shape, const ModelInput& input,
                      const LlamaNames& names) {
    const std::int64_t tokens = input.batch * input.sequence_length;
    ModelBuilder builder(std::move(name));
    builder.embedding(names.embedding, {.rows = tokens,
                                        .entries = shape.vocabulary,
                                        .width = shape.hidden,
                                        .tied = shape.is_tied()});
    for (std::int64_t i = 0; i < shape.layers; ++i) {
        const std::string layer = names.layer + "." + std::to_string(i) + ".";
        register_layer(builder, layer, shape, names);
        add_llama_attention(builder, layer, shape, input, names);
        if (shape.experts > 0) {
            add_experts(builder, layer, shape, tokens, names);
        } else {
            add_llama_feed_forward(builder, layer, shape, tokens, names);
        }
    }
    builder.rms_norm(names.final_norm, tokens, shape.hidden);
    builder.linear(names.head, {.rows = tokens,
                                .in = shape.hidden,
                                .out = shape.vocabulary,
                                .bias = false,
                                .weight = shape.is_tied() ? with_weight(names.embedding) : ""});
    builder.elementwise("loss", tokens * shape.vocabulary,
                        names.written_out ? cross_entropy_written_out : cross_entropy);
    return std::move(builder).build();
}

}  // namespace

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

// The language model of Stanford CS336's assignments, in its reference implementation's names and
// order: SwiGLU is w2(silu(w1(x)) * w3(x)).
Model make_cs336(std::string name, const TransformerShape& shape, const ModelInput& input) {
    return make_llama_like(std::move(name), shape, input,
                           {.embedding = "token_embeddings",
                            .layer = "layers",
                            .attention = "attn",
                            .query = "attn.q_proj",
                            .key = "attn.k_proj",
                            .value = "attn.v_proj",
                            .attention_output = "attn.output_proj",
                            .gate = "ffn.w1",
                            .up = "ffn.w3",
                            .down = "ffn.w2",
                            .feed_forward_order = {"ffn.w1", "ffn.w2", "ffn.w3"},
                            .attention_norm = "ln1",
                            .feed_forward_norm = "ln2",
                            .final_norm = "ln_final",
                            .head = "lm_head",
                            .written_out = true});
}

}  // namespace bucketwise::models
