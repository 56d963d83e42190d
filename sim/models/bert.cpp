// Hugging Face's BertModel (uncased, with pooler): post-norm, learned positions. It has no loss of
// its own; backward starts at the pooler's output.
#include "sim/models/builder.h"

namespace bucketwise::models {
namespace {

constexpr std::int64_t token_types = 2;

void add_embeddings(ModelBuilder& builder, const TransformerShape& shape, const ModelInput& input) {
    const std::int64_t tokens = input.batch * input.sequence_length;
    // Registered before the token types, run after them.
    builder.parameter("embeddings.word_embeddings.weight", {shape.vocabulary, shape.hidden});
    builder.parameter("embeddings.position_embeddings.weight", {shape.context, shape.hidden});
    builder.embedding("embeddings.word_embeddings",
                      {.rows = tokens, .entries = shape.vocabulary, .width = shape.hidden});
    builder.embedding("embeddings.token_type_embeddings",
                      {.rows = tokens, .entries = token_types, .width = shape.hidden});
    builder.elementwise("embeddings.token_type_embeddings.add", tokens * shape.hidden, addition);
    builder.add_position_embedding("embeddings.position_embeddings", shape, input);
    builder.layer_norm("embeddings.LayerNorm", tokens, shape.hidden);
}

// Query, key, value and the shortcut read the same tensor: three sums of gradients.
void add_attention(ModelBuilder& builder, const std::string& name, const TransformerShape& shape,
                   const ModelInput& input) {
    const std::int64_t tokens = input.batch * input.sequence_length;
    const std::int64_t elements = tokens * shape.hidden;
    const Linear projection{.rows = tokens, .in = shape.hidden, .out = shape.hidden};
    builder.linear(name + ".self.query", projection);
    builder.add_fork(elements);
    builder.linear(name + ".self.key", projection);
    builder.add_fork(elements);
    builder.linear(name + ".self.value", projection);
    builder.attention(name + ".self",
                      {input.batch, input.sequence_length, shape.heads, shape.hidden});
    builder.linear(name + ".output.dense", projection);
    builder.residual_add(name + ".output.add", elements, elements);
    builder.layer_norm(name + ".output.LayerNorm", tokens, shape.hidden);
}

void add_feed_forward(ModelBuilder& builder, const std::string& name, const TransformerShape& shape,
                      std::int64_t tokens) {
    const std::int64_t elements = tokens * shape.hidden;
    builder.linear(name + ".intermediate.dense",
                   {.rows = tokens, .in = shape.hidden, .out = shape.feed_forward});
    builder.elementwise(name + ".intermediate.act", tokens * shape.feed_forward, activation);
    builder.linear(name + ".output.dense",
                   {.rows = tokens, .in = shape.feed_forward, .out = shape.hidden});
    builder.residual_add(name + ".output.add", elements, elements);
    builder.layer_norm(name + ".output.LayerNorm", tokens, shape.hidden);
}

}  // namespace

Model make_bert(std::string name, const TransformerShape& shape, const ModelInput& input) {
    const std::int64_t pooled = input.batch * shape.hidden;
    ModelBuilder builder(std::move(name));
    add_embeddings(builder, shape, input);
    for (std::int64_t i = 0; i < shape.layers; ++i) {
        const std::string layer = "encoder.layer." + std::to_string(i);
        add_attention(builder, layer + ".attention", shape, input);
        add_feed_forward(builder, layer, shape, input.batch * input.sequence_length);
    }
    // The pooler reads each sequence's first token: a view, whose backward fills zeros around it.
    constexpr Traffic first_token{0, 1};
    builder.elementwise("pooler.first_token", input.batch * input.sequence_length * shape.hidden,
                        first_token);
    builder.linear("pooler.dense", {.rows = input.batch, .in = shape.hidden, .out = shape.hidden});
    builder.elementwise("pooler.activation", pooled, activation);
    return std::move(builder).build();
}

}  // namespace bucketwise::models
