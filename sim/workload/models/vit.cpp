// torchvision.models.vision_transformer: a convolution makes a token of each patch, a learned class
// token goes before them, and the head reads what became of that one.
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

}  // namespace

Model make_vit(std::string name, const VitShape& shape, const ModelInput& input) {
    constexpr std::int64_t classes = 1000;
    ModelBuilder builder(std::move(name));
    builder.parameter("class_token", {1, 1, shape.hidden});  // registered first, not run first
    const FeatureMap patches = builder.convolution("conv_proj", {input.batch, 3, input.image_size},
                                                   {.out_channels = shape.hidden,
                                                    .window = {shape.patch, shape.patch, 0},
                                                    .bias = true,
                                                    .input_gradient = false});
    const std::int64_t tokens = patches.size * patches.size + 1;
    const std::int64_t elements = input.batch * tokens * shape.hidden;
    builder.add_learned("class_token", {1, 1, shape.hidden}, input.batch, elements);
    builder.add_learned("encoder.pos_embedding", {1, tokens, shape.hidden}, input.batch, elements);
    for (std::int64_t i = 0; i < shape.layers; ++i) {
        add_layer(builder, "encoder.layers.encoder_layer_" + std::to_string(i), shape,
                  {input.batch, tokens, shape.heads, shape.hidden});
    }
    builder.layer_norm("encoder.ln", input.batch * tokens, shape.hidden);
    builder.elementwise("first_token", elements, first_token);
    builder.linear("heads.head", {.rows = input.batch, .in = shape.hidden, .out = classes});
    builder.elementwise("loss", input.batch * classes, cross_entropy);
    return std::move(builder).build();
}

}  // namespace bucketwise::models
