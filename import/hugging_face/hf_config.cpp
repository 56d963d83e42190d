#include "import/hugging_face/hf_config.h"

#include <array>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/base/json_input.h"

namespace bucketwise {
namespace {

[[noreturn]] void unknown(const JsonPlace& place, const std::string& expected) {
    const std::string value = place.value->dump(-1, ' ', false, Json::error_handler_t::replace);
    throw UnknownFamily(place.file, place.pointer, expected, value);
}

class Config {
  public:
    Config(const Json& document, std::string file) : root_{&document, std::move(file), ""} {
        if (!document.is_object()) {
            root_.fail("a model configuration, as config.json holds it");
        }
    }

    // Nothing where the key is missing or null, which Hugging Face takes for missing.
    [[nodiscard]] std::optional<JsonPlace> find(const char* key) const {
        const auto found = root_.value->find(key);
        return found == root_.value->end() || found->is_null()
                   ? std::nullopt
                   : std::optional(JsonPlace{&*found, root_.file, std::string("/") + key});
    }

    [[nodiscard]] JsonPlace at(const char* key) const {
        const auto place = find(key);
        if (!place) {
            throw InputError(root_.file, "", fmt::format("the key {}", key), "none");
        }
        return *place;
    }

    // Without `otherwise` the key is required.
    [[nodiscard]] std::int64_t count(const char* key,
                                     std::optional<std::int64_t> otherwise = {}) const {
        constexpr std::int64_t most = std::int64_t{1} << 30;  // the scenario's reader is stricter
        return otherwise && !find(key) ? *otherwise : read_integer(at(key), 1, most);
    }

    [[nodiscard]] bool flag(const char* key, bool otherwise) const {
        const auto place = find(key);
        return place ? read_boolean(*place) : otherwise;
    }

    void refuse_cross_attention() const {
        if (flag("add_cross_attention", false)) {
            unknown(at("add_cross_attention"), "false: its parameters are not known here");
        }
    }

