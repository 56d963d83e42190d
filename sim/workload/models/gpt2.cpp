// Hugging Face's GPT2LMHeadModel: pre-norm, learned positions, one projection for query, key and
// value, the head tied to the token embedding unless the shape says otherwise. nanoGPT's
// parameters are the same but for transposed weights and, with bias=False, no biases.
#include "sim/workload/models/builder.h"

namespace bucketwise::models {
namespace {

void add_block(ModelBuilder& builder, const std::string& name, const TransformerShape& shape,
               const ModelInput& input) {
    const std::int64_t tokens = input.batch * input.sequence_length;
    const std::int64_t hidden = shape.hidden;
    const auto conv1d = [&](const std::string& module, std::int64_t in, std::int64_t out) {
        builder.linear(name + module, {.rows = tokens,
                                       .in = in,
                                       .out = out,
                                       .bias = shape.linear_bias,
                                       .weight_is_in_out = true});
    };
    builder.layer_norm(name + ".ln_1", tokens, hidden, shape.norm_bias);
    conv1d(".attn.c_attn", hidden, 3 * hidden);
    builder.attention(name + ".attn", {input.batch, input.sequence_length, shape.heads, hidden});
    conv1d(".attn.c_proj", hidden, hidden);
    builder.residual_add(name + ".attn.add", tokens * hidden, tokens * hidden);
    builder.layer_norm(name + ".ln_2", tokens, hidden, shape.norm_bias);
    conv1d(".mlp.c_fc", hidden, shape.feed_forward);
    builder.elementwise(name + ".mlp.act", tokens * shape.feed_forward, activation);
    conv1d(".mlp.c_proj", shape.feed_forward, hidden);
    builder.residual_add(name + ".mlp.add", tokens * hidden, tokens * hidden);
}

}  // namespace

Model make_gpt2(std::string name, const TransformerShape& shape, const ModelInput& input) {
    const std::int64_t tokens = input.batch * input.sequence_length;
    ModelBuilder builder(std::move(name));
    builder.embedding("transformer.wte", {.rows = tokens,
                                          .entries = shape.vocabulary,
                                          .width = shape.hidden,
                                          .tied = shape.is_tied()});
    builder.add_position_embedding("transformer.wpe", shape, input);
    for (std::int64_t i = 0; i < shape.layers; ++i) {
        add_block(builder, "transformer.h." + std::to_string(i), shape, input);
    }
    builder.layer_norm("transformer.ln_f", tokens, shape.hidden, shape.norm_bias);
    builder.linear("lm_head", {.rows = tokens,
                               .in = shape.hidden,
                               .out = shape.vocabulary,
                               .bias = false,
                               .weight = shape.is_tied() ? "transformer.wte.weight" : ""});
    builder.elementwise("loss", tokens * shape.vocabulary, cross_entropy);
    return std::move(builder).build();
}

}  // namespace bucketwise::models
