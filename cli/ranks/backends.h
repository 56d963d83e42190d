// --backend and what is asked of it, the same for every subcommand that runs real ranks.
#pragma once

#include <string>
#include <vector>

#include <boost/program_options.hpp>

#include "hw/backend/backend.h"

namespace bucketwise {

// --backend, --share-gpu and --ctas.
void add_backend_options(boost::program_options::options_description& options);

// All that --backend may name.
std::vector<std::string> backend_names();

// Throws InputError for a name that no backend has.
const Backend& requested_backend(const boost::program_options::variables_map& values);

// All but who sums, the same for all backends. Throws InputError.
BackendRequest backend_request(const boost::program_options::variables_map& values);

// 1 to 1024. Throws InputError, whose file is `option`.
std::int64_t read_ctas(const std::string& text, const std::string& option);

}  // namespace bucketwise
