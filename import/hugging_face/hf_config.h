// A model configuration of Hugging Face Transformers (config.json) as the shape of a model.
//
// A configuration has dozens of keys, most of which change nothing that is simulated. Those that
// change the parameters are honoured or refused by name; the others are not looked at.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "sim/base/json.h"
#include "sim/workload/models/models.h"

namespace bucketwise {

struct HfModel {
    std::string architecture;  // such as LlamaForCausalLM
    std::variant<TransformerShape, VitShape> shape;
    std::int64_t image_size = 0;       // of vit, in pixels
    std::vector<std::string> assumed;  // what the configuration does not say, one sentence each
    bool operator==(const HfModel&) const = default;

    // Nothing for vit.
    [[nodiscard]] const TransformerShape* transformer() const {
        return std::get_if<TransformerShape>(&shape);
    }
};

// What becomes of experts, whose gradients expert parallelism reduces among fewer ranks.
enum class HfExperts : std::uint8_t {
    refused,
    left_out  // of the parameters: what all ranks reduce is the rest
};

// Takes model_type gpt2, llama, mistral and qwen2 (which follow Llama's rules, the latter with
// three biases more), mixtral, t5, bert or vit. Throws InputError, which names `file` and the key,
// for others, for values that no such model has, and for keys that change the parameters in a way
// that is not known here.
HfModel read_hf_config(const Json& document, const std::string& file,
                       HfExperts experts = HfExperts::refused);

// As the key `model` of a scenario's workload has it.
Json shape_json(const std::variant<TransformerShape, VitShape>& shape);

}  // namespace bucketwise
