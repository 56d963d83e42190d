// Hugging Face's BERT: post-norm, learned positions. BertModel (with pooler) has no loss of its
// own; backward starts at the pooler's output. BertForMaskedLM has no pooler but a head over all
// tokens, tied to the embedding; BertForPreTraining has both, and a classifier of the pooled token.
#include "sim/workload/models/builder.h"

namespace bucketwise::models {
namespace {

// With a head the encoder is a module of its own.
std::string encoder_prefix(const TransformerShape& shape) {
    return shape.bert_head == BertHead::none ? "" : "bert.";
}

std::string word_embeddings(const TransformerShape& shape) {
    return encoder_prefix(shape) + "embeddings.word_embeddings";
}

void add_embeddings(ModelBuilder& builder, const TransformerShape& shape, const ModelInput& input) {
    const std::int64_t tokens = input.batch * input.sequence_length;
    const std::string name = encoder_prefix(shape) + "embeddings.";
    // Registered before the token types, run after them.
    builder.parameter(word_embeddings(shape) + ".weight", {shape.vocabulary, shape.hidden});
    builder.parameter(name + "position_embeddings.weight", {shape.context, shape.hidden});
    builder.embedding(word_embeddings(shape), {.rows = tokens,
                                               .entries = shape.vocabulary,
                                               .width = shape.hidden,
                                               .tied = shape.bert_head != BertHead::none});
    builder.embedding(name + "token_type_embeddings",
                      {.rows = tokens, .entries = shape.token_types, .width = shape.hidden});
    builder.elementwise(name + "token_type_embeddings.add", tokens * shape.hidden, addition);
    builder.add_position_embedding(name + "position_embeddings", shape, input);
    builder.layer_norm(name + "LayerNorm", tokens, shape.hidden);
    if (shape.hugging_face) {
        builder.dropout(tokens * shape.hidden);
    }
}

// Query, key, value and the shortcut read the same tensor: three sums of gradients.
void add_bert_attention(ModelBuilder& builder, const std::string& name,
                        const TransformerShape& shape, const ModelInput& input) {
    const std::int64_t tokens = input.batch * input.sequence_length;
    const std::int64_t elements = tokens * shape.hidden;
    const Linear projection{.rows = tokens, .in = shape.hidden, .out = shape.hidden};
    builder.linear(name + ".self.query", projection);
    builder.add_fork(elements);
    builder.linear(name + ".self.key", projection);
    builder.add_fork(elements);
    builder.linear(name + ".self.value", projection);
    builder.attention(name + ".self", {.batch = input.batch,
                                       .sequence_length = input.sequence_length,
                                       .heads = shape.heads,
                                       .hidden = shape.hidden,
                                       .dropout = shape.hugging_face});
    builder.linear(name + ".output.dense", projection);
    if (shape.hugging_face) {
        builder.dropout(elements);
    }
    builder.residual_add(name + ".output.add", elements, elements);
    builder.layer_norm(name + ".output.LayerNorm", tokens, shape.hidden);
}

void add_bert_feed_forward(ModelBuilder& builder, const std::string& name,
                           const TransformerShape& shape, std::int64_t tokens) {
    const std::int64_t elements = tokens * shape.hidden;
    builder.linear(name + ".intermediate.dense",
                   {.rows = tokens, .in = shape.hidden, .out = shape.feed_forward});
    builder.elementwise(name + ".intermediate.act", tokens * shape.feed_forward, activation);
    builder.linear(name + ".output.dense",
                   {.rows = tokens, .in = shape.feed_forward, .out = shape.hidden});
    if (shape.hugging_face) {
        builder.dropout(elements);
    }
    builder.residual_add(name + ".output.add", elements, elements);
    builder.layer_norm(name + ".output.LayerNorm", tokens, shape.hidden);
}

// The pooler reads each sequence's first token.
void add_pooler(ModelBuilder& builder, const TransformerShape& shape, const ModelInput& input) {
    const std::string name = encoder_prefix(shape) + "pooler.";
    builder.elementwise(name + "first_token", input.batch * input.sequence_length * shape.hidden,
                        first_token);
    builder.linear(name + "dense", {.rows = input.batch, .in = shape.hidden, .out = shape.hidden});
    builder.elementwise(name + "activation", input.batch * shape.hidden, activation);
}

// Over all tokens, masked or not, as the head computes them.
void add_masked_lm(ModelBuilder& builder, const TransformerShape& shape, const ModelInput& input) {
    const std::int64_t tokens = input.batch * input.sequence_length;
    const std::string transform = "cls.predictions.transform.";
    builder.parameter("cls.predictions.bias", {shape.vocabulary});  // before the transform's
    builder.linear(transform + "dense", {.rows = tokens, .in = shape.hidden, .out = shape.hidden});
    builder.elementwise(transform + "act", tokens * shape.hidden, activation);
    builder.layer_norm(transform + "LayerNorm", tokens, shape.hidden);
    builder.linear("cls.predictions", {.rows = tokens,
                                       .in = shape.hidden,
                                       .out = shape.vocabulary,
                                       .weight = word_embeddings(shape) + ".weight"});
    builder.elementwise("loss", tokens * shape.vocabulary, cross_entropy);
}

}  // namespace

Model make_bert(std::string name, const TransformerShape& shape, const ModelInput& input) {
    const std::int64_t tokens = input.batch * input.sequence_length;
    ModelBuilder builder(std::move(name));
    add_embeddings(builder, shape, input);
    for (std::int64_t i = 0; i < shape.layers; ++i) {
        const std::string layer = encoder_prefix(shape) + "encoder.layer." + std::to_string(i);
        add_bert_attention(builder, layer + ".attention", shape, input);
        add_bert_feed_forward(builder, layer, shape, tokens);
    }
    if (shape.bert_head != BertHead::masked_lm) {
        add_pooler(builder, shape, input);
    }
    if (shape.bert_head != BertHead::none) {
        add_masked_lm(builder, shape, input);
    }
    if (shape.bert_head == BertHead::pretraining) {
        constexpr std::int64_t classes = 2;  // the second sentence follows the first, or does not
        builder.linear("cls.seq_relationship",
                       {.rows = input.batch, .in = shape.hidden, .out = classes});
        builder.elementwise("next_sentence_loss", input.batch * classes, cross_entropy);
    }
    return std::move(builder).build();
}

}  // namespace bucketwise::models
