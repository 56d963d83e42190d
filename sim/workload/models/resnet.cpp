// torchvision.models.resnet (v1.5: the stride sits in a bottleneck's 3x3 convolution), ResNeXt too.
// Names are the modules'; a ReLU module that a block calls several times is numbered.
#include "sim/workload/models/builder.h"

namespace bucketwise::models {
namespace {

constexpr std::int64_t image_classes = 1000;

std::vector<Convolution> block_convolutions(const ResNetShape& shape, std::int64_t planes,
                                            std::int64_t stride) {
    if (shape.bottleneck) {
        const std::int64_t width = planes * shape.width_per_group / 64 * shape.groups;
        return {{width},
                {.out_channels = width, .window = {3, stride, 1}, .groups = shape.groups},
                {4 * planes}};
    }
    return {{planes, {3, stride, 1}}, {planes, {3, 1, 1}}};
}

// The shortcut's convolution runs after the main branch, as in torchvision's forward; backward
// then reaches it first, because autograd runs the node that was created later.
FeatureMap add_block(ModelBuilder& builder, const std::string& name, const FeatureMap& input,
                     const std::vector<Convolution>& convolutions, std::int64_t stride) {
    const auto numbered = [&name](const char* module, std::size_t number) {
        return name + module + std::to_string(number);
    };
    FeatureMap map = input;
    for (std::size_t i = 0; i < convolutions.size(); ++i) {
        if (i > 0) {
            builder.relu(numbered(".relu", i), map.elements());
        }
        map = builder.convolution(numbered(".conv", i + 1), map, convolutions[i]);
        builder.batch_norm(numbered(".bn", i + 1), map);
    }
    if (stride != 1 || input.channels != map.channels) {
        builder.convolution(name + ".downsample.0", input, {map.channels, {1, stride, 0}});
        builder.batch_norm(name + ".downsample.1", map);
    }
    builder.residual_add(name + ".add", map.elements(), input.elements());
    builder.relu(numbered(".relu", convolutions.size()), map.elements());
    return map;
}

FeatureMap add_stem(ModelBuilder& builder, const FeatureMap& images) {
    const FeatureMap map = builder.convolution(
        "conv1", images, {.out_channels = 64, .window = {7, 2, 3}, .input_gradient = false});
    builder.batch_norm("bn1", map);
    builder.relu("relu", map.elements());
    return builder.max_pool("maxpool", map, {3, 2, 1});
}

}  // namespace

Model make_resnet(std::string name, const ResNetShape& shape, const ModelInput& input) {
    ModelBuilder builder(std::move(name));
    FeatureMap map = add_stem(builder, {input.batch, 3, input.image_size});
    std::int64_t planes = 64;
    for (std::size_t stage = 0; stage < shape.blocks.size(); ++stage, planes *= 2) {
        for (int block = 0; block < shape.blocks[stage]; ++block) {
            const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
            map = add_block(builder,
                            "layer" + std::to_string(stage + 1) + "." + std::to_string(block), map,
                            block_convolutions(shape, planes, stride), stride);
        }
    }
    map = builder.average_pool("avgpool", map, 1);
    builder.linear("fc", {.rows = input.batch, .in = map.channels, .out = image_classes});
    builder.elementwise("loss", input.batch * image_classes, cross_entropy);
    return std::move(builder).build();
}

}  // namespace bucketwise::models
