// Reading and writing which blocks backward computes again.
#pragma once

#include <optional>
#include <string_view>

#include "sim/base/json_table.h"
#include "sim/workload/recompute.h"

namespace bucketwise {

// The key of a workload.
constexpr std::string_view recompute_key = "activation_checkpointing";

JsonType<std::optional<Recompute>> recompute_type();
// Where computing was measured: whole blocks.
JsonType<std::optional<Recompute>> block_recompute_type();

// Throws InputError.
[[noreturn]] void refuse_recompute_without_blocks(const JsonPlace& place);

}  // namespace bucketwise
