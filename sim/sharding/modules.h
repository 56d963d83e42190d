// Modules by name, as PyTorch names them: "transformer.h.3" holds "transformer.h.3.attn.c_attn".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bucketwise {

// Whether what is called so, a parameter, an operation or a module, belongs to the module: it is
// the module's name, or that, a dot or a space, and more.
bool belongs_to(std::string_view name, std::string_view module);

// The blocks that a model repeats, in the order of their first parameters: names up to their first
// number, "layers.0" of "layers.0.attn.weight". Empty where names hold no number.
std::vector<std::string> blocks_of(const std::vector<std::string>& parameters);

// Every module that has a parameter of its own, in their order; but for the model itself.
std::vector<std::string> modules_with_parameters(const std::vector<std::string>& parameters);

// Neighbouring blocks of one list, so many together, the last ones perhaps fewer.
std::vector<std::vector<std::string>> grouped_blocks(const std::vector<std::string>& blocks,
                                                     std::int64_t together);

}  // namespace bucketwise
