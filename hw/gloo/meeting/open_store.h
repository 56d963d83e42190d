// The store that a place names.
#pragma once

#include <memory>
#include <string>

#include "hw/gloo/meeting/store.h"

namespace bucketwise {

// `place` is a directory or "redis://HOST:PORT". Throws InputError when it is neither, and
// std::runtime_error when it cannot be used.
std::unique_ptr<KeyValueStore> open_store(const std::string& place);

}  // namespace bucketwise
