// One block with choices writes all transformers.
// Names and order are those of the published modules.
#pragma once

#include <array>
#include <string>
#include <utility>

#include "sim/workload/models/builder.h"

namespace bucketwise::models {

// A block's modules and operations, after its prefix. Empty: there is none.
struct BlockNames {
    const char* attention_norm = "";
    std::array<const char*, 3> inputs{};  // query, key and value; or one that is fused
    const char* attention = "";           // the operations between the projections
    const char* output = "";
    const char* attention_sum = "";  // with the shortcut
    const char* feed_forward_norm = "";
    const char* gate = "";
    const char* up = "";
    const char* activation = "";
    const char* multiply = "";  // gate by up
    const char* down = "";
    const char* feed_forward_sum = "";
    // Before the sums, where there are any.
    const char* attention_result_norm = "";
    const char* feed_forward_result_norm = "";
    // Gate and up in one, where `fused`: up is then what is left of it.
    bool fused_gate = false;
};
inline constexpr const char* router = "block_sparse_moe.gate";

struct Block {
    BlockNames names;
    Norm norm = Norm::layer;
    bool norm_last = false;  // after the sum (BERT), not before the projections
    bool dropout = false;    // of attention's scores, and of both outputs before their sums
    bool inner_dropout = false;
    // The linear layers are registered before the norms, though a norm runs first.
    bool linears_first = false;
    bool down_before_up = false;  // registered (CS336)
    bool weight_is_in_out = false;
    const char* input_separator = ".";  // Linear::separator
    bool input_bias = true;             // of the projections into attention
    bool output_bias = true;
    bool feed_forward_bias = true;
    // Autograd sums the gradients of a tensor that several projections read. The sum is charged to
    // each projection but the last, or but the first: in cross-attention the query reads another
    // tensor.
    bool sums_from_first = true;
    bool causal = false;
    bool rotary = false;
    bool written_out = false;   // Attention::written_out
    bool output_first = false;  // the projection out of attention is registered first (Phi-3)
    QueryKeyNorm query_key_norm = QueryKeyNorm::none;
    bool distances = false;       // T5: looks up a number for each distance and head
    bool adds_distances = false;  // to its scores
    Traffic traffic = activation;
};

class Transformer : public ModelBuilder {
  public:
    Transformer(std::string name, const TransformerShape& shape, const ModelInput& input)
        : ModelBuilder(std::move(name)),
          shape_(shape),
          input_(input),
          tokens_(input.batch * input.sequence_length),
          elements_(tokens_ * shape.hidden) {}

    [[nodiscard]] std::int64_t tokens() const { return tokens_; }
    [[nodiscard]] std::int64_t elements() const { return elements_; }

    void token_embedding(const std::string& name, bool tied, const std::string& weight = {}) {
        embedding(name, {.rows = tokens_,
                         .entries = shape_.vocabulary,
                         .width = shape_.hidden,
                         .tied = tied,
                         .weight = weight});
    }

    void blocks(const std::string& prefix, const Block& block) {
        for (std::int64_t i = 0; i < shape_.layers; ++i) {
            add_block(prefix + std::to_string(i) + ".", block);
        }
    }

    void add_block(const std::string& layer, const Block& block) {
        if (block.linears_first) {
            register_attention(layer, block);
            register_feed_forward(layer, block);
        }
        add_attention(layer, block);
        if (shape_.experts > 0) {
            add_experts(layer, block);
        } else {
            add_feed_forward(layer, block);
        }
    }

    void register_attention(const std::string& layer, const Block& block) {
        if (block.output_first) {
            register_linear(layer + block.names.output, output_layer(block));
        }
        for (std::size_t i = 0; i < inputs_of(block); ++i) {
            register_linear(layer + block.names.inputs[i], input_layer(block, i));
        }
        register_linear(layer + block.names.output, output_layer(block));
        for (std::size_t i = 0; i < 2 && block.query_key_norm != QueryKeyNorm::none; ++i) {
            parameter(layer + query_key_norms.at(i) + ".weight", {query_key_shape(block, i).width});
        }
        if (block.distances) {
            parameter(layer + block.names.attention + ".relative_attention_bias.weight",
                      {shape_.relative_buckets, shape_.heads});
        }
    }

