// A multilayer perceptron that classifies: torch.nn.Sequential of Linear and ReLU, then
// cross-entropy.
#include "sim/workload/models/builder.h"

namespace bucketwise::models {

// nn.Sequential numbers its modules, those without parameters too. Weights lie as [in, out], as all
// three products read them then (hw/training); their sizes are nn.Linear's.
Model make_mlp(std::string name, const MlpShape& shape, const ModelInput& input) {
    ModelBuilder builder(std::move(name));
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
