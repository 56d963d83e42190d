#include "import/hugging_face/hf_config.h"

#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/base/json_output.h"

namespace bucketwise {
namespace {

constexpr std::int64_t most = std::int64_t{1}
                              << 30;  // what is too large the scenario's reader says

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
        if (found == root_.value->end() || found->is_null()) {
            return std::nullopt;
        }
        return JsonPlace{&*found, root_.file, std::string("/") + key};
    }

    [[nodiscard]] JsonPlace at(const char* key) const {
        const auto place = find(key);
        if (!place) {
            throw InputError(root_.file, "", fmt::format("the key {}", key), "none");
        }
        return *place;
    }

    [[nodiscard]] std::int64_t count(const char* key) const {
        return read_integer(at(key), 1, most);
    }

    [[nodiscard]] std::int64_t count_or(const char* key, std::int64_t otherwise) const {
        const auto place = find(key);
        return place ? read_integer(*place, 1, most) : otherwise;
    }

    [[nodiscard]] bool flag(const char* key, bool otherwise) const {
        const auto place = find(key);
        return place ? read_boolean(*place) : otherwise;
    }

    // Refuses a key that would change the parameters.
    void refuse_flag(const char* key, const char* why) const {
        if (flag(key, false)) {
            at(key).fail(fmt::format("false: {}", why));
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

// The first of `known` unless the configuration names another of them. Returns what is behind its
// encoder.
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
    place->fail(fmt::format("[{}], whose parameters are known", listed),
                place->value->dump(-1, ' ', false, Json::error_handler_t::replace));
}

// --- the families ---

// Of a model that is one.
TransformerShape& transformer_of(HfModel& model) {
    return std::get<TransformerShape>(model.shape);
}

// What all but GPT-2 and T5 call the same.
template <typename Shape>
void read_widths(const Config& config, Shape& shape) {
    shape.layers = config.count("num_hidden_layers");
    shape.hidden = config.count("hidden_size");
    shape.feed_forward = config.count("intermediate_size");
    shape.heads = config.count("num_attention_heads");
}

void read_sizes(const Config& config, TransformerShape& shape) {
    read_widths(config, shape);
    shape.vocabulary = config.count("vocab_size");
    shape.context = config.count("max_position_embeddings");
}

HfModel read_gpt2(const Config& config) {
    HfModel model;
    read_architecture(config, {{"GPT2LMHeadModel"}}, model);
    config.refuse_flag("add_cross_attention", "its parameters are not known here");
    TransformerShape& shape = transformer_of(model);
    shape.family = TransformerFamily::gpt2;
    shape.hugging_face = true;
    shape.layers = config.count("n_layer");
    shape.hidden = config.count("n_embd");
    shape.feed_forward = config.count_or("n_inner", 4 * shape.hidden);
    shape.heads = config.count("n_head");
    shape.vocabulary = config.count("vocab_size");
    shape.context = config.count("n_positions");
    if (!config.flag("tie_word_embeddings", true)) {
        shape.tied_embeddings = false;
    }
    return model;
}

// Its class ties nothing unless the configuration says so.
HfModel read_llama(const Config& config, std::string_view architecture) {
    HfModel model;
    read_architecture(config, {{architecture}}, model);
    TransformerShape& shape = transformer_of(model);
    shape.family = TransformerFamily::llama;
    read_sizes(config, shape);
    const std::int64_t key_value_heads = config.count_or("num_key_value_heads", shape.heads);
    if (key_value_heads != shape.heads) {
        shape.key_value_heads = key_value_heads;
    }
    const std::int64_t width = config.count_or("head_dim", 0);
    if (width > 0 && width * shape.heads != shape.hidden) {
        shape.head_width = width;
    }
    shape.attention_bias = config.flag("attention_bias", false);
    shape.feed_forward_bias = config.flag("mlp_bias", false);
    if (config.flag("tie_word_embeddings", false)) {
        shape.tied_embeddings = true;
    }
    // Qwen2's says how wide its window would be, and whether there is one.
    if (config.find("sliding_window") && config.flag("use_sliding_window", true)) {
        model.assumed.emplace_back(
            "attention is over the whole sequence, whatever sliding_window says");
    }
    return model;
}

// A Llama whose three projections into attention have biases, which no key says.
HfModel read_qwen2(const Config& config) {
    HfModel model = read_llama(config, "Qwen2ForCausalLM");
    TransformerShape& shape = transformer_of(model);
    shape.attention_bias = shape.feed_forward_bias = false;
    shape.query_key_value_bias = true;
    static_cast<void>(config.at("num_key_value_heads"));  // left out it would be 32
    return model;
}

// A Llama with experts.
HfModel read_mixtral(const Config& config, const JsonPlace& type, HfExperts experts) {
    if (experts == HfExperts::refused) {
        type.fail(
            "a model whose gradients all ranks reduce, or --dense-only for those of it that are "
            "not experts', which expert parallelism reduces among fewer ranks");
    }
    HfModel model = read_llama(config, "MixtralForCausalLM");
    TransformerShape& shape = transformer_of(model);
    shape.attention_bias = shape.feed_forward_bias = false;
    shape.experts = config.count("num_local_experts");
    shape.experts_per_token = config.count("num_experts_per_tok");
    model.assumed.emplace_back(
        "experts are computed, each on as many tokens as the others, but their gradients are none "
        "of these, and neither the exchange of tokens among ranks nor the optimizer's work on "
        "experts is in the step, nor are experts in the memory that training is said to need");
    return model;
}

// Its configuration counts its encoder's layers and says how wide a head is.
HfModel read_t5(const Config& config) {
    HfModel model;
    read_architecture(config, {{"T5ForConditionalGeneration"}, {"T5WithLMHeadModel"}}, model);
    TransformerShape& shape = transformer_of(model);
    shape.family = TransformerFamily::t5;
    shape.layers = config.count("num_layers");
    shape.hidden = config.count("d_model");
    shape.feed_forward = config.count("d_ff");
    shape.heads = config.count("num_heads");
    shape.vocabulary = config.count("vocab_size");
    constexpr std::int64_t longest_trained = 512;
    shape.context = config.count_or("n_positions", longest_trained);
    if (const std::int64_t width = config.count("d_kv"); width * shape.heads != shape.hidden) {
        shape.head_width = width;
    }
    if (const auto layers = config.count_or("num_decoder_layers", shape.layers);
        layers != shape.layers) {
        shape.decoder_layers = layers;
    }
    shape.relative_buckets = config.count_or("relative_attention_num_buckets", 32);
    if (const auto feed_forward = config.find("feed_forward_proj")) {
        shape.gated = read_string(*feed_forward).starts_with("gated-");
    }
    if (!config.flag("tie_word_embeddings", true)) {
        shape.tied_embeddings = false;
    }
    model.assumed.emplace_back("the decoder's sequence is as long as the encoder's");
    return model;
}

// As many as have names, where their number is not said; two are what a configuration leaves out.
std::int64_t labels_of(const Config& config) {
    const auto names = config.find("id2label");
    const auto named = names && names->value->is_object() && !names->value->empty()
                           ? static_cast<std::int64_t>(names->value->size())
                           : TransformerShape{}.labels;
    return config.count_or("num_labels", named);
}

HfModel read_bert(const Config& config) {
    HfModel model;
    TransformerShape& shape = transformer_of(model);
    shape.bert_head =
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
    if (model.architecture == "BertForMultipleChoice") {
        shape.labels = 1;  // how good each choice is
    } else if (has_labels(shape.bert_head)) {
        shape.labels = labels_of(config);
    }
    config.refuse_flag("add_cross_attention", "its parameters are not known here");
    const auto positions = config.find("position_embedding_type");
    if (positions && *positions->value != "absolute") {
        positions->fail("absolute, as others have parameters that are not known here");
    }
    if (has_language_model(shape.bert_head) && !config.flag("tie_word_embeddings", true)) {
        config.at("tie_word_embeddings").fail("true: the head shares the embedding's table");
    }
    shape.family = TransformerFamily::bert;
    shape.hugging_face = true;
    read_sizes(config, shape);
    shape.token_types = config.count_or("type_vocab_size", shape.token_types);
    return model;
}

// Sizes that a configuration leaves out are ViT-B/16's.
HfModel read_vit(const Config& config) {
    HfModel model;
    auto& shape = model.shape.emplace<VitShape>();
    read_architecture(config, {{"ViTForImageClassification"}}, model);
    shape.hugging_face = true;
    read_widths(config, shape);
    shape.patch = config.count_or("patch_size", shape.patch);
    shape.channels = config.count_or("num_channels", shape.channels);
    shape.classes = labels_of(config);
    shape.query_key_value_bias = config.flag("qkv_bias", true);
    constexpr std::int64_t usual_image = 224;
    model.image_size = config.count_or("image_size", usual_image);
    if (model.image_size % shape.patch != 0) {
        config.at("patch_size")
            .fail(fmt::format("a number that divides the images' size ({})", model.image_size));
    }
    return model;
}

Json vit_json(const VitShape& shape) {
    Json json{{"family", "vit"},
              {"layers", shape.layers},
              {"hidden", shape.hidden},
              {"feed_forward", shape.feed_forward},
              {"heads", shape.heads},
              {"patch", shape.patch},
              {"channels", shape.channels},
              {"classes", shape.classes},
              {"hugging_face", shape.hugging_face}};
    if (!shape.query_key_value_bias) {
        json["query_key_value_bias"] = false;
    }
    return json;
}

Json transformer_json(const TransformerShape& shape) {
    const TransformerShape plain;
    Json json{{"family", name_of(shape.family)},
              {"layers", shape.layers},
              {"hidden", shape.hidden},
              {"feed_forward", shape.feed_forward},
              {"heads", shape.heads},
              {"vocabulary", shape.vocabulary},
              {"context", shape.context}};
    const auto add = [&](const char* key, const auto& value, const auto& otherwise) {
        if (value != otherwise) {
            json[key] = value;
        }
    };
    add("key_value_heads", shape.key_value_heads, plain.key_value_heads);
    add("head_width", shape.head_width, plain.head_width);
    add("attention_bias", shape.attention_bias, plain.attention_bias);
    add("feed_forward_bias", shape.feed_forward_bias, plain.feed_forward_bias);
    add("linear_bias", shape.linear_bias, plain.linear_bias);
    add("norm_bias", shape.norm_bias, plain.norm_bias);
    add("hugging_face", shape.hugging_face, plain.hugging_face);
    add("token_types", shape.token_types, plain.token_types);
    add("bert_head", name_of(shape.bert_head), name_of(plain.bert_head));
    add("labels", shape.labels, plain.labels);
    add("query_key_value_bias", shape.query_key_value_bias, plain.query_key_value_bias);
    add("experts", shape.experts, plain.experts);
    add("experts_per_token", shape.experts_per_token, plain.experts_per_token);
    add("decoder_layers", shape.decoder_layers, plain.decoder_layers);
    add("relative_buckets", shape.relative_buckets, plain.relative_buckets);
    add("gated", shape.gated, plain.gated);
    add_optional(json, "tied_embeddings", shape.tied_embeddings);
    return json;
}

}  // namespace

HfModel read_hf_config(const Json& document, const std::string& file, HfExperts experts) {
    const Config config(document, file);
    const JsonPlace type = config.at("model_type");
    if (const auto quantised = config.find("quantization_config")) {
        quantised->fail("none: quantised weights are not trained", "one");
    }
    if (*type.value == "gpt2") {
        return read_gpt2(config);
    }
    if (*type.value == "llama") {
        return read_llama(config, "LlamaForCausalLM");
    }
    if (*type.value == "mistral") {
        return read_llama(config, "MistralForCausalLM");
    }
    if (*type.value == "bert") {
        return read_bert(config);
    }
    if (*type.value == "qwen2") {
        return read_qwen2(config);
    }
    if (*type.value == "mixtral") {
        return read_mixtral(config, type, experts);
    }
    if (*type.value == "t5") {
        return read_t5(config);
    }
    if (*type.value == "vit") {
        return read_vit(config);
    }
    type.fail(
        "gpt2, llama, mistral, qwen2, mixtral, t5, bert or vit, whose parameters are known; of any "
        "other bucketwise.torch, from within its training script, writes a scenario");
}

Json shape_json(const std::variant<TransformerShape, VitShape>& shape) {
    const auto* vit = std::get_if<VitShape>(&shape);
    return vit != nullptr ? vit_json(*vit) : transformer_json(std::get<TransformerShape>(shape));
}

}  // namespace bucketwise
