// The schemas in scenarios/, which tables of keys give.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "sim/base/json_table.h"

namespace bucketwise {

// Of a file in scenarios/.
inline std::string scenario_file_text(const std::string& name) {
    std::ostringstream text;
    text << std::ifstream(std::filesystem::path(BUCKETWISE_SCENARIO_DIR) / name).rdbuf();
    return text.str();
}

inline void write_scenario_file(const std::string& name, const std::string& text) {
    std::ofstream(std::filesystem::path(BUCKETWISE_SCENARIO_DIR) / name) << text;
}

inline std::string schema_text(Json schema, const std::string& title) {
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema";
    schema["title"] = title;
    return schema.dump(1) + "\n";
}

}  // namespace bucketwise
