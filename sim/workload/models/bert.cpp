// Hugging Face's BERT: post-norm, learned positions. BertModel (with pooler) has no loss of its
// own; backward starts at the pooler's output. BertForMaskedLM has no pooler but a head over all
// tokens, tied to the embedding; BertForPreTraining has both, and a classifier of the pooled token.
// BertForSequenceClassification, BertForMultipleChoice (with one label) and
// BertForNextSentencePrediction classify the pooled token, BertForTokenClassification and
// BertForQuestionAnswering every token.
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
                                               .tied = has_language_model(shape.bert_head)});
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

// Rows of what is classified: tokens, or sequences.
void add_classifier(ModelBuilder& builder, const std::string& name, const std::string& loss,
                    std::int64_t rows, std::int64_t hidden, std::int64_t classes) {
    builder.linear(name, {.rows = rows, .in = hidden, .out = classes});
    builder.elementwise(loss, rows * classes, cross_entropy);
}

void add_head(ModelBuilder& builder, const TransformerShape& shape, const ModelInput& input) {
    constexpr std::int64_t follows_or_not = 2;  // the second sentence the first
    const std::int64_t tokens = input.batch * input.sequence_length;
    const std::int64_t hidden = shape.hidden;
    if (has_language_model(shape.bert_head)) {
        add_masked_lm(builder, shape, input);
    }
    switch (shape.bert_head) {
        case BertHead::none:
        case BertHead::masked_lm:
            break;
        case BertHead::pretraining:
            add_classifier(builder, "cls.seq_relationship", "next_sentence_loss", input.batch,
                           hidden, follows_or_not);
            break;
        case BertHead::next_sentence:
            add_classifier(builder, "cls.seq_relationship", "loss", input.batch, hidden,
                           follows_or_not);
            break;
        case BertHead::sequence_classification:
            add_classifier(builder, "classifier", "loss", input.batch, hidden, shape.labels);
            break;
        case BertHead::token_classification:
            add_classifier(builder, "classifier", "loss", tokens, hidden, shape.labels);
            break;
        case BertHead::question_answering:
            add_classifier(builder, "qa_outputs", "loss", tokens, hidden, shape.labels);
            break;
    }
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
    if (has_pooler(shape.bert_head)) {
        add_pooler(builder, shape, input);
    }
    add_head(builder, shape, input);
    return std::move(builder).build();
}

}  // namespace bucketwise::models
