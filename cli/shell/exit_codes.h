// How a command ends, and what it throws where it was used wrongly.
#pragma once

#include <string>

namespace bucketwise {

// Exit codes of every subcommand.
constexpr int exit_done = 0;
constexpr int exit_failed = 1;
constexpr int exit_bad_input = 2;
constexpr int exit_not_held = 3;  // a gate's (bucketwise check)

// Wrong use of the command line; exits with exit_bad_input.
struct UsageError {
    std::string message;
};

}  // namespace bucketwise
