// torchvision.models.vgg16 (configuration D, without batch norm).
#include "sim/workload/models/builder.h"

namespace bucketwise::models {
namespace {

struct Stage {
    int convolutions;
    std::int64_t channels;
};
constexpr std::array<Stage, 5> stages{{{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}}};

// nn.Sequential numbers its modules, those without parameters too.
FeatureMap add_features(ModelBuilder& builder, FeatureMap map) {
    int index = 0;
    const auto next = [&index] { return "features." + std::to_string(index++); };
    for (const Stage& stage : stages) {
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

Model make_vgg16(std::string name, const ModelInput& input) {
    constexpr std::int64_t hidden = 4096;
    constexpr std::int64_t classes = 1000;
    ModelBuilder builder(std::move(name));
    FeatureMap map = add_features(builder, {input.batch, 3, input.image_size});
    map = builder.average_pool("avgpool", map, 7);
    // classifier.2 and .5 are dropout.
    builder.linear("classifier.0",
                   {.rows = input.batch, .in = map.elements() / input.batch, .out = hidden});
    builder.relu("classifier.1", input.batch * hidden);
    builder.linear("classifier.3", {.rows = input.batch, .in = hidden, .out = hidden});
    builder.relu("classifier.4", input.batch * hidden);
    builder.linear("classifier.6", {.rows = input.batch, .in = hidden, .out = classes});
    builder.elementwise("loss", input.batch * classes, cross_entropy);
    return std::move(builder).build();
}

}  // namespace bucketwise::models
