#include "sim/workload/models/models.h"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include "sim/base/invariant.h"
#include "sim/base/transformed.h"
#include "sim/workload/models/builder.h"

namespace bucketwise {
namespace {

using Family = TransformerFamily;
using Shape = std::variant<TransformerShape, models::ResNetShape, models::Vgg16Shape, VitShape>;

struct NamedShape {
    std::string_view name;
    Shape shape;
    ModelInput usual;
};

constexpr ModelInput sequences(std::int64_t batch, std::int64_t length) {
    return {.batch = batch, .sequence_length = length};
}
constexpr ModelInput images(std::int64_t batch) {
    return {.batch = batch};
}

constexpr TransformerShape hugging_face(TransformerShape shape) {
    shape.hugging_face = true;
    return shape;
}

// Sorted by name. Transformers: layers, hidden, feed_forward, heads, vocabulary, context, from the
// configurations Hugging Face publishes. The CS336 assignment varies its context; 1024 is the
// longest it trains. ResNeXt-101 32x4d is NVIDIA's (DeepLearningExamples), with torchvision's
// structure. Usual input of one GPU: batches fill a GPU of 80 GB well, sequences have the whole
// context, but 128 tokens for BERT, as in nine tenths of its pretraining (Devlin et al. 2019).
constexpr std::array<NamedShape, 19> shapes{{
    {"bert-base", hugging_face({Family::bert, 12, 768, 3072, 12, 30522, 512}), sequences(32, 128)},
    {"bert-large", hugging_face({Family::bert, 24, 1024, 4096, 16, 30522, 512}),
     sequences(32, 128)},
    {"cs336-xl-2025", TransformerShape{Family::cs336, 48, 1600, 6400, 25, 10000, 1024},
     sequences(4, 1024)},
    {"cs336-xl-2026", TransformerShape{Family::cs336, 32, 2560, 10240, 32, 10000, 1024},
     sequences(2, 1024)},
    {"gpt2", hugging_face({Family::gpt2, 12, 768, 3072, 12, 50257, 1024}), sequences(8, 1024)},
    {"gpt2-large", hugging_face({Family::gpt2, 36, 1280, 5120, 20, 50257, 1024}),
     sequences(4, 1024)},
    {"gpt2-medium", hugging_face({Family::gpt2, 24, 1024, 4096, 16, 50257, 1024}),
     sequences(8, 1024)},
    {"gpt2-xl", hugging_face({Family::gpt2, 48, 1600, 6400, 25, 50257, 1024}), sequences(4, 1024)},
    {"llama-3-8b", TransformerShape{Family::llama, 32, 4096, 14336, 32, 128256, 8192, 8},
     sequences(1, 8192)},
    {"llama-7b", TransformerShape{Family::llama, 32, 4096, 11008, 32, 32000, 2048},
     sequences(1, 2048)},
    {"resnet101", models::ResNetShape{.blocks = {3, 4, 23, 3}, .bottleneck = true}, images(128)},
    {"resnet152", models::ResNetShape{.blocks = {3, 8, 36, 3}, .bottleneck = true}, images(128)},
    {"resnet18", models::ResNetShape{.blocks = {2, 2, 2, 2}, .bottleneck = false}, images(128)},
    {"resnet50", models::ResNetShape{.blocks = {3, 4, 6, 3}, .bottleneck = true}, images(128)},
    {"resnext101_32x4d", models::ResNetShape{{3, 4, 23, 3}, true, 32, 4}, images(128)},
    {"resnext101_32x8d", models::ResNetShape{{3, 4, 23, 3}, true, 32, 8}, images(128)},
    {"resnext50_32x4d", models::ResNetShape{{3, 4, 6, 3}, true, 32, 4}, images(128)},
    {"vgg16", models::Vgg16Shape{}, images(64)},
    {"vit_b_16", VitShape{12, 768, 3072, 12}, images(128)},
}};

const NamedShape* find_named(std::string_view name) {
    const auto* const found = std::ranges::find(shapes, name, &NamedShape::name);
    return found == shapes.end() ? nullptr : found;
}

// Null: the name is not known, or its shape is another.
template <typename Wanted>
const Wanted* find_shape(std::string_view name) {
    const NamedShape* const named = find_named(name);
    return named == nullptr ? nullptr : std::get_if<Wanted>(&named->shape);
}

}  // namespace

const std::vector<std::string_view>& model_names() {
    static const auto names = transformed(shapes, &NamedShape::name);
    return names;
}

std::optional<TransformerShape> transformer_shape(std::string_view name) {
    const auto* const shape = find_shape<TransformerShape>(name);
    return shape == nullptr ? std::nullopt : std::optional(*shape);
}

ModelInput typical_input(std::string_view name) {
    const NamedShape* const named = find_named(name);
    invariant(named != nullptr, "typical_input: a known name");
    return named->usual;
}

std::int64_t image_patch(std::string_view name) {
    const auto* const shape = find_shape<VitShape>(name);
    return shape == nullptr ? 1 : shape->patch;
}

Model make_model(std::string_view name, const ModelInput& input) {
    const NamedShape* const named = find_named(name);
    invariant(named != nullptr, "make_model: a known name");
    invariant(input.batch >= 1, "batch >= 1");
    std::string owned(name);
    if (const auto* const transformer = std::get_if<TransformerShape>(&named->shape)) {
        return make_transformer(std::move(owned), *transformer, input);
    }
    invariant(input.image_size >= 32, "image_size >= 32");
    if (const auto* const vit = std::get_if<VitShape>(&named->shape)) {
        return make_vision_transformer(std::move(owned), *vit, input);
    }
    const auto* const resnet = std::get_if<models::ResNetShape>(&named->shape);
    return resnet != nullptr ? models::make_resnet(std::move(owned), *resnet, input)
                             : models::make_vgg16(std::move(owned), input);
}

Model make_transformer(std::string name, const TransformerShape& shape, const ModelInput& input) {
    invariant(input.batch >= 1, "batch >= 1");
    invariant(input.sequence_length >= 1, "sequence_length >= 1");
    invariant(shape.heads >= 1 && (shape.head_width > 0 || shape.hidden % shape.heads == 0),
              "heads divides hidden");
    invariant(shape.query_width() % shape.key_value_width() == 0,
              "heads of keys and values divide heads");
    constexpr std::array by_family{models::make_gpt2,   models::make_bert, models::make_llama,
                                   models::make_llama,  models::make_t5,   models::make_neox,
                                   models::make_falcon, models::make_opt};
    static_assert(by_family.size() == every<Family>.size());
    return by_family[static_cast<std::size_t>(shape.family)](std::move(name), shape, input);
}

Model make_vision_transformer(std::string name, const VitShape& shape, const ModelInput& input) {
    invariant(input.batch >= 1, "batch >= 1");
    invariant(input.image_size >= 32, "image_size >= 32");
    invariant(input.image_size % shape.patch == 0, "image_size is a multiple of the patch");
    invariant(shape.heads >= 1 && shape.hidden % shape.heads == 0, "heads divides hidden");
    return models::make_vit(std::move(name), shape, input);
}

Model make_mlp(const MlpShape& shape, const ModelInput& input) {
    invariant(input.batch >= 1, "batch >= 1");
    invariant(shape.layers.size() >= 2, "a width of samples and one of classes");
    invariant(std::ranges::min(shape.layers) >= 1, "width >= 1");
    return models::make_mlp(shape, input);
}

}  // namespace bucketwise
