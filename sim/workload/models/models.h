// The models that ship, by name or by shape.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/workload/model.h"
#include "sim/workload/models/shapes.h"

namespace bucketwise {

// A model whose operations a file lists, with the input that they are of.
struct ListedModel {
    Model model;
    std::int64_t batch = 0;
    std::int64_t sequence_length = 0;  // 0: it has none
    bool operator==(const ListedModel&) const = default;
};

// By name, by shape, or listed.
using ModelChoice = std::variant<std::string, TransformerShape, VitShape, MlpShape, ListedModel>;

// Names that make_model(name, ...) knows, sorted: bert-base, ..., vit_b_16.
const std::vector<std::string_view>& model_names();

// The shape behind a transformer's name; nothing for vision models and unknown names.
std::optional<TransformerShape> transformer_shape(std::string_view name);

// The usual input of one GPU. Precondition (asserted): the name is known.
ModelInput typical_input(std::string_view name);

// image_size is a multiple of it: the patch of a vision transformer; 1 for all others.
std::int64_t image_patch(std::string_view name);

// Precondition (asserted): the name is known, batch >= 1, and sequence_length >= 1 for a
// transformer, image_size >= 32 and a multiple of image_patch() for a vision model.
Model make_model(std::string_view name, const ModelInput& input);
Model make_transformer(std::string name, const TransformerShape& shape, const ModelInput& input);
// Preconditions as for a vision model that is named, and heads divides hidden.
Model make_vision_transformer(std::string name, const VitShape& shape, const ModelInput& input);
// Precondition (asserted): at least two widths, none below 1, and batch >= 1.
Model make_mlp(const MlpShape& shape, const ModelInput& input);

}  // namespace bucketwise
