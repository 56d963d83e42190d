#include "cli/shell/read_files.h"

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include <sys/stat.h>

#include <fmt/format.h>

#include "sim/base/error.h"

namespace bucketwise {
namespace {

namespace fs = std::filesystem;

// The same for every name of a file: through symbolic links, and of hard links.
using FileId = std::pair<::dev_t, ::ino_t>;

std::optional<FileId> id_of(const struct stat& status) {
    return S_ISREG(status.st_mode) ? std::optional(FileId{status.st_dev, status.st_ino})
                                   : std::nullopt;
}

class ReadFiles {
  public:
    void note(const FileId& file, const std::string& name) {
        const std::lock_guard guard(mutex_);
        names_.emplace(file, name);
    }
    // By which name it was read first; none: it was not.
    std::optional<std::string> name_of(const FileId& file) {
        const std::lock_guard guard(mutex_);
        const auto found = names_.find(file);
        return found == names_.end() ? std::nullopt : std::optional(found->second);
    }
    void forget() {
        const std::lock_guard guard(mutex_);
        names_.clear();
    }

  private:
    std::mutex mutex_;
    std::map<FileId, std::string> names_;
};

// Of the process: whoever opens a file for the user has no command at hand to tell it to.
ReadFiles& read_files() {
    static ReadFiles files;
    return files;
}

}  // namespace

void note_read(const std::string& path) {
    struct stat status {};
    if (const auto id = ::stat(path.c_str(), &status) == 0 ? id_of(status) : std::nullopt) {
        read_files().note(*id, path);
    }
}

void note_read(int descriptor, const std::string& path) {
    struct stat status {};
    if (const auto id = ::fstat(descriptor, &status) == 0 ? id_of(status) : std::nullopt) {
        read_files().note(*id, path);
    }
}

void refuse_overwriting(const std::vector<std::string>& outputs) {
    const char* const expected = "a file of its own to write to";
    std::set<fs::path> others;
    for (const std::string& output : outputs) {
        struct stat status {};
        const bool is_there = ::stat(output.c_str(), &status) == 0;
        if (output.empty() || output == "-" || (is_there && !id_of(status))) {
            continue;
        }
        if (const auto read = is_there ? read_files().name_of(*id_of(status)) : std::nullopt) {
            throw InputError(
                output, "", expected,
                "one that is read" + (*read == output ? "" : fmt::format(", as {}", *read)));
        }
        std::error_code error;
        // Absolute: of a relative one that is not there, nothing would be resolved.
        if (!others.insert(fs::weakly_canonical(fs::absolute(output, error), error)).second) {
            throw InputError(output, "", expected, "that of another output");
        }
    }
}

void forget_reads() {
    read_files().forget();
}

}  // namespace bucketwise
