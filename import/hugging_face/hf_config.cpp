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

// The first of `known` unless the configuration names another of them.
void read_architecture(const Config& config, const std::vector<Architecture>& known,
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
            model.shape.bert_head = architecture.head;
            return;
        }
        listed += fmt::format("{}{}", listed.empty() ? "" : " or ", architecture.name);
    }
    place->fail(fmt::format("[{}], whose parameters are known", listed),
                place->value->dump(-1, ' ', false, Json::error_handler_t::replace));
}

// --- the families ---

// What all but GPT-2 call the same.
void read_sizes(const Config& config, TransformerShape& shape) {
    shape.layers = config.count("num_hidden_layers");
    shape.hidden = config.count("hidden_size");
    shape.feed_forward = config.count("intermediate_size");
    shape.heads = config.count("num_attention_heads");
    shape.vocabulary = config.count("vocab_size");
    shape.context = config.count("max_position_embeddings");
}

HfModel read_gpt2(const Config& config) {
    HfModel model;
    read_architecture(config, {{"GPT2LMHeadModel"}}, model);
    config.refuse_flag("add_cross_attention", "its parameters are not known here");
    TransformerShape& shape = model.shape;
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
    TransformerShape& shape = model.shape;
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
    if (config.find("sliding_window")) {
        model.assumed.emplace_back(
            "attention is over the whole sequence, whatever sliding_window says");
    }
    return model;
}

HfModel read_bert(const Config& config) {
    HfModel model;
    read_architecture(config,
                      {{"BertForMaskedLM", BertHead::masked_lm},
                       {"BertForPreTraining", BertHead::pretraining},
                       {"BertModel", BertHead::none}},
                      model);
    config.refuse_flag("add_cross_attention", "its parameters are not known here");
    const auto positions = config.find("position_embedding_type");
    if (positions && *positions->value != "absolute") {
        positions->fail("absolute, as others have parameters that are not known here");
    }
    if (model.shape.bert_head != BertHead::none && !config.flag("tie_word_embeddings", true)) {
        config.at("tie_word_embeddings").fail("true: the head shares the embedding's table");
    }
    TransformerShape& shape = model.shape;
    shape.family = TransformerFamily::bert;
    shape.hugging_face = true;
    read_sizes(config, shape);
    shape.token_types = config.count_or("type_vocab_size", shape.token_types);
    return model;
}

}  // namespace

HfModel read_hf_config(const Json& document, const std::string& file) {
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
    type.fail("gpt2, llama, mistral or bert, whose parameters are known");
}

Json shape_json(const TransformerShape& shape) {
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
    add_optional(json, "tied_embeddings", shape.tied_embeddings);
    return json;
}

}  // namespace bucketwise
