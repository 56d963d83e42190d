#include "cli/shell/shipped_files.h"

#include <filesystem>
#include <system_error>

namespace bucketwise {

namespace fs = std::filesystem;

std::optional<std::string> shipped_file(const std::string& name) {
    std::error_code error;
    const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
    for (const fs::path& place :
         {folder, folder / BUCKETWISE_DATA_FROM_PROGRAM, fs::path(BUCKETWISE_SOURCE_DIR)}) {
        const fs::path file = (place / name).lexically_normal();
        if (fs::is_regular_file(file, error)) {
            return file.string();
        }
    }
    return std::nullopt;
}

std::string here_or_shipped(const std::string& path) {
    std::error_code error;
    const bool names_shipped = path.rfind("scenarios/", 0) == 0;
    if (!names_shipped || fs::exists(fs::symlink_status(path, error))) {
        return path;
    }
    return shipped_file(path).value_or(path);
}

}  // namespace bucketwise
