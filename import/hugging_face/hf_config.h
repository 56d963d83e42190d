// Reads a model configuration of Hugging Face Transformers (config.json) as the shape of a model.
//
// Keys that change the parameters are honoured or refused by name; all other keys are ignored.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/json.h"
#include "sim/scenario/model_input.h"  // shape_json()
#include "sim/workload/models/models.h"

namespace bucketwise {

struct HfModel {
    std::string architecture;  // such as LlamaForCausalLM
    std::variant<TransformerShape, VitShape> shape;
    std::int64_t image_size = 0;       // of vit, in pixels
    std::vector<std::string> assumed;  // where the configuration is silent; one sentence each
    bool operator==(const HfModel&) const = default;

    // Null for vit.
    [[nodiscard]] const TransformerShape* transformer() const {
        return std::get_if<TransformerShape>(&shape);
    }
};

// A model that is not written by hand: bucketwise.torch.describe may know it.
class UnknownFamily : public InputError {
  public:
    using InputError::InputError;
};

// How to treat experts, whose gradients expert parallelism reduces among fewer ranks.
enum class HfExperts : std::uint8_t { refused, left_out };

// Takes model_type gpt2, llama and its variants (mistral, qwen2, qwen3, gemma, gemma2, gemma3_text,
// olmo2, phi3, smollm3, mixtral), gpt_neox, falcon, opt, t5, mt5, bert or vit. Throws UnknownFamily
// with `file` and the key for other types, and for keys that change the parameters in an unknown
// way; InputError for impossible values and for quantised weights.
HfModel read_hf_config(const Json& document, const std::string& file,
                       HfExperts experts = HfExperts::refused);

// The names of those types.
std::string known_hf_types();

}  // namespace bucketwise
