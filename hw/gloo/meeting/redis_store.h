// A store in a Redis server, for ranks that share no file system.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "hw/gloo/meeting/store.h"

namespace bucketwise {

constexpr std::string_view redis_scheme = "redis://";

// One source or the other implements it: with hiredis and a Gloo that was built with it, or with
// the reason why there is none.
//
// `place` is "redis://HOST:PORT". Throws InputError when it is not, and std::runtime_error when no
// server answers there or this build cannot use Redis.
std::unique_ptr<KeyValueStore> open_redis_store(const std::string& place);

}  // namespace bucketwise
