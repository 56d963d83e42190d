#include "hw/gloo/meeting/store.h"

#include <gloo/rendezvous/file_store.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "sim/base/error.h"

namespace bucketwise {
namespace {

// Opens up what Gloo keeps for derived classes.
class AskableFileStore final : public gloo::rendezvous::FileStore {
  public:
    using gloo::rendezvous::FileStore::check;
    using gloo::rendezvous::FileStore::FileStore;
};

class DirectoryStore final : public StoreOfGloo<AskableFileStore> {
  public:
    explicit DirectoryStore(const std::string& directory) : StoreOfGloo(directory) {
        store_ = std::make_unique<AskableFileStore>(directory);
    }

    void forget_own_keys() noexcept override {
        try {
            for (const std::string& path : store_->getAllKeyFilePaths()) {
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
        if (!std::filesystem::is_directory(place_, ignored)) {
            throw std::runtime_error(place_ + ": the directory where the ranks meet was removed");
        }
    }
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
