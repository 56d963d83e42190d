// The shapes of models, and what one rank feeds them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/names.h"

namespace bucketwise {

enum class TransformerFamily : std::uint8_t { gpt2, bert, llama, cs336 };

template <>
inline constexpr auto names_of<TransformerFamily> = names("gpt2", "bert", "llama", "cs336");

// What follows BERT's encoder: its pooler, whose output is the model's; the head of masked language
// modelling, without a pooler; or pooler, that head and that of next-sentence prediction.
enum class BertHead : std::uint8_t { none, masked_lm, pretraining };

template <>
inline constexpr auto names_of<BertHead> = names("none", "masked_lm", "pretraining");

struct TransformerShape {
    TransformerFamily family = TransformerFamily::gpt2;
    std::int64_t layers = 0;
    std::int64_t hidden = 0;        // d_model
    std::int64_t feed_forward = 0;  // d_ff
    std::int64_t heads = 0;         // divides hidden, unless head_width is given
    std::int64_t vocabulary = 0;
    std::int64_t context =
        0;  // learned positions (gpt2, bert); the longest sequence (llama, cs336)

    // llama: heads of keys and values, each shared by as many of queries; 0: as many as heads.
    std::int64_t key_value_heads = 0;
    std::int64_t head_width = 0;     // llama: of one head; 0: hidden / heads
    bool attention_bias = false;     // llama: of the four projections
    bool feed_forward_bias = false;  // llama: of gate, up and down
    // gpt2, llama: the head shares the embedding's table; none: as the family does, gpt2 yes, llama
    // no.
    std::optional<bool> tied_embeddings = {};
    std::int64_t token_types = 2;         // bert: segments that have an embedding
    BertHead bert_head = BertHead::none;  // bert
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
        return tied_embeddings.value_or(family == TransformerFamily::gpt2);
    }
};

// A multilayer perceptron that classifies: linear layers with biases, ReLU between them, and
// softmax cross-entropy.
struct MlpShape {
    std::vector<std::int64_t> layers;  // widths: of a sample, of each hidden layer, classes
    bool operator==(const MlpShape&) const = default;
};

// What one rank feeds the model in one forward pass.
struct ModelInput {
    std::int64_t batch = 0;            // samples per rank: images or sequences
    std::int64_t sequence_length = 0;  // tokens per sequence; transformers only
    std::int64_t image_size = 224;     // height and width in pixels; vision models only
    bool operator==(const ModelInput&) const = default;
};

}  // namespace bucketwise
