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

// One for all names of a file: symbolic and hard links.
using FileId = std::pair<::dev_t, ::ino_t>;

std::optional<FileId> id_of(int result, const struct stat& status) {
    return result == 0 && S_ISREG(status.st_mode)
               ? std::optional(FileId{status.st_dev, status.st_ino})
               : std::nullopt;
}

// Global, as readers of files know no command. The first name by which a file was read.
std::mutex read_mutex;
std::map<FileId, std::string> read_names;

void note(const std::optional<FileId>& file, const std::string& name) {
    if (file) {
        const std::lock_guard guard(read_mutex);
        read_names.emplace(*file, name);
    }
}

}  // namespace

void note_read(const std::string& path) {
    struct stat status {};
    note(id_of(::stat(path.c_str(), &status), status), path);
}

void note_read(int descriptor, const std::string& path) {
    struct stat status {};
    note(id_of(::fstat(descriptor, &status), status), path);
}

void refuse_overwriting(const std::vector<std::string>& outputs) {
    const char* const expected = "a file of its own to write to";
    const std::lock_guard guard(read_mutex);
    std::set<fs::path> others;
    for (const std::string& output : outputs) {
        struct stat status {};
        const int result = ::stat(output.c_str(), &status);
        const std::optional<FileId> file = id_of(result, status);
        if (output.empty() || output == "-" || (result == 0 && !file)) {
            continue;
        }
        if (const auto read = file ? read_names.find(*file) : read_names.end();
            read != read_names.end()) {
            throw InputError(
                output, "", expected,
                "one that is read" +
                    (read->second == output ? "" : fmt::format(", as {}", read->second)));
        }
        std::error_code error;
        // Absolute, as a relative path that does not exist would not be resolved.
        if (!others.insert(fs::weakly_canonical(fs::absolute(output, error), error)).second) {
            throw InputError(output, "", expected, "that of another output");
        }
    }
}

void forget_reads() {
    const std::lock_guard guard(read_mutex);
    read_names.clear();
}

}  // namespace bucketwise
