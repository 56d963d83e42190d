#include "sim/workload/models/transformer.h"

namespace bucketwise::models {
namespace {

// clang-format off
constexpr BlockNames gpt2_names{
    "ln_1", {"attn.c_attn"}, "attn", "attn.c_proj", "attn.add",
    "ln_2", "", "mlp.c_fc", "mlp.act", "", "mlp.c_proj", "mlp.add"};
constexpr BlockNames bert_names{
    "attention.output.LayerNorm",
    {"attention.self.query", "attention.self.key", "attention.self.value"},
    "attention.self", "attention.output.dense", "attention.output.add",
    "output.LayerNorm", "", "intermediate.dense", "intermediate.act", "", "output.dense",
    "output.add"};
constexpr BlockNames llama_names{
    "input_layernorm", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
    "self_attn", "self_attn.o_proj", "self_attn.add",
    "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.gate_proj.silu",
    "mlp.up_proj.multiply", "mlp.down_proj", "mlp.down_proj.add"};
constexpr BlockNames phi3_names{
    "input_layernorm", {"self_attn.qkv_proj"}, "self_attn", "self_attn.o_proj", "self_attn.add",
    "post_attention_layernorm", "mlp.gate_up_proj", "mlp.gate_up_proj", "mlp.gate_up_proj.silu",
    "mlp.gate_up_proj.multiply", "mlp.down_proj", "mlp.down_proj.add", "", "", true};
constexpr BlockNames cs336_names{
    "ln1", {"attn.q_proj", "attn.k_proj", "attn.v_proj"}, "attn", "attn.output_proj", "attn.add",
    "ln2", "ffn.w1", "ffn.w3", "ffn.w1.silu", "ffn.w3.multiply", "ffn.w2", "ffn.w2.add"};
constexpr BlockNames t5_self_attention_names{
    "layer_norm", {"SelfAttention.q", "SelfAttention.k", "SelfAttention.v"}, "SelfAttention",
    "SelfAttention.o", "add"};
constexpr BlockNames t5_cross_attention_names{
    "layer_norm", {"EncDecAttention.q", "EncDecAttention.k", "EncDecAttention.v"},
    "EncDecAttention", "EncDecAttention.o", "add"};
constexpr BlockNames t5_feed_forward_names{
    "", {}, "", "", "",
    "layer_norm", "", "DenseReluDense.wi", "DenseReluDense.act", "", "DenseReluDense.wo", "add"};
constexpr BlockNames t5_gated_names{
    "", {}, "", "", "",
    "layer_norm", "DenseReluDense.wi_0", "DenseReluDense.wi_1", "DenseReluDense.act",
    "DenseReluDense.multiply", "DenseReluDense.wo", "add"};
constexpr BlockNames neox_names{
    "input_layernorm", {"attention.query_key_value"}, "attention", "attention.dense",
    "attention.add", "post_attention_layernorm", "", "mlp.dense_h_to_4h", "mlp.act", "",
    "mlp.dense_4h_to_h", "mlp.add"};
constexpr BlockNames falcon_names{
    "input_layernorm", {"self_attention.query_key_value"}, "self_attention",
    "self_attention.dense", "self_attention.add", "", "", "mlp.dense_h_to_4h", "mlp.act", "",
    "mlp.dense_4h_to_h", "mlp.add"};
constexpr BlockNames opt_names{
    "self_attn_layer_norm", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
    "self_attn", "self_attn.out_proj", "self_attn.add", "final_layer_norm", "", "fc1", "fc1.relu",
    "", "fc2", "fc2.add"};
constexpr BlockNames torchvision_names{
    "ln_1", {"self_attention.in_proj"}, "self_attention", "self_attention.out_proj",
    "self_attention.add",
    "ln_2", "", "mlp.0", "mlp.1", "", "mlp.3", "mlp.add"};
constexpr BlockNames vit_names{
    "layernorm_before",
    {"attention.attention.query", "attention.attention.key", "attention.attention.value"},
    "attention.attention", "attention.output.dense", "attention.add",
    "layernorm_after", "", "intermediate.dense", "intermediate.act", "", "output.dense",
    "output.add"};
// clang-format on

// Norms of Llama's variants.
BlockNames llama_names_of(const TransformerShape& shape) {
    BlockNames names = shape.fused_projections ? phi3_names : llama_names;
    if (shape.norms != BlockNorms::before) {
        const bool both = shape.norms == BlockNorms::both;
        names.attention_norm = both ? "input_layernorm" : "";
        names.attention_result_norm = "post_attention_layernorm";
        names.feed_forward_norm = both ? "pre_feedforward_layernorm" : "";
        names.feed_forward_result_norm = "post_feedforward_layernorm";
    }
    return names;
}

// --- BERT ---

// BertForPreTraining's second head, and those of BertForNextSentencePrediction,
// BertForSequenceClassification, BertForMultipleChoice (with one label), BertForTokenClassification
// and BertForQuestionAnswering.
struct Classifier {
    BertHead head;
    const char* name;
    const char* loss = "loss";
    bool per_token = false;  // else of the pooled token
};
constexpr std::array classifiers{
    Classifier{BertHead::pretraining, "cls.seq_relationship", "next_sentence_loss"},
    Classifier{BertHead::next_sentence, "cls.seq_relationship"},
    Classifier{BertHead::sequence_classification, "classifier"},
    Classifier{BertHead::token_classification, "classifier", "loss", true},
    Classifier{BertHead::question_answering, "qa_outputs", "loss", true}};

// Over all tokens, masked or not, as the head computes them.
void add_masked_lm(Transformer& bert, const TransformerShape& shape, const std::string& table) {
    const std::string transform = "cls.predictions.transform.";
    bert.parameter("cls.predictions.bias", {shape.vocabulary});  // before the transform's
    bert.linear(transform + "dense", {bert.tokens(), shape.hidden, shape.hidden});
    bert.elementwise(transform + "act", bert.elements(), activation);
    bert.norm(transform + "LayerNorm", Norm::layer, bert.tokens(), shape.hidden);
    bert.linear(
        "cls.predictions",
        {.rows = bert.tokens(), .in = shape.hidden, .out = shape.vocabulary, .weight = table});
    bert.elementwise("loss", bert.tokens() * shape.vocabulary, cross_entropy);
}

void add_bert_head(Transformer& bert, const TransformerShape& shape, const ModelInput& input,
                   const std::string& prefix, const std::string& table) {
    constexpr std::int64_t follows_or_not = 2;  // classes: whether the second sentence follows
    if (has_pooler(shape.bert_head)) {          // which reads each sequence's first token
        bert.elementwise(prefix + "pooler.first_token", bert.elements(), first_token);
        bert.linear(prefix + "pooler.dense", {input.batch, shape.hidden, shape.hidden});
        bert.elementwise(prefix + "pooler.activation", input.batch * shape.hidden, activation);
    }
    if (has_language_model(shape.bert_head)) {
        add_masked_lm(bert, shape, table);
    }
    for (const Classifier& classifier : classifiers) {
        if (classifier.head == shape.bert_head) {
            const std::int64_t rows = classifier.per_token ? bert.tokens() : input.batch;
            const std::int64_t classes =
                has_labels(classifier.head) ? shape.labels : follows_or_not;
            bert.linear(classifier.name, {rows, shape.hidden, classes});
            bert.elementwise(classifier.loss, rows * classes, cross_entropy);
        }
    }
}

// --- T5 ---

constexpr const char* shared_table = "shared.weight";

void add_t5_stack(Transformer& t5, const TransformerShape& shape, bool is_decoder) {
    const std::string name = is_decoder ? "decoder" : "encoder";
    const std::int64_t layers =
        is_decoder && shape.decoder_layers > 0 ? shape.decoder_layers : shape.layers;
    Block attention{.names = t5_self_attention_names,
                    .norm = Norm::rms,
                    .dropout = true,
                    .input_bias = false,
                    .output_bias = false,
                    .causal = is_decoder,
                    .adds_distances = true};
    Block across = attention;
    across.names = t5_cross_attention_names;
    across.causal = across.sums_from_first = across.adds_distances = false;
    const Block feed_forward{.names = shape.gated ? t5_gated_names : t5_feed_forward_names,
                             .norm = Norm::rms,
                             .dropout = true,
                             .inner_dropout = true,
                             .feed_forward_bias = false,
                             .traffic = shape.gated ? gelu_in_python : activation};
    // Three share the table: the gradients of the head and of the decoder are summed first.
    t5.token_embedding(name + ".embed_tokens", shape.is_tied() || !is_decoder, shared_table);
    t5.dropout(t5.elements());
    for (std::int64_t i = 0; i < layers; ++i) {
        const std::string layer = name + ".block." + std::to_string(i) + ".layer.";
        attention.distances = i == 0;  // looked up for all layers of the stack
        t5.register_attention(layer + "0.", attention);
        t5.add_attention(layer + "0.", attention);
        if (is_decoder) {
            t5.register_attention(layer + "1.", across);
            t5.add_attention(layer + "1.", across);
        }
        t5.register_feed_forward(layer + (is_decoder ? "2." : "1."), feed_forward);
        t5.add_feed_forward(layer + (is_decoder ? "2." : "1."), feed_forward);
    }
    t5.norm(name + ".final_layer_norm", Norm::rms, t5.tokens(), shape.hidden);
    t5.dropout(t5.elements());
}

}  // namespace

// Hugging Face's GPT2LMHeadModel: pre-norm, learned positions, one projection for query, key and
// value, the head tied to the token embedding unless the shape says otherwise. nanoGPT has the same
// parameters with transposed weights and, with bias=False, without biases.
Model make_gpt2(std::string name, const TransformerShape& shape, const ModelInput& input) {
    const Norm norm = shape.norm_bias ? Norm::layer : Norm::layer_without_bias;
    Transformer gpt2(std::move(name), shape, input);
    gpt2.token_embedding("transformer.wte", shape.is_tied());
    gpt2.add_position_embedding("transformer.wpe", shape, input);
    if (shape.hugging_face) {
        gpt2.dropout(gpt2.elements());
    }
    gpt2.blocks("transformer.h.", {.names = gpt2_names,
                                   .norm = norm,
                                   .dropout = shape.hugging_face,
                                   .weight_is_in_out = true,
                                   .input_bias = shape.linear_bias,
                                   .output_bias = shape.linear_bias,
                                   .feed_forward_bias = shape.linear_bias,
                                   .causal = true,
                                   .traffic = shape.hugging_face ? gelu_in_python : activation});
    gpt2.norm("transformer.ln_f", norm, gpt2.tokens(), shape.hidden);
    return std::move(gpt2).with_head("transformer.wte.weight", cross_entropy);
}

// Hugging Face's BERT: post-norm, learned positions. BertModel (with pooler) has no loss, so that
// backward starts at the pooler's output. BertForMaskedLM has a head over all tokens, tied to the
// embedding, and no pooler; BertForPreTraining has both, and a classifier of the pooled token.
Model make_bert(std::string name, const TransformerShape& shape, const ModelInput& input) {
    // Under a head the encoder is a module of its own.
    const std::string prefix = shape.bert_head == BertHead::none ? "" : "bert.";
    const std::string embeddings = prefix + "embeddings.";
    const std::string table = embeddings + "word_embeddings.weight";
    Transformer bert(std::move(name), shape, input);
    // Positions are registered before the token types and run after them.
    bert.parameter(table, {shape.vocabulary, shape.hidden});
    bert.parameter(embeddings + "position_embeddings.weight", {shape.context, shape.hidden});
    bert.token_embedding(embeddings + "word_embeddings", has_language_model(shape.bert_head));
    bert.embedding(embeddings + "token_type_embeddings",
                   {bert.tokens(), shape.token_types, shape.hidden});
    bert.elementwise(embeddings + "token_type_embeddings.add", bert.elements(), addition);
    bert.add_position_embedding(embeddings + "position_embeddings", shape, input);
    bert.norm(embeddings + "LayerNorm", Norm::layer, bert.tokens(), shape.hidden);
    if (shape.hugging_face) {
        bert.dropout(bert.elements());
    }
    bert.blocks(prefix + "encoder.layer.",
                {.names = bert_names, .norm_last = true, .dropout = shape.hugging_face});
    add_bert_head(bert, shape, input, prefix, table);
    return std::move(bert).build();
}

// The Llama architecture: pre-norm with RMS norms, rotary positions, SwiGLU, no biases, embedding
// and head untied unless the shape says otherwise. Qwen2's three projections into attention have
// biases; Qwen3, Gemma 2 and 3, OLMo 2 and Phi-3 differ by norms and fused projections. Mixtral's
// feed-forward parts are experts behind a router; the router's parameter is the only one of theirs
// that all ranks share. CS336's model has the same block under the names and in the order of its
// reference implementation: SwiGLU is w2(silu(w1(x)) * w3(x)), and softmax, SiLU and loss are
// written out in single operations.
//
// Where queries share keys and values, these are taken to be repeated for each query before the
// products, as in eager attention. The copy itself is left out.
Model make_llama(std::string name, const TransformerShape& shape, const ModelInput& input) {
    const bool cs336 = shape.family == TransformerFamily::cs336;
    const std::string table = cs336 ? "token_embeddings" : "model.embed_tokens";
    Transformer llama(std::move(name), shape, input);
    llama.token_embedding(table, shape.is_tied());
    llama.blocks(cs336 ? "layers." : "model.layers.",
                 {.names = cs336 ? cs336_names : llama_names_of(shape),
                  .norm = Norm::rms,
                  .linears_first = true,
                  .down_before_up = cs336,
                  .input_bias = shape.attention_bias || shape.query_key_value_bias,
                  .output_bias = shape.attention_bias,
                  .feed_forward_bias = shape.feed_forward_bias,
                  .causal = true,
                  .rotary = true,
                  .written_out = cs336,
                  .output_first = shape.fused_projections,
                  .query_key_norm = shape.query_key_norm,
                  .traffic = cs336 ? silu_written_out : activation});
    llama.norm(cs336 ? "ln_final" : "model.norm", Norm::rms, llama.tokens(), shape.hidden);
    return std::move(llama).with_head(table + ".weight",
                                      cs336 ? cross_entropy_written_out : cross_entropy);
}

// Hugging Face's T5ForConditionalGeneration (Raffel et al. 2020): an encoder and a decoder,
// pre-norm with RMS norms, no biases, one table of embeddings for both and, in the first version,
// for the head. Attention adds a learned number for each distance and head.
//
// The decoder's sequence is taken to be as long as the encoder's. The sum of the looked-up numbers'
// gradients over the layers is left out: it is small beside the scores.
Model make_t5(std::string name, const TransformerShape& shape, const ModelInput& input) {
    constexpr Traffic scale{2, 2, 1, 1, 0, 0, OperationKind::pass, 0};  // kept for its input
    constexpr Traffic shift{2, 0, 6, 0, 8, 0, OperationKind::pass, 0};  // the labels, to the right
    Transformer t5(std::move(name), shape, input);
    add_t5_stack(t5, shape, false);
    t5.elementwise("decoder.shift", t5.tokens(), shift);
    add_t5_stack(t5, shape, true);
    if (shape.is_tied()) {
        t5.elementwise("scale", t5.elements(), scale);
    }
    return std::move(t5).with_head(shared_table, cross_entropy);
}

// Hugging Face's GPTNeoXForCausalLM (Pythia): attention and feed-forward part read the same sum,
// each behind a norm of its own, which are registered first; rotary positions.
Model make_neox(std::string name, const TransformerShape& shape, const ModelInput& input) {
    Transformer neox(std::move(name), shape, input);
    neox.token_embedding("gpt_neox.embed_in", shape.is_tied());
    for (std::int64_t i = 0; i < shape.layers; ++i) {
        const std::string layer = "gpt_neox.layers." + std::to_string(i) + ".";
        for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
            neox.parameter(layer + norm + ".weight", {shape.hidden});
            neox.parameter(layer + norm + ".bias", {shape.hidden});
        }
        neox.add_block(layer, {.names = neox_names, .causal = true, .rotary = true});
    }
    neox.norm("gpt_neox.final_layer_norm", Norm::layer, neox.tokens(), shape.hidden);
    return std::move(neox).with_head("gpt_neox.embed_in.weight", cross_entropy);
}

