#include "hw/gloo/meeting/store.h"

#include <fcntl.h>
#include <gloo/rendezvous/file_store.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <thread>

#include "hw/launch/launcher_descriptor.h"
#include "sim/base/error.h"
#include "sim/text/system_reason.h"

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

  private:
    // On a full disk Gloo writes a key of no bytes, and it is who reads it that fails.
    void explain_failure() override {
        check_usable();
        const std::string probe = place_ + "/probe." + std::to_string(::getpid());
        constexpr ::mode_t own = 0600;
        const Descriptor file(::open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, own));
        const bool written = file.is_open() && ::write(file.get(), "1", 1) == 1;
        const int error = errno;
        ::unlink(probe.c_str());
        if (!written) {
            throw std::runtime_error(
                place_ + ": cannot write where the ranks meet: " + system_reason(error) +
                "; TMPDIR, or --store where a launcher started the ranks, "
                "names another place");
        }
    }
};

std::unique_ptr<KeyValueStore> open_directory(const std::string& directory) {
    const std::string expected = "a directory where the ranks meet, or redis://HOST:PORT";
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
