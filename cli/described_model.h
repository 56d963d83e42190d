// Models of Hugging Face that are not written by hand, described by python/bucketwise/torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "import/hugging_face/hf_config.h"
#include "sim/base/json.h"

namespace bucketwise {

// Where an option was not typed, describe chooses.
struct DescribedInput {
    std::optional<std::int64_t> batch = {};
    std::optional<std::int64_t> sequence_length = {};
    std::string dtype = "float32";
};

// The scenario that bucketwise.torch.describe writes of the configuration `file`. Throws
// InputError: the one given, with the command, where Python has no PyTorch or transformers;
// otherwise what describe says.
Json described_scenario(const std::string& file, const DescribedInput& input,
                        const UnknownFamily& unknown);

}  // namespace bucketwise
