#include "sim/scenario/model_input.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace bucketwise {
namespace {

// Generous for anything that exists, and small enough that no product of them overflows.
constexpr std::int64_t most_layers = 4096;
constexpr std::int64_t most_width = 1 << 18;
constexpr std::int64_t most_hidden = 1 << 15;
constexpr std::int64_t most_feed_forward = 1 << 18;
constexpr std::int64_t most_heads = 1 << 10;
constexpr std::int64_t most_experts = 1 << 12;
constexpr std::int64_t most_vocabulary = 1 << 20;
constexpr std::int64_t most_patch = 1 << 8;
constexpr std::int64_t most_channels = 1 << 10;

constexpr std::string_view vit_family = "vit";
constexpr std::string_view mlp_family = "mlp";

// A name of a family of shapes: the transformers', and those that have another shape.
struct ShapeFamily {
    std::optional<TransformerFamily> transformer = {};
    std::string_view other = {};
};
std::string_view name_of(const ShapeFamily& family) {
    return family.transformer ? name_of(*family.transformer) : family.other;
}
constexpr std::array<ShapeFamily, 10> all_families{{{TransformerFamily::gpt2},
                                                    {TransformerFamily::bert},
                                                    {TransformerFamily::llama},
                                                    {TransformerFamily::cs336},
                                                    {TransformerFamily::t5},
                                                    {TransformerFamily::neox},
                                                    {TransformerFamily::falcon},
                                                    {TransformerFamily::opt},
                                                    {{}, vit_family},
                                                    {{}, mlp_family}}};

// The transformer families that have a key; all others refuse it.
struct FamilyKeys {
    std::vector<std::string_view> keys;
    std::vector<TransformerFamily> families;
};
const std::vector<FamilyKeys>& family_keys() {
    using enum TransformerFamily;
    static const std::vector<FamilyKeys> all{
        {{"head_width"}, {llama, t5}},
        {{"key_value_heads"}, {llama, falcon}},
        {{"attention_bias", "feed_forward_bias", "query_key_value_bias", "norms", "query_key_norm",
          "fused_projections", "experts", "experts_per_token"},
         {llama}},
        {{"decoder_layers", "relative_buckets", "gated"}, {t5}},
        {{"linear_bias", "norm_bias"}, {gpt2}},
        {{"tied_embeddings"}, {gpt2, llama, t5, neox, falcon, opt}},
        {{"token_types", "bert_head", "labels"}, {bert}},
        {{"hugging_face"}, {gpt2, bert}}};
    return all;
}

void refuse_other_families(const JsonObject& object, TransformerFamily family) {
    for (const auto& [keys, families] : family_keys()) {
        if (std::ranges::count(families, family) > 0) {
            continue;
        }
        std::string having{name_of(families.front())};
        for (std::size_t i = 1; i < families.size(); ++i) {
            having += fmt::format("{}{}", i + 1 == families.size() ? " and " : ", ",
                                  name_of(families[i]));
        }
        for (const std::string_view key : keys) {
            use_present(object, key, [&, key = key](const JsonPlace& found) {
                found.fail(fmt::format("no {} but for {}", key, having), found.value->dump());
            });
        }
    }
}

JsonDescription family_type() {
    const auto names = transformed(all_families, [](const ShapeFamily& f) { return name_of(f); });
    return {as::names_schema(names), as::names_text(names)};
}

Json family_is(const std::vector<std::string_view>& names) {
    return {{"properties", {{"family", as::names_schema(names)}}}};
}

std::vector<Json> transformer_conditions() {
    std::vector<Json> conditions;
    conditions.push_back({{"not", family_is({vit_family, mlp_family})}});
    for (const auto& [keys, families] : family_keys()) {
        Json then;
        for (const std::string_view key : keys) {
            then["properties"][std::string(key)] = false;
        }
        const auto names = transformed(families, [](TransformerFamily f) { return name_of(f); });
        conditions.push_back({{"if", {{"not", family_is(names)}}}, {"then", then}});
    }
    conditions.push_back({{"if", {{"required", {"experts"}}}},
                          {"then", {{"properties", {{"feed_forward_bias", {{"const", false}}}}}}}});
    return conditions;
}

std::string_view family_of(const TransformerShape& shape) {
    return name_of(shape.family);
}
std::string_view family_of(const VitShape& /*shape*/) {
    return vit_family;
}

// Read before the table is chosen by it.
template <typename Shape>
KeyUse<Shape> family_use() {
    KeyUse<Shape> use{family_type()};
    use.write = [](const Shape& shape, bool /*always*/) { return Json(family_of(shape)); };
    return use;
}

// Keys that every transformer has.
std::vector<JsonKey<TransformerShape>> width_keys() {
    using Shape = TransformerShape;
    return {{"family", family_use<Shape>(), "required",
             "whose layers and parameter names; `vit` and `mlp` have shapes of their own"},
            {"layers", field(&Shape::layers, as::integer(1, most_layers)), "required",
             "transformer blocks"},
            {"hidden", field(&Shape::hidden, as::integer(1, most_hidden)), "required",
             "width of the residual stream (d_model)"},
            {"feed_forward", field(&Shape::feed_forward, as::integer(1, most_feed_forward)),
             "required", "width inside the feed-forward part (d_ff)"},
            {"heads", field(&Shape::heads, as::integer(1, most_heads)), "required",
             "attention heads; divides `hidden`, unless `head_width` is given"},
            {"vocabulary", field(&Shape::vocabulary, as::integer(1, most_vocabulary)), "required",
             "tokens in the vocabulary"},
            {"context", field(&Shape::context, as::integer(1, most_sequence)), "required",
             "learned positions of gpt2 and bert; the longest sequence of the others"}};
}

// Keys that published configurations of a family set differently.
std::vector<JsonKey<TransformerShape>> variant_keys() {
    using Shape = TransformerShape;
    return {
        {"key_value_heads", field(&Shape::key_value_heads, as::integer(1, most_heads)), "`heads`",
         "llama, falcon: heads of keys and values, each shared by as many heads of queries "
         "(grouped-query "
         "attention); divides `heads`"},
        {"head_width", field(&Shape::head_width, as::integer(1, most_hidden)), "`hidden` / `heads`",
         "llama, t5: width of one head"},
        {"attention_bias", field(&Shape::attention_bias, as::boolean()), "false",
         "llama: the four projections of attention have biases"},
        {"feed_forward_bias", field(&Shape::feed_forward_bias, as::boolean()), "false",
         "llama: gate, up and down have biases"},
        {"query_key_value_bias", field(&Shape::query_key_value_bias, as::boolean()), "false",
         "llama: the three projections into attention have biases, the one out of it has none "
         "(Qwen2)"},
        {"norms", field(&Shape::norms, as::one_of<BlockNorms>()), "`before`",
         "llama: where a block has its norms: `before` attention and feed-forward part, `after` "
         "both (OLMo 2), or `both` (Gemma 2 and 3)"},
        {"query_key_norm", field(&Shape::query_key_norm, as::one_of<QueryKeyNorm>()), "`none`",
         "llama: queries and keys are normalised, each `head` by itself (Qwen3, Gemma 3) or the "
         "whole `projection` (OLMo 2)"},
        {"fused_projections", field(&Shape::fused_projections, as::boolean()), "false",
         "llama: one projection for query, key and value and one for gate and up (Phi-3)"},
        {"experts", field(&Shape::experts, as::integer(1, most_experts)), "none",
         "llama: a mixture of experts in place of each feed-forward part (Mixtral), both this and "
         "the next key. Experts are computed, but their weights are none of the parameters, as "
         "expert parallelism reduces them among fewer ranks; its exchange of tokens and the "
         "optimizer's part in them are left out"},
        {"experts_per_token", field(&Shape::experts_per_token, as::integer(1, most_experts)),
         "none", "llama: experts that each token goes through; at most `experts`"},
        {"decoder_layers", field(&Shape::decoder_layers, as::integer(1, most_layers)), "`layers`",
         "t5: blocks of the decoder, whose sequences are as long as the encoder's"},
        {"relative_buckets", field(&Shape::relative_buckets, as::integer(1, most_sequence)), "32",
         "t5: distances that attention tells apart"},
        {"gated", field(&Shape::gated, as::boolean()), "false",
         "t5: the feed-forward part is gated, as in version 1.1"},
        {"tied_embeddings", field(&Shape::tied_embeddings, as::boolean()),
         "llama and neox false, the others true",
         "gpt2, llama, t5, neox, falcon, opt: the head shares the embedding's table"},
        {"linear_bias", field(&Shape::linear_bias, as::boolean()), "true",
         "gpt2: the projections of attention and feed-forward have biases; nanoGPT with "
         "`bias=False` has neither these nor the next"},
        {"norm_bias", field(&Shape::norm_bias, as::boolean()), "true",
         "gpt2: layer norms have biases"},
        {"hugging_face", field(&Shape::hugging_face, as::boolean()), "false",
         "gpt2, bert: trained as Hugging Face publishes it: with dropout, and GPT-2's GELU and "
         "loss in Python. The model names below are"},
        {"token_types", field(&Shape::token_types, as::integer(1, most_vocabulary)), "2",
         "bert: segments that have an embedding"},
        {"bert_head", field(&Shape::bert_head, as::one_of<BertHead>()), "`none`",
         "bert: what follows the encoder. `none`: BertModel, with its pooler; `masked_lm`: "
         "BertForMaskedLM, without; `pretraining`: BertForPreTraining, pooler and both heads; "
         "`sequence_classification` and `next_sentence`: pooler and classifier; "
         "`token_classification` and `question_answering`: a classifier of every token"},
        {"labels", field(&Shape::labels, as::integer(1, most_vocabulary)), "2",
         "bert: classes of the heads that classify"}};
}

const JsonTable<TransformerShape>& transformer_keys() {
    static const JsonTable<TransformerShape> table{
        "transformer",
        "A transformer of your own shape",
        joined(width_keys(), variant_keys()),
        {needs("experts", "experts_per_token"), needs("experts_per_token", "experts")},
        transformer_conditions()};
    return table;
}

const JsonTable<VitShape>& vit_keys() {
    using Shape = VitShape;
    static const JsonTable<Shape> table{
        "vision transformer",
        "A vision transformer that classifies: every patch of an image is a token",
        {{"family", family_use<Shape>(), "required", "`vit`"},
         {"layers", field(&Shape::layers, as::integer(1, most_layers)), "required",
          "transformer blocks"},
         {"hidden", field(&Shape::hidden, as::integer(1, most_hidden)), "required",
          "width of the residual stream"},
         {"feed_forward", field(&Shape::feed_forward, as::integer(1, most_feed_forward)),
          "required", "width inside the feed-forward part"},
         {"heads", field(&Shape::heads, as::integer(1, most_heads)), "required",
          "attention heads; divides `hidden`"},
         {"patch", field(&Shape::patch, as::integer(1, most_patch)), "16",
          "height and width of a patch in pixels", true},
         {"channels", field(&Shape::channels, as::integer(1, most_channels)), "3", "of the images",
          true},
         {"classes", field(&Shape::classes, as::integer(1, most_vocabulary)), "1000",
          "that the head tells apart", true},
         {"hugging_face", field(&Shape::hugging_face, as::boolean()), "false",
          "ViTForImageClassification's names, order of parameters and three projections into "
          "attention, else torchvision's"},
         {"query_key_value_bias", field(&Shape::query_key_value_bias, as::boolean()), "true",
          "the projections into attention have biases; false only with `hugging_face`"}},
        {},
        {family_is({vit_family}),
         Json{{"if",
               {{"properties", {{"query_key_value_bias", {{"const", false}}}}},
                {"required", {"query_key_value_bias"}}}},
              {"then",
               {{"required", {"hugging_face"}},
                {"properties", {{"hugging_face", {{"const", true}}}}}}}}}};
    return table;
}

const JsonTable<MlpShape>& mlp_keys() {
    static const JsonTable<MlpShape> table = [] {
        auto widths = as::list(as::integer(1, most_width), most_layers);
        widths.schema["minItems"] = 2;
        return JsonTable<MlpShape>{
            "multilayer perceptron",
            "A multilayer perceptron that classifies: linear layers, ReLU between them, "
            "cross-entropy",
            {{"family", family_type(), "required", "`mlp`"},
             {"layers", target(&MlpShape::layers, widths), "required",
              "widths: of a sample, of each hidden layer, and the number of classes"}},
            {},
            {family_is({mlp_family})}};
    }();
    return table;
}

void check_heads(const JsonObject& object, std::int64_t heads, std::int64_t hidden) {
    if (hidden % heads != 0) {
        object.at("heads").fail(fmt::format("a number of heads that divides hidden ({})", hidden));
    }
}

MlpShape read_mlp_shape(const JsonPlace& place) {
    MlpShape shape = mlp_keys().read(place);
    if (shape.layers.size() < 2) {
        mlp_keys().open(place).at("layers").fail(
            "the width of a sample, of each hidden layer, and the number of classes", "one number");
    }
    return shape;
}

VitShape read_vit_shape(const JsonPlace& place) {
    const JsonObject object = vit_keys().open(place);
    VitShape shape;
    vit_keys().read(object, shape);
    check_heads(object, shape.heads, shape.hidden);
    if (!shape.query_key_value_bias && !shape.hugging_face) {
        object.at("query_key_value_bias").fail("true, or hugging_face true beside it");
    }
    return shape;
}

void check_experts(const JsonObject& object, const TransformerShape& shape) {
    if (shape.experts_per_token > shape.experts) {
        object.at("experts_per_token").fail(fmt::format("an integer from 1 to {}", shape.experts));
    }
    if (shape.experts_per_token * shape.feed_forward > most_feed_forward) {
        object.at("experts_per_token")
            .fail(fmt::format("a number which times feed_forward ({}) is at most {}",
                              shape.feed_forward, most_feed_forward));
    }
    if (shape.experts > 0 && (shape.fused_projections || shape.norms != BlockNorms::before)) {
        object.at("experts").fail("none beside fused_projections or norms");
    }
    if (shape.experts > 0 && shape.feed_forward_bias) {
        object.at("feed_forward_bias").fail("false beside experts");
    }
}

TransformerShape read_transformer_shape(const JsonPlace& place) {
    const JsonObject object = transformer_keys().open(place);
    TransformerShape shape;
    shape.family = *read_choice(object.at("family"), all_families).transformer;
    refuse_other_families(object, shape.family);
    transformer_keys().read(object, shape);
    if (shape.head_width == 0) {
        check_heads(object, shape.heads, shape.hidden);
    } else if (shape.query_width() > most_hidden) {
        object.at("head_width")
            .fail(fmt::format("a width that makes at most {} with all heads ({})", most_hidden,
                              shape.heads));
    }
    if (shape.key_value_heads > 0 && shape.heads % shape.key_value_heads != 0) {
        object.at("key_value_heads")
            .fail(fmt::format("a number that divides heads ({})", shape.heads));
    }
    check_experts(object, shape);
    return shape;
}

// Ahead of the keys, which depend on it. A missing family is reported with them.
std::string_view family_of(const JsonPlace& place) {
    const auto family = place.value->find("family");
    if (family == place.value->end()) {
        return {};
    }
    return name_of(read_choice({&*family, place.file, place.pointer + "/family"}, all_families));
}

}  // namespace

