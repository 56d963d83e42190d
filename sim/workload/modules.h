// Modules by name, as PyTorch names them: "transformer.h.3" holds "transformer.h.3.attn.c_attn".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bucketwise {

// Whether a parameter, an operation or a module of this name belongs to the module: its name is the
// module's, or begins with it and a dot or a space.
bool belongs_to(std::string_view name, std::string_view module);

// The repeated block that a parameter belongs to: its name up to the first number, "layers.0" of
// "layers.0.attn.weight". A number that is the
// parameter's own name does not count.
std::optional<std::string> block_of(const std::string& parameter);

// The repeated blocks of a model, in the order of their first parameters: names up to their first
// number, "layers.0" of "layers.0.attn.weight", or "layer_0". Empty for names without numbers.
std::vector<std::string> blocks_of(const std::vector<std::string>& parameters);

// Every module with a parameter of its own, in order, without the model itself.
std::vector<std::string> modules_with_parameters(const std::vector<std::string>& parameters);

// Groups of `together` neighbouring blocks of one list; the last group may be smaller.
std::vector<std::vector<std::string>> grouped_blocks(const std::vector<std::string>& blocks,
                                                     std::int64_t together);

}  // namespace bucketwise
