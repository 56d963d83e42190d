#include "hw/gloo/meeting/store.h"

namespace bucketwise {

std::unique_ptr<KeyValueStore> open_redis_store(const std::string& place) {
    throw std::runtime_error(place +
                             ": this build cannot use Redis; it needs hiredis and a Gloo with its "
                             "Redis store. A shared directory does the same");
}

}  // namespace bucketwise
