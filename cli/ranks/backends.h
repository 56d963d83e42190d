// --backend and its options, for every command that runs real ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/shell/option_values.h"
#include "hw/backend/backend.h"

namespace bucketwise {

struct BackendOptions {
    const Backend* backend = nullptr;  // --backend
    BackendRequest request = {};       // --share-gpu and --ctas

    [[nodiscard]] bool is_nccl() const { return backend->name() == "nccl"; }
};

constexpr WholeNumbers cta_numbers{1, 1024};  // thread blocks

std::vector<OptionText> backend_rows(BackendOptions& options);

}  // namespace bucketwise
