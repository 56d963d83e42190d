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

// --- for commands that read values by name ---

void add_backend_options(boost::program_options::options_description& options);
const Backend& requested_backend(const boost::program_options::variables_map& values);
BackendRequest backend_request(const boost::program_options::variables_map& values);

}  // namespace bucketwise
