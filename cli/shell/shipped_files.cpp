#include "cli/shell/shipped_files.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "sim/text/edit_distance.h"
#include "sim/workload/models/models.h"

namespace bucketwise {

namespace fs = std::filesystem;

namespace {

// Sorted, so that ties between similar names break alike everywhere. At most 10,000, which is
// enough for a typing error.
std::vector<std::string> names_of_files(const fs::path& folder) {
    constexpr std::size_t most = 10'000;
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
         entry.increment(error)) {
        std::error_code ignored;
        if (entry->is_regular_file(ignored)) {
            names.push_back(entry->path().filename().string());
        }
        if (names.size() == most) {
            break;
        }
    }
    std::ranges::sort(names);
    return names;
}

// The first of the folders that may hold what ships for which `holds(folder / name)`.
template <typename Holds>
std::optional<fs::path> found_shipped(const std::string& name, const Holds& holds) {
    std::error_code error;
    const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
    for (const fs::path& place :
         {folder, folder / BUCKETWISE_DATA_FROM_PROGRAM, folder / BUCKETWISE_SOURCE_DIR}) {
        const fs::path file = (place / name).lexically_normal();
        if (holds(file)) {
            return file;
        }
    }
    return std::nullopt;
}

}  // namespace

std::optional<std::string> shipped_file(const std::string& name) {
    const auto found = found_shipped(name, [](const fs::path& file) {
        std::error_code error;
        return fs::is_regular_file(file, error);
    });
    return found ? std::optional(found->string()) : std::nullopt;
}

std::vector<std::string> shipped_names(const std::string& folder) {
    const auto found = found_shipped(folder, [](const fs::path& place) {
        std::error_code error;
        return fs::is_directory(place, error);
    });
    return found ? names_of_files(*found) : std::vector<std::string>{};
}

std::string nearest_file(const std::string& path) {
    const fs::path wanted(path);
    const std::string name = wanted.filename().string();
    const std::vector<std::string> beside =
        names_of_files(wanted.has_parent_path() ? wanted.parent_path() : fs::path("."));
    if (const std::string_view nearest = nearest_name(name, {beside.begin(), beside.end()});
        !nearest.empty()) {
        return (wanted.parent_path() / nearest).string();
    }
    // A model is a scenario by its name alone.
    if (const std::string_view model = nearest_name(path, model_names()); !model.empty()) {
        return std::string(model);
    }
    // A scenario may be named without its folder, or its ending.
    const std::vector<std::string> scenarios = shipped_names("scenarios");
    const std::string_view shipped = nearest_name(wanted.has_extension() ? name : name + ".json",
                                                  {scenarios.begin(), scenarios.end()});
    const bool may_ship = !wanted.has_parent_path() || wanted.parent_path() == "scenarios";
    return may_ship && shipped.ends_with(".json") ? fmt::format("scenarios/{}", shipped) : "";
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
