// The shapes of models, and one rank's input.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/names.h"

namespace bucketwise {

enum class TransformerFamily : std::uint8_t { gpt2, bert, llama, cs336, t5, neox, falcon, opt };

template <>
inline constexpr auto names_of<TransformerFamily> = names("gpt2", "bert", "llama", "cs336", "t5",
                                                          "neox", "falcon", "opt");

// Where a block of llama has its norms: before attention and feed-forward part, after both (OLMo 2)
// or before and after (Gemma 2 and 3).
enum class BlockNorms : std::uint8_t { before, after, both };

template <>
inline constexpr auto names_of<BlockNorms> = names("before", "after", "both");

// llama: RMS norms of queries and keys, of each head (Qwen3, Gemma 3) or over all heads (OLMo 2).
enum class QueryKeyNorm : std::uint8_t { none, head, projection };

template <>
inline constexpr auto names_of<QueryKeyNorm> = names("none", "head", "projection");

// The part after BERT's encoder.
enum class BertHead : std::uint8_t {
    none,                     // the pooler, whose output is the model's
    masked_lm,                // the head of masked language modelling, without a pooler
    pretraining,              // pooler, that head, and that of next-sentence prediction
    sequence_classification,  // pooler and a classifier of each sequence
    token_classification,     // a classifier of each token, without a pooler
    question_answering,       // like token_classification: where an answer begins and ends
    next_sentence             // pooler and the head of next-sentence prediction
};

template <>
inline constexpr auto names_of<BertHead> = names("none", "masked_lm", "pretraining",
                                                 "sequence_classification", "token_classification",
                                                 "question_answering", "next_sentence");

constexpr bool has_pooler(BertHead head) {
    return head == BertHead::none || head == BertHead::pretraining ||
           head == BertHead::sequence_classification || head == BertHead::next_sentence;
}

// Over the vocabulary, tied to the embedding.
constexpr bool has_language_model(BertHead head) {
    return head == BertHead::masked_lm || head == BertHead::pretraining;
}

// Classifiers whose number of classes the shape gives.
constexpr bool has_labels(BertHead head) {
    return head == BertHead::sequence_classification || head == BertHead::token_classification ||
           head == BertHead::question_answering;
}

struct TransformerShape {
    TransformerFamily family = TransformerFamily::gpt2;
    std::int64_t layers = 0;
    std::int64_t hidden = 0;        // d_model
    std::int64_t feed_forward = 0;  // d_ff
    std::int64_t heads = 0;         // divides hidden, unless head_width is given
    std::int64_t vocabulary = 0;
    std::int64_t context =
        0;  // learned positions (gpt2, bert); the longest sequence (llama, cs336)

    // llama: heads of keys and values, each shared by equally many queries; 0: as many as heads.
    std::int64_t key_value_heads = 0;
    std::int64_t head_width = 0;        // llama, t5: of one head; 0: hidden / heads
    bool attention_bias = false;        // llama: of the four projections
    bool feed_forward_bias = false;     // llama: of gate, up and down
    bool query_key_value_bias = false;  // llama: of three projections, not of the output's (Qwen2)
    BlockNorms norms = BlockNorms::before;             // llama
    QueryKeyNorm query_key_norm = QueryKeyNorm::none;  // llama
    bool fused_projections = false;  // llama: one for query, key and value, one for gate and up
    // llama: a mixture of experts in place of each feed-forward part; every token goes through some
    // of them (Mixtral). Their weights are not among the parameters: expert parallelism reduces
    // them among fewer ranks. 0: none.
    std::int64_t experts = 0;
    std::int64_t experts_per_token = 0;
    // t5: layers of the decoder (0: as many as the encoder has); distances that attention
    // distinguishes; whether the feed-forward part is gated, as in version 1.1.
    std::int64_t decoder_layers = 0;
    std::int64_t relative_buckets = 32;
    bool gated = false;
    // gpt2, llama, t5: the head shares the embedding's table; none: no for llama, yes for the
    // others.
    std::optional<bool> tied_embeddings = {};
    std::int64_t token_types = 2;         // bert: segments that have an embedding
    BertHead bert_head = BertHead::none;  // bert
    std::int64_t labels = 2;              // bert: classes, of the heads that classify
    bool linear_bias = true;              // gpt2: of attention's and feed-forward projections
    bool norm_bias = true;                // gpt2: of layer norms
    // Trained as Hugging Face publishes it: with dropout, and GPT-2's GELU and loss in Python.
    bool hugging_face = false;
    bool operator==(const TransformerShape&) const = default;

    [[nodiscard]] std::int64_t width_of_head() const {
        return head_width > 0 ? head_width : hidden / heads;
    }
    [[nodiscard]] std::int64_t query_width() const { return heads * width_of_head(); }
    [[nodiscard]] std::int64_t key_value_width() const {
        return (key_value_heads > 0 ? key_value_heads : heads) * width_of_head();
    }
    [[nodiscard]] bool is_tied() const {
        using enum TransformerFamily;
        return tied_embeddings.value_or(family == gpt2 || family == t5 || family == falcon ||
                                        family == opt);
    }
};

// A vision transformer that classifies: every patch of an image is a token.
struct VitShape {
    std::int64_t layers = 0;
    std::int64_t hidden = 0;
    std::int64_t feed_forward = 0;
    std::int64_t heads = 0;     // divides hidden
    std::int64_t patch = 16;    // height and width in pixels
    std::int64_t channels = 3;  // of the images
    std::int64_t classes = 1000;
    // Hugging Face's: three projections into attention, and whether those have biases. Else
    // torchvision's, with one that has.
    bool hugging_face = false;
    bool query_key_value_bias = true;
    bool operator==(const VitShape&) const = default;
};

// A multilayer perceptron that classifies: linear layers with biases, ReLU between them, and
// softmax cross-entropy.
struct MlpShape {
    std::vector<std::int64_t> layers;  // widths: of a sample, of each hidden layer, classes
    bool operator==(const MlpShape&) const = default;
};

// The input of one rank's forward pass.
struct ModelInput {
    std::int64_t batch = 0;            // samples per rank: images or sequences
    std::int64_t sequence_length = 0;  // tokens per sequence; transformers only
    std::int64_t image_size = 224;     // height and width in pixels; vision models only
    bool operator==(const ModelInput&) const = default;
};

}  // namespace bucketwise
