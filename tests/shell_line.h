// A line of the shell, run to its end.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "tests/catch.h"

namespace bucketwise::testing {

struct ShellOutcome {
    int exit_code = -1;  // -1: a signal ended it
    std::string output;  // standard output
};

inline ShellOutcome run_in_shell(const std::string& line) {
    std::FILE* pipe = ::popen(line.c_str(), "r");
    REQUIRE(pipe != nullptr);
    ShellOutcome outcome;
    char block[4096];
    while (const std::size_t count = std::fread(block, 1, sizeof block, pipe)) {
        outcome.output.append(block, count);
    }
    const int status = ::pclose(pipe);
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return outcome;
}

}  // namespace bucketwise::testing