ModelChoice read_model(const JsonPlace& place) {
    if (place.value->is_object()) {
        if (place.value->contains("operations")) {
            return read_listed_model(place);
        }
        const std::string_view family = family_of(place);
        return family == vit_family   ? ModelChoice(read_vit_shape(place))
               : family == mlp_family ? ModelChoice(read_mlp_shape(place))
                                      : read_transformer_shape(place);
    }
    const std::vector<std::string_view>& names = model_names();
    if (!place.value->is_string() ||
        std::ranges::count(names, place.value->get_ref<const std::string&>()) == 0) {
        place.fail_name(
            fmt::format("a model ({}) or an object with the shape of one", fmt::join(names, ", ")),
            names);
    }
    return place.value->get<std::string>();
}

JsonDescription model_description() {
    const std::vector<const ObjectText*> shapes{&transformer_keys().text(), &vit_keys().text(),
                                                &mlp_keys().text(), &listed_model_text()};
    Json one_of = Json::array({as::names_schema(model_names())});
    for (const ObjectText* shape : shapes) {
        one_of.push_back(reference_to(*shape));
    }
    return {{{"oneOf", one_of}}, "name or object", shapes};
}

Json shape_json(const std::variant<TransformerShape, VitShape>& shape) {
    const auto* const transformer = std::get_if<TransformerShape>(&shape);
    return transformer != nullptr ? transformer_keys().write(*transformer)
                                  : vit_keys().write(std::get<VitShape>(shape));
}

}  // namespace bucketwise
