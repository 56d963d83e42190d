// torchvision.models.vision_transformer, and Hugging Face's ViTForImageClassification: a
// convolution makes a token of each patch, a learned class token goes before them, and the head
// reads what became of that one. The two differ in names, in the order in which parameters are
// registered, and in that Hugging Face's attention has three projections for torchvision's one.
#include "sim/workload/models/builder.h"

namespace bucketwise::models {
namespace {

void add_layer(ModelBuilder& builder, const std::string& name, const VitShape& shape,
               const Attention& attention) {
    const std::int64_t rows = attention.batch * attention.sequence_length;
    const std::int64_t elements = rows * shape.hidden;
    const auto linear = [&](const char* module, std::int64_t in, std::int64_t out,
                            const char* separator = ".") {
        builder.linear(name + module, {.rows = rows, .in = in, .out = out, .separator = separator});
    };
    builder.layer_norm(name + ".ln_1", rows, shape.hidden);
    linear(".self_attention.in_proj", shape.hidden, 3 * shape.hidden, "_");
    builder.attention(name + ".self_attention", attention);
    linear(".self_attention.out_proj", shape.hidden, shape.hidden);
    builder.residual_add(name + ".self_attention.add", elements, elements);
    builder.layer_norm(name + ".ln_2", rows, shape.hidden);
    linear(".mlp.0", shape.hidden, shape.feed_forward);
    builder.elementwise(name + ".mlp.1", rows * shape.feed_forward, activation);
    linear(".mlp.3", shape.feed_forward, shape.hidden);
    builder.residual_add(name + ".mlp.add", elements, elements);
}

// --- Hugging Face's ---

void register_linear(ModelBuilder& builder, const std::string& name, const Linear& layer) {
    builder.parameter(name + ".weight", {layer.out, layer.in});
    if (layer.bias) {
        builder.parameter(name + ".bias", {layer.out});
    }
}

void add_hugging_face_layer(ModelBuilder& builder, const std::string& name, const VitShape& shape,
                            const Attention& attention) {
    const std::int64_t rows = attention.batch * attention.sequence_length;
    const std::int64_t elements = rows * shape.hidden;
    const Linear into{
        .rows = rows, .in = shape.hidden, .out = shape.hidden, .bias = shape.query_key_value_bias};
    const Linear out_of{.rows = rows, .in = shape.hidden, .out = shape.hidden};
    const Linear wide{.rows = rows, .in = shape.hidden, .out = shape.feed_forward};
    const Linear narrow{.rows = rows, .in = shape.feed_forward, .out = shape.hidden};
    const std::string self = name + ".attention.attention";
    // Its norms are registered last, though one of them runs first.
    for (const char* projection : {".query", ".key", ".value"}) {
        register_linear(builder, self + projection, into);
    }
    register_linear(builder, name + ".attention.output.dense", out_of);
    register_linear(builder, name + ".intermediate.dense", wide);
    register_linear(builder, name + ".output.dense", narrow);

    builder.layer_norm(name + ".layernorm_before", rows, shape.hidden);
    builder.linear(self + ".query", into);
    builder.linear(self + ".key", into);
    builder.add_fork(elements);
    builder.linear(self + ".value", into);
    builder.add_fork(elements);
    builder.attention(self, attention);
    builder.linear(name + ".attention.output.dense", out_of);
    builder.residual_add(name + ".attention.add", elements, elements);
    builder.layer_norm(name + ".layernorm_after", rows, shape.hidden);
    builder.linear(name + ".intermediate.dense", wide);
    builder.elementwise(name + ".intermediate.act", rows * shape.feed_forward, activation);
    builder.linear(name + ".output.dense", narrow);
    builder.residual_add(name + ".output.add", elements, elements);
}

// What the two call the same thing.
struct ModuleNames {
    std::string class_token;
    std::string positions;
    std::string patches;
    std::string layer;
    std::string norm;
    std::string head;
};

ModuleNames module_names(const VitShape& shape) {
    if (!shape.hugging_face) {
        return {"class_token", "encoder.pos_embedding",
                "conv_proj",   "encoder.layers.encoder_layer_",
                "encoder.ln",  "heads.head"};
    }
    const std::string prefix = "vit.embeddings.";
    return {prefix + "cls_token",
            prefix + "position_embeddings",
            prefix + "patch_embeddings.projection",
            "vit.encoder.layer.",
            "vit.layernorm",
            "classifier"};
}

}  // namespace

Model make_vit(std::string name, const VitShape& shape, const ModelInput& input) {
    const ModuleNames names = module_names(shape);
    const std::int64_t side = input.image_size / shape.patch;
    const std::int64_t tokens = side * side + 1;
    const std::int64_t elements = input.batch * tokens * shape.hidden;
    ModelBuilder builder(std::move(name));
    builder.parameter(names.class_token, {1, 1, shape.hidden});  // registered first, not run first
    if (shape.hugging_face) {
        builder.parameter(names.positions, {1, tokens, shape.hidden});
    }
    builder.convolution(names.patches, {input.batch, shape.channels, input.image_size},
                        {.out_channels = shape.hidden,
                         .window = {shape.patch, shape.patch, 0},
                         .bias = true,
                         .input_gradient = false});
    builder.add_learned(names.class_token, {1, 1, shape.hidden}, input.batch, elements);
    builder.add_learned(names.positions, {1, tokens, shape.hidden}, input.batch, elements);
    const Attention attention{input.batch, tokens, shape.heads, shape.hidden};
    for (std::int64_t i = 0; i < shape.layers; ++i) {
        (shape.hugging_face ? add_hugging_face_layer : add_layer)(
            builder, names.layer + std::to_string(i), shape, attention);
    }
    builder.layer_norm(names.norm, input.batch * tokens, shape.hidden);
    builder.elementwise("first_token", elements, first_token);
    builder.linear(names.head, {.rows = input.batch, .in = shape.hidden, .out = shape.classes});
    builder.elementwise("loss", input.batch * shape.classes, cross_entropy);
    return std::move(builder).build();
}

}  // namespace bucketwise::models
