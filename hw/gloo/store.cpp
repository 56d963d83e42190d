#include "hw/gloo/store.h"

#include <gloo/rendezvous/file_store.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "hw/gloo/peer_failure.h"
#include "hw/gloo/redis_store.h"
#include "sim/error.h"

namespace bucketwise {
namespace {

// Gloo's stores look as often.
constexpr std::chrono::milliseconds poll_interval{10};

// Opens up what Gloo keeps for derived classes.
class AskableFileStore final : public gloo::rendezvous::FileStore {
  public:
    using gloo::rendezvous::FileStore::check;
    using gloo::rendezvous::FileStore::FileStore;
};

class DirectoryStore final : public KeyValueStore {
  public:
    explicit DirectoryStore(const std::string& directory)
        : directory_(directory), files_(directory) {}

    bool has(const std::string& key) override {
        bool found = false;
        with_store_errors([&] { found = files_.check({key}); });
        return found;
    }

    void set(const std::string& key, const std::vector<char>& value) override {
        with_store_errors([&] { files_.set(key, value); });
    }

    std::vector<char> get(const std::string& key) override {
        std::vector<char> value;
        with_store_errors([&] { value = files_.get(key); });
        return value;
    }

    void forget_own_keys() noexcept override {
        try {
            for (const std::string& path : files_.getAllKeyFilePaths()) {
                std::error_code ignored;
                std::filesystem::remove(path, ignored);
            }
        } catch (const std::exception&) {
            // They stay, and the next run says so.
        }
    }

    // Gloo takes a directory that is gone for keys that are not there yet.
    void check_usable() override {
        std::error_code ignored;
        if (!std::filesystem::is_directory(directory_, ignored)) {
            throw std::runtime_error(directory_ +
                                     ": the directory where the ranks meet was removed");
        }
    }

  private:
    template <typename Step>
    void with_store_errors(const Step& step) {
        try {
            with_peer_failures(directory_, step);
        } catch (const PeerFailure& failure) {
            check_usable();  // gives the better reason
            throw std::runtime_error(failure.what());
        }
    }

    std::string directory_;
    AskableFileStore files_;
};

std::unique_ptr<KeyValueStore> open_directory(const std::string& directory) {
    const std::string expected = "a directory where the ranks meet";
    std::error_code error;
    const auto status = std::filesystem::status(directory, error);
    if (!std::filesystem::exists(status)) {
        throw InputError(directory, "", expected, "nothing there");
    }
    if (!std::filesystem::is_directory(status)) {
        throw InputError(directory, "", expected, "a file");
    }
    if (::access(directory.c_str(), R_OK | W_OK | X_OK) != 0) {
        throw InputError(directory, "", expected, std::generic_category().message(errno));
    }
    return std::make_unique<DirectoryStore>(directory);
}

}  // namespace

std::unique_ptr<KeyValueStore> open_store(const std::string& place) {
    if (place.empty()) {
        throw InputError("store", "", "a directory or redis://HOST:PORT", "nothing");
    }
    if (place.rfind(redis_scheme, 0) == 0) {
        return open_redis_store(place);
    }
    return open_directory(place);
}

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
