#include "hw/gloo/meeting/store.h"

#include <thread>

namespace bucketwise {
namespace {

// Gloo's stores look as often.
constexpr std::chrono::milliseconds poll_interval{10};

}  // namespace

JobStore::JobStore(KeyValueStore& store, std::string prefix, Deadline deadline)
    : store_(store), prefix_(std::move(prefix)), deadline_(deadline) {}

bool JobStore::has(const std::string& key) {
    return store_.has(prefix_ + key);
}

void JobStore::set(const std::string& key, const std::vector<char>& value) {
    store_.set(prefix_ + key, value);
}

std::vector<char> JobStore::get(const std::string& key) {
    wait({key});
    return store_.get(prefix_ + key);
}

std::vector<std::string> JobStore::missing_at_deadline(std::vector<std::string> keys) {
    while (true) {
        store_.check_usable();
        std::erase_if(keys, [&](const std::string& key) { return has(key); });
        if (keys.empty() || std::chrono::steady_clock::now() >= deadline_) {
            return keys;
        }
        std::this_thread::sleep_for(poll_interval);
    }
}

void JobStore::wait(const std::vector<std::string>& keys) {
    if (!missing_at_deadline(keys).empty()) {
        throw PeerFailure("a rank arrived at the store, but did not say in time how to reach it");
    }
}

void JobStore::wait(const std::vector<std::string>& keys,
                    const std::chrono::milliseconds& /*timeout*/) {
    wait(keys);
}

}  // namespace bucketwise