  private:
    JsonPlace root_;
};

// --- which model of the family ---

struct Architecture {
    std::string_view name;
    BertHead head = BertHead::none;
};

// Takes the first of `known` unless the configuration names another of them. Returns its head.
BertHead read_architecture(const Config& config, const std::vector<Architecture>& known,
                           HfModel& model) {
    const auto place = config.find("architectures");
    const bool none = !place || (place->value->is_array() && place->value->empty());
    if (none) {
        model.assumed.push_back(
            fmt::format("no architectures are named: taken as {}", known.front().name));
    }
    std::string listed;
    for (const Architecture& architecture : known) {
        if (none || *place->value == Json::array({architecture.name})) {
            model.architecture = architecture.name;
            return architecture.head;
        }
        listed += fmt::format("{}{}", listed.empty() ? "" : " or ", architecture.name);
    }
    unknown(*place, fmt::format("[{}], whose parameters are known", listed));
}

// --- the families ---

// A key that holds a size, and the member of the shape that it sets. Without `otherwise` it is
// required.
template <typename Shape>
struct SizeKey {
    const char* key;
    std::int64_t Shape::*member;
    std::optional<std::int64_t> otherwise = {};
};

template <typename Shape>
void read_sizes(const Config& config, const std::vector<SizeKey<Shape>>& keys, Shape& shape) {
    for (const auto& [key, member, otherwise] : keys) {
        shape.*member = config.count(key, otherwise);
    }
}

// The sizes that all families but GPT-2 and T5 call alike.
template <typename Shape>
void read_usual_sizes(const Config& config, Shape& shape) {
    read_sizes(config,
               {{"num_hidden_layers", &Shape::layers},
                {"hidden_size", &Shape::hidden},
                {"intermediate_size", &Shape::feed_forward},
                {"num_attention_heads", &Shape::heads}},
               shape);
}

using Transformer = TransformerShape;

// The shape of an architecture that is `tied` unless tie_word_embeddings says otherwise.
Transformer& begin_transformer(const Config& config, TransformerFamily family, bool tied,
                               HfModel& model) {
    auto& shape = std::get<Transformer>(model.shape);
    shape.family = family;
    shape.vocabulary = config.count("vocab_size");
    const bool is_tied = config.flag("tie_word_embeddings", tied);
    const bool usual = family == TransformerFamily::bert || shape.is_tied();
    if (is_tied != usual) {
        shape.tied_embeddings = is_tied;
    }
    return shape;
}

// 0 where the value is `usual`.
std::int64_t unless_usual(std::int64_t value, std::int64_t usual) {
    return value != usual ? value : 0;
}

void read_head_width(const Config& config, const char* key, Transformer& shape,
                     std::int64_t otherwise = 0) {
    const std::int64_t width = config.count(key, otherwise);
    shape.head_width = width * shape.heads != shape.hidden ? width : 0;
}

HfModel read_gpt2(const Config& config) {
    HfModel model;
    read_architecture(config, {{"GPT2LMHeadModel"}}, model);
    config.refuse_cross_attention();
    Transformer& shape = begin_transformer(config, TransformerFamily::gpt2, true, model);
    shape.hugging_face = true;
    read_sizes(config,
               {{"n_layer", &Transformer::layers},
                {"n_embd", &Transformer::hidden},
                {"n_head", &Transformer::heads},
                {"n_positions", &Transformer::context}},
               shape);
    shape.feed_forward = config.count("n_inner", 4 * shape.hidden);
    return model;
}

// Llama's variants, each with what its code sets without a key.
struct LlamaVariant {
    std::string_view type;
    std::string_view architecture;
    std::string_view alias = {};  // another name of the same architecture
    bool tied = false;
    std::int64_t head_width = 0;  // where head_dim is missing; 0: hidden / heads
    BlockNorms norms = BlockNorms::before;
    QueryKeyNorm query_key_norm = QueryKeyNorm::none;
    bool fused = false;
};
constexpr std::array llama_variants{
    LlamaVariant{"llama", "LlamaForCausalLM", "LLaMAForCausalLM"},
    LlamaVariant{"mistral", "MistralForCausalLM"},
    LlamaVariant{"qwen2", "Qwen2ForCausalLM"},
    LlamaVariant{"mixtral", "MixtralForCausalLM"},
    LlamaVariant{.type = "qwen3",
                 .architecture = "Qwen3ForCausalLM",
                 .head_width = 128,
                 .query_key_norm = QueryKeyNorm::head},
    LlamaVariant{
        .type = "gemma", .architecture = "GemmaForCausalLM", .tied = true, .head_width = 256},
    LlamaVariant{.type = "gemma2",
                 .architecture = "Gemma2ForCausalLM",
                 .tied = true,
                 .head_width = 256,
                 .norms = BlockNorms::both},
    LlamaVariant{.type = "gemma3_text",
                 .architecture = "Gemma3ForCausalLM",
                 .tied = true,
                 .head_width = 256,
                 .norms = BlockNorms::both,
                 .query_key_norm = QueryKeyNorm::head},
    LlamaVariant{.type = "olmo2",
                 .architecture = "Olmo2ForCausalLM",
                 .norms = BlockNorms::after,
                 .query_key_norm = QueryKeyNorm::projection},
    LlamaVariant{.type = "phi3", .architecture = "Phi3ForCausalLM", .fused = true},
    LlamaVariant{.type = "smollm3", .architecture = "SmolLM3ForCausalLM", .tied = true}};

// Qwen2's projections into attention have biases without a key that says so, Mixtral has experts.
HfModel read_llama(const Config& config, const LlamaVariant& variant, HfExperts experts) {
    const std::string_view type = variant.type;
    const bool mixtral = type == "mixtral";
    if (mixtral && experts == HfExperts::refused) {
        unknown(config.at("model_type"),
                "a model whose gradients all ranks reduce, or --dense-only, which takes all but "
                "the experts' gradients: expert parallelism reduces those among fewer ranks");
    }
    HfModel model;
    std::vector<Architecture> known{{variant.architecture}};
    if (!variant.alias.empty()) {
        known.push_back({variant.alias});
    }
    read_architecture(config, known, model);
    model.architecture = variant.architecture;
    Transformer& shape = begin_transformer(config, TransformerFamily::llama, variant.tied, model);
    shape.norms = variant.norms;
    shape.query_key_norm = variant.query_key_norm;
    shape.fused_projections = variant.fused;
    read_usual_sizes(config, shape);
    // The first Llama configurations name the longest sequence so.
    shape.context = config.find("max_sequence_length") && !config.find("max_position_embeddings")
                        ? config.count("max_sequence_length")
                        : config.count("max_position_embeddings");
    shape.key_value_heads =
        unless_usual(config.count("num_key_value_heads", shape.heads), shape.heads);
    read_head_width(config, "head_dim", shape, variant.head_width);
    shape.query_key_value_bias = type == "qwen2";
    if (type == "qwen2") {
        static_cast<void>(config.at("num_key_value_heads"));  // Hugging Face's default is 32
    } else if (!mixtral) {
        shape.attention_bias = config.flag("attention_bias", false);
        shape.feed_forward_bias = config.flag("mlp_bias", false);
    }
    // Qwen2 gives the width of its window even where use_sliding_window is false.
    if (config.find("sliding_window") && config.flag("use_sliding_window", true)) {
        model.assumed.emplace_back(
            "attention is over the whole sequence, whatever sliding_window says");
    }
    if (mixtral) {
        shape.experts = config.count("num_local_experts");
        shape.experts_per_token = config.count("num_experts_per_tok");
        model.assumed.emplace_back(
            "experts are computed, each on an equal share of the tokens; their gradients, the "
            "exchange of tokens among ranks, their optimizer step and their memory are left out");
    }
    return model;
}

// Pythia and other GPT-NeoX models: rotary positions have no parameters.
HfModel read_neox(const Config& config) {
    HfModel model;
    read_architecture(config, {{"GPTNeoXForCausalLM"}}, model);
    Transformer& shape = begin_transformer(config, TransformerFamily::neox, false, model);
    read_usual_sizes(config, shape);
    shape.context = config.count("max_position_embeddings");
    return model;
}

HfModel read_falcon(const Config& config) {
    HfModel model;
    read_architecture(config, {{"FalconForCausalLM"}}, model);
    for (const auto& [key, wanted, otherwise] :
         {std::tuple("new_decoder_architecture", false, false), std::tuple("bias", false, false),
          std::tuple("alibi", false, false), std::tuple("parallel_attn", true, true)}) {
        if (config.flag(key, otherwise) != wanted) {
            unknown(config.at(key), fmt::format("{}, as Falcon 7B has it", wanted));
        }
    }
    Transformer& shape = begin_transformer(config, TransformerFamily::falcon, true, model);
    constexpr std::int64_t longest_trained = 2048;
    read_sizes(config,
               {{"num_hidden_layers", &Transformer::layers},
                {"hidden_size", &Transformer::hidden},
                {"num_attention_heads", &Transformer::heads},
                {"max_position_embeddings", &Transformer::context, longest_trained}},
               shape);
    shape.feed_forward = config.count("ffn_hidden_size", 4 * shape.hidden);
    shape.key_value_heads = config.flag("multi_query", true) ? 1 : 0;
    return model;
}

HfModel read_opt(const Config& config) {
    HfModel model;
    read_architecture(config, {{"OPTForCausalLM"}}, model);
    Transformer& shape = begin_transformer(config, TransformerFamily::opt, true, model);
    read_sizes(config,
               {{"num_hidden_layers", &Transformer::layers},
                {"hidden_size", &Transformer::hidden},
                {"ffn_dim", &Transformer::feed_forward},
                {"num_attention_heads", &Transformer::heads},
                {"max_position_embeddings", &Transformer::context}},
               shape);
    if (config.count("word_embed_proj_dim", shape.hidden) != shape.hidden) {
        unknown(config.at("word_embed_proj_dim"), "hidden_size: projections are not known here");
    }
    for (const char* key :
         {"do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine"}) {
        if (!config.flag(key, true)) {
            unknown(config.at(key), "true");
        }
    }
    return model;
}

// mT5 is T5 version 1.1 with a head of its own.
HfModel read_t5(const Config& config) {
    HfModel model;
    const bool mt5 = *config.at("model_type").value == "mt5";
    read_architecture(
        config,
        mt5 ? std::vector<Architecture>{{"MT5ForConditionalGeneration"}}
            : std::vector<Architecture>{{"T5ForConditionalGeneration"}, {"T5WithLMHeadModel"}},
        model);
    Transformer& shape = begin_transformer(config, TransformerFamily::t5, !mt5, model);
    shape.gated = mt5;
    constexpr std::int64_t longest_trained = 512;
    read_sizes(config,
               {{"num_layers", &Transformer::layers},  // the encoder's
                {"d_model", &Transformer::hidden},
                {"d_ff", &Transformer::feed_forward},
                {"num_heads", &Transformer::heads},
                {"n_positions", &Transformer::context, longest_trained},
                {"relative_attention_num_buckets", &Transformer::relative_buckets, 32}},
               shape);
    static_cast<void>(config.at("d_kv"));
    read_head_width(config, "d_kv", shape);
    shape.decoder_layers =
        unless_usual(config.count("num_decoder_layers", shape.layers), shape.layers);
    if (const auto feed_forward = config.find("feed_forward_proj")) {
        shape.gated = read_string(*feed_forward).starts_with("gated-");
    }
    model.assumed.emplace_back("the decoder's sequence is as long as the encoder's");
    return model;
}

// num_labels, or the number of named labels; a configuration without either has two.
std::int64_t labels_of(const Config& config) {
    const auto names = config.find("id2label");
    const bool named = names && names->value->is_object() && !names->value->empty();
    return config.count("num_labels", named ? static_cast<std::int64_t>(names->value->size())
                                            : Transformer{}.labels);
}

HfModel read_bert(const Config& config) {
    HfModel model;
    const BertHead head =
        read_architecture(config,
                          {{"BertForMaskedLM", BertHead::masked_lm},
                           {"BertForPreTraining", BertHead::pretraining},
                           {"BertModel", BertHead::none},
                           {"BertForSequenceClassification", BertHead::sequence_classification},
                           {"BertForTokenClassification", BertHead::token_classification},
                           {"BertForQuestionAnswering", BertHead::question_answering},
                           {"BertForMultipleChoice", BertHead::sequence_classification},
                           {"BertForNextSentencePrediction", BertHead::next_sentence}},
                          model);
    config.refuse_cross_attention();
    const auto positions = config.find("position_embedding_type");
    if (positions && *positions->value != "absolute") {
        unknown(*positions, "absolute, as others have parameters that are not known here");
    }
    Transformer& shape = begin_transformer(config, TransformerFamily::bert, true, model);
    if (has_language_model(head) && shape.tied_embeddings) {
        config.at("tie_word_embeddings").fail("true: the head shares the embedding's table");
    }
    shape.tied_embeddings.reset();
    shape.hugging_face = true;
    shape.bert_head = head;
    if (model.architecture == "BertForMultipleChoice") {
        shape.labels = 1;  // the score of a choice
    } else if (has_labels(head)) {
        shape.labels = labels_of(config);
    }
    read_usual_sizes(config, shape);
    shape.context = config.count("max_position_embeddings");
    shape.token_types = config.count("type_vocab_size", shape.token_types);
    return model;
}

// Missing sizes are ViT-B/16's.
HfModel read_vit(const Config& config) {
    HfModel model;
    auto& shape = model.shape.emplace<VitShape>();
    read_architecture(config, {{"ViTForImageClassification"}}, model);
    shape.hugging_face = true;
    read_usual_sizes(config, shape);
    shape.patch = config.count("patch_size", shape.patch);
    shape.channels = config.count("num_channels", shape.channels);
    shape.classes = labels_of(config);
    shape.query_key_value_bias = config.flag("qkv_bias", true);
    constexpr std::int64_t usual_image = 224;
    model.image_size = config.count("image_size", usual_image);
    if (model.image_size % shape.patch != 0) {
        config.at("patch_size")
            .fail(fmt::format("a number that divides the images' size ({})", model.image_size));
    }
    return model;
}

}  // namespace

std::string known_hf_types() {
    std::string known = "gpt2, ";
    for (const LlamaVariant& variant : llama_variants) {
        known += fmt::format("{}, ", variant.type);
    }
    return known + "gpt_neox, falcon, opt, t5, mt5, bert or vit";
}

HfModel read_hf_config(const Json& document, const std::string& file, HfExperts experts) {
    const Config config(document, file);
    const JsonPlace type = config.at("model_type");
    const auto quantised = config.find("quantization_config");
    // gpt-oss is published as mxfp4, and trained in 16 bits.
    if (quantised && (!quantised->value->is_object() ||
                      quantised->value->value("quant_method", Json()) != "mxfp4")) {
        quantised->fail("none: quantised weights are not trained", "one");
    }
    const std::string name = type.value->is_string() ? type.value->get<std::string>() : "";
    for (const LlamaVariant& variant : llama_variants) {
        if (name == variant.type) {
            return read_llama(config, variant, experts);
        }
    }
    for (const auto& [other, read] :
         {std::pair("gpt2", &read_gpt2), std::pair("t5", &read_t5), std::pair("mt5", &read_t5),
          std::pair("gpt_neox", &read_neox), std::pair("falcon", &read_falcon),
          std::pair("opt", &read_opt), std::pair("bert", &read_bert),
          std::pair("vit", &read_vit)}) {
        if (name == other) {
            return read(config);
        }
    }
    unknown(type, known_hf_types() + ", whose parameters are known");
}

}  // namespace bucketwise
