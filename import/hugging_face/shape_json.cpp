// Shapes as a scenario's key `model` holds them.
#include <optional>
#include <string_view>
#include <type_traits>
#include <variant>

#include <nlohmann/json.hpp>

#include "import/hugging_face/hf_config.h"
#include "sim/base/names.h"

namespace bucketwise {
namespace {

// The keys that every family has.
template <typename Shape>
Json common_json(const Shape& shape, std::string_view family) {
    return {{"family", family},
            {"layers", shape.layers},
            {"hidden", shape.hidden},
            {"feed_forward", shape.feed_forward},
            {"heads", shape.heads}};
}

Json whole_json(const VitShape& shape) {
    Json json = common_json(shape, "vit");
    json.update({{"patch", shape.patch},
                 {"channels", shape.channels},
                 {"classes", shape.classes},
                 {"hugging_face", shape.hugging_face},
                 {"query_key_value_bias", shape.query_key_value_bias}});
    return json;
}

Json whole_json(const TransformerShape& shape) {
    Json json = common_json(shape, name_of(shape.family));
    json.update(
        {{"vocabulary", shape.vocabulary},
         {"context", shape.context},
         {"key_value_heads", shape.key_value_heads},
         {"head_width", shape.head_width},
         {"attention_bias", shape.attention_bias},
         {"feed_forward_bias", shape.feed_forward_bias},
         {"linear_bias", shape.linear_bias},
         {"norm_bias", shape.norm_bias},
         {"hugging_face", shape.hugging_face},
         {"token_types", shape.token_types},
         {"bert_head", name_of(shape.bert_head)},
         {"labels", shape.labels},
         {"query_key_value_bias", shape.query_key_value_bias},
         {"norms", name_of(shape.norms)},
         {"query_key_norm", name_of(shape.query_key_norm)},
         {"fused_projections", shape.fused_projections},
         {"experts", shape.experts},
         {"experts_per_token", shape.experts_per_token},
         {"decoder_layers", shape.decoder_layers},
         {"relative_buckets", shape.relative_buckets},
         {"gated", shape.gated},
         {"tied_embeddings", shape.tied_embeddings ? Json(*shape.tied_embeddings) : Json()}});
    return json;
}

}  // namespace

Json shape_json(const std::variant<TransformerShape, VitShape>& shape) {
    return std::visit(
        [](const auto& one) {
            Json json = whole_json(one);
            const Json plain = whole_json(std::decay_t<decltype(one)>{});
            for (const auto& [key, value] : plain.items()) {
                const bool always =
                    key == "family" || key == "patch" || key == "channels" || key == "classes";
                if (!always && json[key] == value) {
                    json.erase(key);
                }
            }
            return json;
        },
        shape);
}

}  // namespace bucketwise