    void register_feed_forward(const std::string& layer, const Block& block) {
        const BlockNames& names = block.names;
        if (shape_.experts > 0) {
            register_linear(layer + router, routing());
            return;
        }
        if (is_gated(block)) {
            register_linear(layer + names.gate, gate_layer(block));
        }
        if (block.down_before_up) {
            register_linear(layer + names.down, contraction(block));
        }
        if (!names.fused_gate) {
            register_linear(layer + names.up, expansion(block));
        }
        register_linear(layer + names.down, contraction(block));
    }

    void add_attention(const std::string& layer, const Block& block) {
        const BlockNames& names = block.names;
        if (!block.norm_last && *names.attention_norm != '\0') {
            norm(layer + names.attention_norm, block.norm, tokens_, shape_.hidden);
        }
        const std::size_t inputs = inputs_of(block);
        for (std::size_t i = 0; i < inputs; ++i) {
            linear(layer + names.inputs[i], input_layer(block, i));
            if (inputs == 1) {
                put_gradients_together();
            }
            if (block.sums_from_first ? i + 1 < inputs : i > 0) {
                add_fork(elements_);
            }
            if (block.query_key_norm != QueryKeyNorm::none && i < 2) {
                const NormShape normed = query_key_shape(block, i);
                norm(layer + query_key_norms.at(i), Norm::rms, normed.rows, normed.width);
            }
        }
        const std::string name = layer + names.attention;
        if (block.rotary) {
            elementwise(name + ".rotate_query", tokens_ * shape_.query_width(), rotation);
            elementwise(name + ".rotate_key", tokens_ * shape_.key_value_width(), rotation);
        }
        const std::int64_t pairs = input_.sequence_length * input_.sequence_length;
        if (block.distances) {
            elementwise(name + ".distances", pairs, distance_buckets);
            embedding(name + ".relative_attention_bias",
                      {.rows = pairs, .entries = shape_.relative_buckets, .width = shape_.heads});
        }
        if (block.adds_distances) {
            elementwise(name + ".distance_bias", pairs * shape_.heads,
                        block.causal ? masked_distance_bias : distance_bias);
        }
        attention(name, {.batch = input_.batch,
                         .sequence_length = input_.sequence_length,
                         .heads = shape_.heads,
                         .hidden = shape_.query_width(),
                         .causal = block.causal,
                         .dropout = block.dropout,
                         .written_out = block.written_out});
        linear(layer + names.output, output_layer(block));
        normalise_result(layer, names.attention_result_norm, block);
        join_shortcut(layer + names.attention_sum, layer + names.attention_norm, block);
    }

    // down(activation(up(x))), or down(activation(gate(x)) * up(x)).
    void add_feed_forward(const std::string& layer, const Block& block) {
        const BlockNames& names = block.names;
        const std::int64_t inner = tokens_ * shape_.feed_forward;
        if (!block.norm_last && *names.feed_forward_norm != '\0') {
            norm(layer + names.feed_forward_norm, block.norm, tokens_, shape_.hidden);
        }
        linear(layer + (is_gated(block) ? names.gate : names.up), gate_layer(block));
        if (is_gated(block) && !names.fused_gate) {
            add_fork(elements_);
        }
        elementwise(layer + names.activation, inner, block.traffic);
        if (is_gated(block)) {
            make_gate();
            if (!names.fused_gate) {
                linear(layer + names.up, expansion(block));
            }
            elementwise(layer + names.multiply, inner, multiplication);
        }
        if (block.inner_dropout) {
            dropout(inner);
        }
        linear(layer + names.down, contraction(block));
        normalise_result(layer, names.feed_forward_result_norm, block);
        join_shortcut(layer + names.feed_forward_sum, layer + names.feed_forward_norm, block);
    }

    // A linear layer over the vocabulary and the loss.
    Model with_head(const std::string& table, const Traffic& loss) && {
        linear("lm_head", {.rows = tokens_,
                           .in = shape_.hidden,
                           .out = shape_.vocabulary,
                           .bias = false,
                           .weight = shape_.is_tied() ? table : ""});
        elementwise("loss", tokens_ * shape_.vocabulary, loss);
        return std::move(*this).build();
    }