// Hugging Face's FalconForCausalLM as Falcon 7B has it: attention and feed-forward part read one
// norm; one head of keys and values for all queries unless the shape says otherwise; no biases.
Model make_falcon(std::string name, const TransformerShape& shape, const ModelInput& input) {
    Transformer falcon(std::move(name), shape, input);
    falcon.token_embedding("transformer.word_embeddings", shape.is_tied());
    falcon.blocks("transformer.h.", {.names = falcon_names,
                                     .linears_first = true,
                                     .input_bias = false,
                                     .output_bias = false,
                                     .feed_forward_bias = false,
                                     .causal = true,
                                     .rotary = true});
    falcon.norm("transformer.ln_f", Norm::layer, falcon.tokens(), shape.hidden);
    return std::move(falcon).with_head("transformer.word_embeddings.weight", cross_entropy);
}

// Hugging Face's OPTForCausalLM: pre-norm, learned positions (two more than the longest sequence),
// the last norm registered before the layers, and key and value before query.
Model make_opt(std::string name, const TransformerShape& shape, const ModelInput& input) {
    constexpr std::int64_t before_positions = 2;
    TransformerShape positions = shape;
    positions.context += before_positions;
    const auto registers = [&](Transformer& opt, const std::string& module) {
        opt.parameter(module + ".weight", {shape.hidden});
        opt.parameter(module + ".bias", {shape.hidden});
    };
    Transformer opt(std::move(name), shape, input);
    opt.token_embedding("model.decoder.embed_tokens", shape.is_tied());
    opt.add_position_embedding("model.decoder.embed_positions", positions, input);
    registers(opt, "model.decoder.final_layer_norm");
    for (std::int64_t i = 0; i < shape.layers; ++i) {
        const std::string layer = "model.decoder.layers." + std::to_string(i) + ".";
        for (const char* projection : {"k_proj", "v_proj", "q_proj", "out_proj"}) {
            const std::string module = layer + "self_attn." + projection;
            opt.parameter(module + ".weight", {shape.hidden, shape.hidden});
            opt.parameter(module + ".bias", {shape.hidden});
        }
        registers(opt, layer + "self_attn_layer_norm");
        opt.parameter(layer + "fc1.weight", {shape.feed_forward, shape.hidden});
        opt.parameter(layer + "fc1.bias", {shape.feed_forward});
        opt.parameter(layer + "fc2.weight", {shape.hidden, shape.feed_forward});
        opt.parameter(layer + "fc2.bias", {shape.hidden});
        registers(opt, layer + "final_layer_norm");
        opt.add_block(layer, {.names = opt_names, .dropout = true, .causal = true});
    }
    opt.norm("model.decoder.final_layer_norm", Norm::layer, opt.tokens(), shape.hidden);
    return std::move(opt).with_head("model.decoder.embed_tokens.weight", cross_entropy);
}

