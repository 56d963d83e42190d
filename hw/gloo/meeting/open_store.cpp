#include "hw/gloo/meeting/open_store.h"

#include <gloo/rendezvous/file_store.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "hw/gloo/meeting/peer_failure.h"
#include "hw/gloo/meeting/redis_store.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

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

}  // namespace bucketwise