  private:
    static constexpr std::array query_key_norms{"self_attn.q_norm", "self_attn.k_norm"};
    struct NormShape {
        std::int64_t rows = 0;
        std::int64_t width = 0;
    };
    // The norm of queries (0) or keys.
    [[nodiscard]] NormShape query_key_shape(const Block& block, std::size_t index) const {
        const std::int64_t width = index == 0 ? shape_.query_width() : shape_.key_value_width();
        const std::int64_t head = shape_.width_of_head();
        return block.query_key_norm == QueryKeyNorm::head ? NormShape{tokens_ * width / head, head}
                                                          : NormShape{tokens_, width};
    }
    void normalise_result(const std::string& layer, const char* name, const Block& block) {
        if (*name != '\0') {
            norm(layer + name, block.norm, tokens_, shape_.hidden);
        }
    }
    [[nodiscard]] Linear gate_layer(const Block& block) const {
        Linear gate = expansion(block);
        gate.out *= block.names.fused_gate ? 2 : 1;
        return gate;
    }
    static bool is_gated(const Block& block) { return *block.names.gate != '\0'; }
    static std::size_t inputs_of(const Block& block) {
        return block.names.inputs.back() == nullptr ? 1 : block.names.inputs.size();
    }
    [[nodiscard]] Linear input_layer(const Block& block, std::size_t index) const {
        return {.rows = tokens_,
                .in = shape_.hidden,
                .out = inputs_of(block) == 1 ? shape_.query_width() + 2 * shape_.key_value_width()
                       : index == 0          ? shape_.query_width()
                                             : shape_.key_value_width(),
                .bias = block.input_bias,
                .weight_is_in_out = block.weight_is_in_out,
                .separator = block.input_separator};
    }
    [[nodiscard]] Linear output_layer(const Block& block) const {
        return {tokens_, shape_.query_width(), shape_.hidden, block.output_bias,
                block.weight_is_in_out};
    }
    [[nodiscard]] Linear expansion(const Block& block) const {
        return {tokens_, shape_.hidden, shape_.feed_forward, block.feed_forward_bias,
                block.weight_is_in_out};
    }
    [[nodiscard]] Linear contraction(const Block& block) const {
        return {tokens_, shape_.feed_forward, shape_.hidden, block.feed_forward_bias,
                block.weight_is_in_out};
    }
    [[nodiscard]] Linear routing() const { return {tokens_, shape_.hidden, shape_.experts, false}; }

    void join_shortcut(const std::string& sum, const std::string& following, const Block& block) {
        if (block.dropout) {
            dropout(elements_);
        }
        residual_add(sum, elements_, elements_);
        if (block.norm_last) {
            norm(following, block.norm, tokens_, shape_.hidden);
        }
    }

    // Each token goes through some of the experts. All experts are taken to get equally many
    // tokens: a rank then computes the same whether it holds all experts, or some and the tokens of
    // several ranks.
    void add_experts(const std::string& layer, const Block& block) {
        const std::int64_t rows = tokens_ * shape_.experts_per_token;
        const std::int64_t each = (rows + shape_.experts - 1) / shape_.experts;
        const std::string experts = layer + "block_sparse_moe.experts";
        const MatrixProduct expansion{each, shape_.feed_forward, shape_.hidden, shape_.experts};
        norm(layer + block.names.feed_forward_norm, block.norm, tokens_, shape_.hidden);
        linear(layer + router, routing());
        add_fork(elements_);
        elementwise(layer + router + ".softmax", tokens_ * shape_.experts, activation);
        elementwise(experts + ".gather", rows * shape_.hidden, gather);
        foreign_linear(experts + ".w1", expansion);
        add_fork(rows * shape_.hidden);
        elementwise(experts + ".act", rows * shape_.feed_forward, activation);
        make_gate();
        foreign_linear(experts + ".w3", expansion);
        elementwise(experts + ".multiply", rows * shape_.feed_forward, multiplication);
        foreign_linear(experts + ".w2", {each, shape_.hidden, shape_.feed_forward, shape_.experts});
        elementwise(experts + ".scatter", rows * shape_.hidden, multiplication);
        residual_add(experts + ".add", elements_, elements_);
    }

    const TransformerShape& shape_;
    const ModelInput& input_;
    std::int64_t tokens_;
    std::int64_t elements_;
};

}  // namespace bucketwise::models
