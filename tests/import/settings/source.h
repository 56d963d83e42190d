// Settings as the program hands them to their readers: through settings_to_json.py.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/base/json.h"
#include "tests/shell_line.h"

namespace bucketwise::testing {

// `name` is the file's, whose ending tells its kind. Throws InputError of file "settings" with the
// script's message.
inline Json source_of(const std::string& text, const std::string& name = "settings.py") {
    std::string quoted = "'";
    for (const char c : text) {
        quoted += c == '\'' ? "'\\''" : std::string(1, c);
    }
    const ShellOutcome read = run_in_shell("printf %s " + quoted +
                                           "' | python3 " BUCKETWISE_TEST_DATA_DIR
                                           "/../../import/settings/settings_to_json.py " +
                                           name + " /dev/stdin 2>&1");
    if (read.exit_code != 0) {
        throw InputError("settings", "", "settings", read.output);
    }
    return Json::parse(read.output);
}

}  // namespace bucketwise::testing
