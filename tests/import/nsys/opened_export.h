// A database of bytes, by its name alone in a folder that is gone once it is open.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "import/nsys/export_database.h"

namespace bucketwise {

inline ExportDatabase opened_export(std::string_view bytes, const std::string& name) {
    struct InFolder {
        std::filesystem::path before = std::filesystem::current_path();
        std::string folder = (std::filesystem::temp_directory_path() / "nsys_XXXXXX").string();
        InFolder() { std::filesystem::current_path(mkdtemp(folder.data())); }
        ~InFolder() {
            std::filesystem::current_path(before);
            std::filesystem::remove_all(folder);
        }
        InFolder(const InFolder&) = delete;
        InFolder& operator=(const InFolder&) = delete;
    };
    const InFolder folder;
    std::ofstream(name, std::ios::binary) << bytes;
    return ExportDatabase::of_file(name);
}

}  // namespace bucketwise