// torchvision.models.vision_transformer, and Hugging Face's ViTForImageClassification: a
// convolution makes a token of each patch, a learned class token goes before them, and the head
// reads the result of the class token. The two differ in names, in the registration order of
// parameters, and in attention: Hugging Face's has three projections, torchvision's one.
Model make_vit(std::string name, const VitShape& shape, const ModelInput& input) {
    const bool hf = shape.hugging_face;
    const std::string class_token = hf ? "vit.embeddings.cls_token" : "class_token";
    const std::string positions =
        hf ? "vit.embeddings.position_embeddings" : "encoder.pos_embedding";
    const std::int64_t side = input.image_size / shape.patch;
    const TransformerShape layers{.layers = shape.layers,
                                  .hidden = shape.hidden,
                                  .feed_forward = shape.feed_forward,
                                  .heads = shape.heads};
    const ModelInput sequences{.batch = input.batch, .sequence_length = side * side + 1};
    Transformer vit(std::move(name), layers, sequences);
    vit.parameter(class_token, {1, 1, shape.hidden});  // registered first, not run first
    if (hf) {
        vit.parameter(positions, {1, sequences.sequence_length, shape.hidden});
    }
    vit.convolution(hf ? "vit.embeddings.patch_embeddings.projection" : "conv_proj",
                    {input.batch, shape.channels, input.image_size},
                    {.out_channels = shape.hidden,
                     .window = {shape.patch, shape.patch, 0},
                     .bias = true,
                     .input_gradient = false});
    vit.add_learned(class_token, {1, 1, shape.hidden}, input.batch, vit.elements());
    vit.add_learned(positions, {1, sequences.sequence_length, shape.hidden}, input.batch,
                    vit.elements());
    vit.blocks(hf ? "vit.encoder.layer." : "encoder.layers.encoder_layer_",
               hf ? Block{.names = vit_names,
                          .linears_first = true,
                          .input_bias = shape.query_key_value_bias,
                          .sums_from_first = false}
                  : Block{.names = torchvision_names, .input_separator = "_"});
    vit.norm(hf ? "vit.layernorm" : "encoder.ln", Norm::layer, vit.tokens(), shape.hidden);
    vit.elementwise("first_token", vit.elements(), first_token);
    vit.linear(hf ? "classifier" : "heads.head", {input.batch, shape.hidden, shape.classes});
    vit.elementwise("loss", input.batch * shape.classes, cross_entropy);
    return std::move(vit).build();
}

}  // namespace bucketwise::models
