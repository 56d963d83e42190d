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
    const auto project_back = [&](const std::string& module, std::int64_t in) {
        conv1d(module, in, hidden);
        if (shape.hugging_face) {
            builder.dropout(tokens * hidden);
        }
    };
    builder.attention(name + ".attn", {.batch = input.batch,
                                       .sequence_length = input.sequence_length,
                                       .heads = shape.heads,
                                       .hidden = hidden,
                                       .causal = true,
                                       .dropout = shape.hugging_face});
    project_back(".attn.c_proj", hidden);
    builder.residual_add(name + ".attn.add", tokens * hidden, tokens * hidden);
    builder.layer_norm(name + ".ln_2", tokens, hidden, shape.norm_bias);
    conv1d(".mlp.c_fc", hidden, shape.feed_forward);
    builder.elementwise(name + ".mlp.act", tokens * shape.feed_forward,
                        shape.hugging_face ? gelu_in_python : activation);
    project_back(".mlp.c_proj", shape.feed_forward);
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
    if (shape.hugging_face) {
        builder.dropout(tokens * shape.hidden);
    }
    for (std::int64_t i = 0; i < shape.layers; ++i) {
        add_block(builder, "transformer.h." + std::to_string(i), shape, input);
    }
    builder.layer_norm("transformer.ln_f", tokens, shape.hidden, shape.norm_bias);
    builder.linear("lm_head", {.rows = tokens,
                               .in = shape.hidden,
                               .out = shape.vocabulary,
                               .bias = false,
                               .weight = shape.is_tied() ? "transformer.wte.weight" : ""});
    builder.elementwise("loss", tokens * shape.vocabulary,
                        shape.hugging_face ? cross_entropy_shifted : cross_entropy);
    return std::move(builder).build();
}

}  // namespace bucketwise::models
