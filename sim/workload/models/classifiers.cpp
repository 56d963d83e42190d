// Image classifiers of torchvision, and a multilayer perceptron.
#include "sim/workload/models/builder.h"

namespace bucketwise::models {
namespace {

constexpr std::int64_t image_classes = 1000;

// --- ResNet and ResNeXt ---

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

// The shortcut's convolution runs after the main branch, as in torchvision's forward. Backward then
// reaches it first, because autograd runs the node that was created later.
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

// --- VGG ---

struct Stage {
    int convolutions;
    std::int64_t channels;
};
constexpr std::array<Stage, 5> vgg16_stages{{{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}}};

// nn.Sequential numbers its modules, those without parameters too.
FeatureMap add_features(ModelBuilder& builder, FeatureMap map) {
    int index = 0;
    const auto next = [&index] { return "features." + std::to_string(index++); };
    for (const Stage& stage : vgg16_stages) {
        for (int i = 0; i < stage.convolutions; ++i) {
            const bool reads_images = index == 0;
            map = builder.convolution(next(), map,
                                      {.out_channels = stage.channels,
                                       .window = {3, 1, 1},
                                       .bias = true,
                                       .input_gradient = !reads_images});
            builder.relu(next(), map.elements());
        }
        map = builder.max_pool(next(), map, {2, 2, 0});
    }
    return map;
}

}  // namespace

// torchvision.models.resnet (v1.5: the stride sits in a bottleneck's 3x3 convolution). Names are
// the modules'; a ReLU module that a block calls several times is numbered.
Model make_resnet(std::string name, const ResNetShape& shape, const ModelInput& input) {
    ModelBuilder builder(std::move(name));
    FeatureMap map =
        builder.convolution("conv1", {input.batch, 3, input.image_size},
                            {.out_channels = 64, .window = {7, 2, 3}, .input_gradient = false});
    builder.batch_norm("bn1", map);
    builder.relu("relu", map.elements());
    map = builder.max_pool("maxpool", map, {3, 2, 1});
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
    builder.linear("fc", {input.batch, map.channels, image_classes});
    builder.elementwise("loss", input.batch * image_classes, cross_entropy);
    return std::move(builder).build();
}

// torchvision.models.vgg16 (configuration D, without batch norm).
Model make_vgg16(std::string name, const ModelInput& input) {
    constexpr std::int64_t hidden = 4096;
    ModelBuilder builder(std::move(name));
    FeatureMap map = add_features(builder, {input.batch, 3, input.image_size});
    map = builder.average_pool("avgpool", map, 7);
    // classifier.2 and .5 are dropout.
    builder.linear("classifier.0", {input.batch, map.elements() / input.batch, hidden});
    builder.relu("classifier.1", input.batch * hidden);
    builder.linear("classifier.3", {input.batch, hidden, hidden});
    builder.relu("classifier.4", input.batch * hidden);
    builder.linear("classifier.6", {input.batch, hidden, image_classes});
    builder.elementwise("loss", input.batch * image_classes, cross_entropy);
    return std::move(builder).build();
}

// torch.nn.Sequential of Linear and ReLU, then cross-entropy. Weights lie as [in, out], because all
// three products read them so (hw/training); their sizes are nn.Linear's.
Model make_mlp(const MlpShape& shape, const ModelInput& input) {
    ModelBuilder builder("mlp");
    const std::size_t linears = shape.layers.size() - 1;
    for (std::size_t i = 0; i < linears; ++i) {
        builder.linear(std::to_string(2 * i), {.rows = input.batch,
                                               .in = shape.layers[i],
                                               .out = shape.layers[i + 1],
                                               .weight_is_in_out = true,
                                               .input_gradient = i > 0});
        if (i + 1 < linears) {
            builder.relu(std::to_string(2 * i + 1), input.batch * shape.layers[i + 1]);
        }
    }
    builder.elementwise("loss", input.batch * shape.layers.back(), cross_entropy);
    return std::move(builder).build();
}

}  // namespace bucketwise::models
