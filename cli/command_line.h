// The command line as a whole.
#pragma once

#include <string>
#include <vector>

namespace bucketwise {

// Runs `bucketwise ARGUMENTS...` and returns the exit code. Messages go to standard error, each one
// line: "bucketwise: ...".
int run_command_line(const std::vector<std::string>& arguments);

}  // namespace bucketwise
